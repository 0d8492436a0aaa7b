"""The client of a broker: one protocol without sockets and two thin shells, `penstock.aio` and `penstock` itself."""
