"""Commands about access: keys, and what their holders may do."""
