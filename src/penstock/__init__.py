"""Penstock: a message broker whose log is the data pipeline's table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import former_names

__version__ = "0.1.1"

if TYPE_CHECKING:
    from penstock import aio, errors
    from penstock.client.consume.consumer import Batch, Gap, StreamMessage
    from penstock.client.produce.receipts import Receipt
    from penstock.client.serde.schemas import AvroSchema, JsonSchema, Pinned, ProtobufSchema, Reference, UseLatest
    from penstock.client.sync import Client, Consumer, Producer, Sent, Serving, Subscription, connect
    from penstock.client.wire.protocol import Message

__all__ = [
    "AvroSchema",
    "Batch",
    "Client",
    "Consumer",
    "Gap",
    "JsonSchema",
    "Message",
    "Pinned",
    "Producer",
    "ProtobufSchema",
    "Receipt",
    "Reference",
    "Sent",
    "Serving",
    "StreamMessage",
    "Subscription",
    "UseLatest",
    "__version__",
    "aio",
    "connect",
    "errors",
]

_HOMES = {
    "AvroSchema": "penstock.client.serde.schemas",
    "Batch": "penstock.client.consume.consumer",
    "Client": "penstock.client.sync",
    "Consumer": "penstock.client.sync",
    "Gap": "penstock.client.consume.consumer",
    "JsonSchema": "penstock.client.serde.schemas",
    "Message": "penstock.client.wire.protocol",
    "Pinned": "penstock.client.serde.schemas",
    "Producer": "penstock.client.sync",
    "ProtobufSchema": "penstock.client.serde.schemas",
    "Receipt": "penstock.client.produce.receipts",
    "Reference": "penstock.client.serde.schemas",
    "Sent": "penstock.client.sync",
    "StreamMessage": "penstock.client.consume.consumer",
    "Serving": "penstock.client.sync",
    "Subscription": "penstock.client.sync",
    "UseLatest": "penstock.client.serde.schemas",
    "connect": "penstock.client.sync",
    "aio": "penstock.aio",
    "errors": "penstock.errors",
}
_MODULES = ("aio", "errors")


def __getattr__(name: str) -> Any:
    """Import the client when one of its names is first used, so that commands without a client need not wait for it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_HOMES[name])
    return module if name in _MODULES else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)


former_names.install()
