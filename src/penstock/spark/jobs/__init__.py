"""Jobs over whole logs and archives, each a function and a command: audit, stats, replay, compact, import, export."""
