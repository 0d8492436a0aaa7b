"""The front door of HTTP: says what this is, and what can be asked."""
