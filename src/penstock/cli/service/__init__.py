"""Commands that run the broker, look at it, or look at this machine."""
