"""The registry over HTTP, in the dialect that clients of schema registries know. One row for each path."""
