"""Slices of the log and their reading: from files to Arrow batches. Spark does not come in here."""
