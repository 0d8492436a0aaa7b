"""Resources that connections share: memory, file descriptors, and turns."""
