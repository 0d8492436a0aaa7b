"""Backups of a data directory, and restoring them."""
