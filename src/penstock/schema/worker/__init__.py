"""The worker process, which parses schemas and validates payloads from outside."""
