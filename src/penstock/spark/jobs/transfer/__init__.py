"""Messages exported, imported, copied, replayed or compacted."""
