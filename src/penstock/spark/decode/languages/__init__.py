"""Payloads as rows, for each language that schemas are written in."""
