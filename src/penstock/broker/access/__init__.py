"""Access control: principals, roles, keys, and the audit record of each decision."""
