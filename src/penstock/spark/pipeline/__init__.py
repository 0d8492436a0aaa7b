"""Pipelines of users: a TOML file of named steps over topics and tables, run as Structured Streaming queries.

`file` is pure: the model and the parsing of the file, without Spark. `run` builds DataFrames from the model, starts a
query for every sink, and watches the queries.
"""
