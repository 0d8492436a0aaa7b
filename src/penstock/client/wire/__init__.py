"""The wire of the client: addresses, credentials, the protocol without sockets, transports, and lasting connections."""
