"""Durable topics: messages are published into them, each is stored once, and only if the topic's schemas allow it."""
