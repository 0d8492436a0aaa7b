"""A pipeline under way: DataFrames, queries, and what they report."""
