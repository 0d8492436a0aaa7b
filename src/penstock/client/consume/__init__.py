"""Consuming from durable topics: consumers, readers, dead letters."""
