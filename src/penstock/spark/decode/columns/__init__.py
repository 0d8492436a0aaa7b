"""Columns: the shapes of payloads, and arrays of values in those shapes."""
