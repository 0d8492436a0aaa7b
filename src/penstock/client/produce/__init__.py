"""Producing to durable topics: blocks in flight, each stored once, and receipts."""
