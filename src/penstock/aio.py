"""Penstock for asyncio: `async with penstock.aio.connect() as client: await client.publish("orders.created", b"")`."""

from __future__ import annotations

from penstock.client.aio import AsyncClient, Serving, Subscription, connect
from penstock.client.core import Message

__all__ = ["AsyncClient", "Message", "Serving", "Subscription", "connect"]
