"""Access control: principals, roles, keys, and what is written down of each decision."""
