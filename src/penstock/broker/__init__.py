"""Broker: who gets which message. Topics, requests, services. Events in, effects out: no sockets, no asyncio, no
clock."""
