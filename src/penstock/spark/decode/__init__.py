"""Payloads as typed columns, by the schema that each message names.

    messages = spark.read.format("penstock").option("path", "data").option("subscribe", "orders").load()
    orders = penstock.spark.decode(messages, topic="orders", registry="data")

`Decoder` and `target_for` do the same for Arrow batches, without Spark.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.spark.decode.decoder import Decoded as Decoded
    from penstock.spark.decode.decoder import Decoder as Decoder
    from penstock.spark.decode.frames import decode as decode
    from penstock.spark.decode.options import Mode as Mode
    from penstock.spark.decode.options import Unnamed as Unnamed
    from penstock.spark.decode.target import Target as Target
    from penstock.spark.decode.target import has_schemas as has_schemas
    from penstock.spark.decode.target import target_for as target_for

_HOMES: Final = {
    "Decoded": "decoder",
    "Decoder": "decoder",
    "Mode": "options",
    "Unnamed": "options",
    "Target": "target",
    "has_schemas": "target",
    "target_for": "target",
    "decode": "frames",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: Spark where a DataFrame is decoded, Arrow alone where batches are."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


class _Package(ModuleType):
    """A module that can be called: `penstock.spark.decode` is both the function that users call and this package."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.decode(*arguments, **options)


sys.modules[__name__].__class__ = _Package
