"""Read-only inspection of data directories and segments that another process may own."""
