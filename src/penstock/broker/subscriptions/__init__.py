"""Durable subscriptions: the machine that decides what happens, and the code that carries out its decisions."""
