"""Penstock for asyncio: `async with penstock.aio.connect() as client: await client.publish("orders.created", b"")`."""

from __future__ import annotations

from penstock.client.aio import AsyncClient, connect
from penstock.client.core import Message
from penstock.client.live import Serving, Subscription
from penstock.client.receipts import Receipt
from penstock.client.serde import AvroSchema, JsonSchema, Pinned, ProtobufSchema, Reference, UseLatest

__all__ = [
    "AsyncClient",
    "AvroSchema",
    "JsonSchema",
    "Message",
    "Pinned",
    "ProtobufSchema",
    "Receipt",
    "Reference",
    "Serving",
    "Subscription",
    "UseLatest",
    "connect",
]
