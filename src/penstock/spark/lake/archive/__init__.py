"""The archive: topics copied into tables, exactly once."""
