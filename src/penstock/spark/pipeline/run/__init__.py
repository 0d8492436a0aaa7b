"""A running pipeline: DataFrames, queries, and their reports."""
