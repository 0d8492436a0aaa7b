"""The client's side of the wire: addresses, the protocol without sockets, and connections that last."""
