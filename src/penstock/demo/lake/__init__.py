"""The lake of the demo: the Spark session with the archive and the audit, and the pipeline that sums revenue."""
