"""The audit: every record of a log is checked, and the log is compared with its archive."""
