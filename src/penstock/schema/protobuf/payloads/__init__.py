"""Validation of payloads against a schema."""
