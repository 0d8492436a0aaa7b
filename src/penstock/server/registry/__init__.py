"""The schema registry over HTTP, in the dialect that clients of other schema registries know."""
