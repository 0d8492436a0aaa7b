"""Words of the whole broker: effects, metrics, what the broker says, and how requests are read."""
