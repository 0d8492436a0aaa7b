"""Penstock for asyncio: `async with penstock.aio.connect() as client: await client.publish("orders.created", b"")`."""

from __future__ import annotations

from penstock.client.aio import AsyncClient, connect
from penstock.client.live import Serving, Subscription
from penstock.client.produce.receipts import Receipt
from penstock.client.serde.schemas import AvroSchema, JsonSchema, Pinned, ProtobufSchema, Reference, UseLatest
from penstock.client.wire.protocol import Message

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
