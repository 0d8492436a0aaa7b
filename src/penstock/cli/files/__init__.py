"""Commands that read and write files of a data directory without a broker."""
