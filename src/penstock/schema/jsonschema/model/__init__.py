"""The model of JSON Schema documents: drafts, nodes, keywords, references."""
