"""Vocabulary of the whole broker: effects, metrics, replies, and the reading of requests."""
