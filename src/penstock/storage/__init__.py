"""Storage: disk, segments, index, recovery, logs, catalog. No sockets and no event loop come in here."""
