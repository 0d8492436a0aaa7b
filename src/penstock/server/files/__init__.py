"""Files of the logs over HTTP, for readers on other machines."""
