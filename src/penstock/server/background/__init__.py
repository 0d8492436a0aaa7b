"""Work beside the event loop: threads, worker processes for schemas, tasks of the registry."""
