"""Parts that the whole broker uses: effects, metrics, replies, and the reading of requests."""
