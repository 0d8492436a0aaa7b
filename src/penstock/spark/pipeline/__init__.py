"""Pipelines of the user's own: a TOML of named steps over topics and tables, run as Structured Streaming queries.

The model and all that reads the file are pure: no Spark comes in there. The others build DataFrames of it,
start a query for every sink, and watch them.
"""
