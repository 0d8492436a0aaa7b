"""Penstock: a message broker whose log is the data pipeline's table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.1"

if TYPE_CHECKING:
    from penstock import aio, errors
    from penstock.client.blocking import Client, Consumer, Producer, Sent, Serving, Subscription, connect
    from penstock.client.consumer import Batch, Gap, StreamMessage
    from penstock.client.core import Message
    from penstock.client.receipts import Receipt
    from penstock.client.serde import AvroSchema, JsonSchema, Pinned, ProtobufSchema, Reference, UseLatest

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
    "AvroSchema": "penstock.client.serde",
    "Batch": "penstock.client.consumer",
    "Client": "penstock.client.blocking",
    "Consumer": "penstock.client.blocking",
    "Gap": "penstock.client.consumer",
    "JsonSchema": "penstock.client.serde",
    "Message": "penstock.client.core",
    "Pinned": "penstock.client.serde",
    "Producer": "penstock.client.blocking",
    "ProtobufSchema": "penstock.client.serde",
    "Receipt": "penstock.client.receipts",
    "Reference": "penstock.client.serde",
    "Sent": "penstock.client.blocking",
    "StreamMessage": "penstock.client.consumer",
    "Serving": "penstock.client.blocking",
    "Subscription": "penstock.client.blocking",
    "UseLatest": "penstock.client.serde",
    "connect": "penstock.client.blocking",
    "aio": "penstock.aio",
    "errors": "penstock.errors",
}
_MODULES = ("aio", "errors")


def __getattr__(name: str) -> Any:
    """The client comes in when it is first asked for: a command that needs none should not wait for it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_HOMES[name])
    return module if name in _MODULES else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
