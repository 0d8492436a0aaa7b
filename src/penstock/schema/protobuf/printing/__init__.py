"""The printer: from descriptors to text, for people and as the canonical form."""
