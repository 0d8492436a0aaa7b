"""Security at the edge: credentials as they come over HTTP and WebSocket, tokens, the audit log, headers of answers."""
