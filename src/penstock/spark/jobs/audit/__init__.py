"""The audit: every record of a log, and the log against its archive."""
