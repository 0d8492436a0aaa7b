"""Reads of topics: browsing, feeds, and filters."""
