"""The server: sockets, HTTP, background work and settings around the broker. No message semantics are decided here."""
