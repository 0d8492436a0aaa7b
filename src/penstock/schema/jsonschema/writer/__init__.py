"""What is known of a value, by the schema that it was written with."""
