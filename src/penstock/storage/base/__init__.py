"""The lowest layer of storage: the disk, what lies where in a data directory, and what the disk costs."""
