"""Durable topics: publishing into them, each message once, as their schemas allow."""
