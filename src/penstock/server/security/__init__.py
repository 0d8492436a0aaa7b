"""Security of HTTP and WebSocket: credentials, tokens, the audit log, response headers."""
