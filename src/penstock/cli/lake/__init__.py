"""Commands about the lakehouse and jobs over logs."""
