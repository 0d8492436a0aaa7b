"""Penstock: a message broker whose log is the data pipeline's table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from penstock.client.blocking import Client, Serving, Subscription, connect
    from penstock.client.core import Message

__all__ = ["Client", "Message", "Serving", "Subscription", "__version__", "connect"]

_HOMES = {
    "Client": "penstock.client.blocking",
    "Message": "penstock.client.core",
    "Serving": "penstock.client.blocking",
    "Subscription": "penstock.client.blocking",
    "connect": "penstock.client.blocking",
    "aio": "penstock.aio",
}


def __getattr__(name: str) -> Any:
    """The client comes in when it is first asked for: a command that needs none should not wait for it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_HOMES[name])
    return module if name == "aio" else getattr(module, name)
