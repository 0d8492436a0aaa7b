"""The worker process, in which schemas and payloads from outside are taken apart."""
