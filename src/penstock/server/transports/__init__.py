"""Connections of clients: TCP, WebSocket, HTTP."""
