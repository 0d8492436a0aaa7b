"""The broker of the demo: its process, its lifetime, and the contents of its log."""
