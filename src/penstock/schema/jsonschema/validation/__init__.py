"""Payloads held against a JSON Schema: exact answers for one, and a quick yes for many."""
