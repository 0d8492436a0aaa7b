"""What connections share: memory, files, threads of the machine, and turns."""
