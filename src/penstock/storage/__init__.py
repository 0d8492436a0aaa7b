"""Storage: disk, segments, index, recovery, logs, catalog, backups. It knows no sockets and no event loop."""
