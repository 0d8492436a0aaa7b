"""The lowest layer of storage: the disk, the layout of a data directory, and metrics of the disk."""
