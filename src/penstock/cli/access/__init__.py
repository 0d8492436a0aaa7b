"""Commands about access: keys, and the roles of their holders."""
