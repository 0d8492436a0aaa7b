"""Client: talk to a broker. One protocol core and two thin shells, `penstock.aio` and `penstock` itself."""
