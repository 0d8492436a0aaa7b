"""Messages into files and back, published again, or compacted."""
