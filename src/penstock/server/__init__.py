"""Server: connections. It moves bytes between sockets and the broker, and decides only when to read and write."""
