"""Bytes, held against a schema."""
