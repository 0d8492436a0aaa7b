"""The HTTP application: matches routes, authenticates, calls handlers, encodes answers. Handlers are elsewhere."""
