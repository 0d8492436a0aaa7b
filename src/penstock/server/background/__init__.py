"""Work beside the event loop: threads, worker processes for schemas, and tasks of the registry."""
