"""Reading data directories and segments that another process may own: nothing is changed."""
