"""Facts about a written value, derived from the writer's schema."""
