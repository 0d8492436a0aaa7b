"""Durable subscriptions: the machine that decides, and the code that carries its decisions out."""
