"""From descriptors back to text: for people, and in the one form that all schemas of the same meaning have."""
