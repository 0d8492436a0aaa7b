"""JSON Schema documents as values: drafts, nodes, keywords, references."""
