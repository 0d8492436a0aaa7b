"""Slices of the log and their reading: from files to Arrow batches. Spark is not imported here."""
