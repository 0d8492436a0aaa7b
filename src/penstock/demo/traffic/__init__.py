"""The traffic of the demo: the topic and its schema, three publishers, billing, and the threads that run them."""
