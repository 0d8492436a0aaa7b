"""Validation of payloads: exact answers for one, and a fast yes for many."""
