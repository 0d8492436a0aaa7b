"""The archive: topics into tables, exactly once."""
