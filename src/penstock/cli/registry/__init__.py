"""Commands about schemas and the registry."""
