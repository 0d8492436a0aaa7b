"""Connections and what passes between them without being stored: routes, requests, rate limits."""
