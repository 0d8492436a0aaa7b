"""The transports: TCP, WebSocket and HTTP connections."""
