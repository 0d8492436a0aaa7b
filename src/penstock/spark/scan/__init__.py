"""Slices of the log, and how they are read: from files to Arrow batches. Spark does not come in here."""
