"""Broker: who gets what. Topics, requests, services. Events in, effects out: no sockets, no asyncio, no clock."""
