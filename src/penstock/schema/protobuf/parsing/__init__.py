"""The parser: from a .proto text to a file descriptor, token by token. Names stay as they are written."""
