"""The data source `penstock`: its options, what a read is, what a stream has read. No lake and no jobs come in here."""
