"""The data source `penstock`: its options, batch reads, and streams. The lake and Penstock's jobs are not imported
here."""
