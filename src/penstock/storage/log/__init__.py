"""The log of one partition: segments, their index, recovery, and the thread that commits."""
