"""Files of the logs over HTTP."""
