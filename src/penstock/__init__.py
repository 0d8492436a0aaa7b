"""Penstock: a message broker whose log is the data pipeline's table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from penstock import aio
    from penstock.client.blocking import Client, Serving, Subscription, connect
    from penstock.client.core import Message
    from penstock.core import errors

__all__ = ["Client", "Message", "Serving", "Subscription", "__version__", "aio", "connect", "errors"]

_HOMES = {
    "Client": "penstock.client.blocking",
    "Message": "penstock.client.core",
    "Serving": "penstock.client.blocking",
    "Subscription": "penstock.client.blocking",
    "connect": "penstock.client.blocking",
    "aio": "penstock.aio",
    "errors": "penstock.core.errors",
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
