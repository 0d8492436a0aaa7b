"""Logical types: the types that they may annotate, and the check of their attributes.

An unknown logical type, one on the wrong type, or one with attributes that make no sense is ignored: the specification
has implementations use the underlying type then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from penstock.schema.avro.model import Logical

DECIMAL: Final = "decimal"

UNDERLYING: Final[Mapping[str, frozenset[str]]] = {
    DECIMAL: frozenset({"bytes", "fixed"}),
    "big-decimal": frozenset({"bytes"}),
    "uuid": frozenset({"string", "fixed"}),
    "date": frozenset({"int"}),
    "time-millis": frozenset({"int"}),
    "time-micros": frozenset({"long"}),
    "timestamp-millis": frozenset({"long"}),
    "timestamp-micros": frozenset({"long"}),
    "timestamp-nanos": frozenset({"long"}),
    "local-timestamp-millis": frozenset({"long"}),
    "local-timestamp-micros": frozenset({"long"}),
    "local-timestamp-nanos": frozenset({"long"}),
    "duration": frozenset({"fixed"}),
}

FIXED_BYTES: Final[Mapping[str, int]] = {"uuid": 16, "duration": 12}
"""The size in bytes of the underlying fixed, where the logical type prescribes it."""


def logical(kind: str, properties: Mapping[str, Any], size: int | None = None) -> Logical | None:
    """Return the logical type that `properties` give to a type of this kind; None if there is none or it must be
    ignored. `size`: the bytes of a fixed."""
    name = properties.get("logicalType")
    if not isinstance(name, str) or kind not in UNDERLYING.get(name, ()):
        return None
    if name == DECIMAL:
        return _decimal(properties, size)
    if size is not None and size != FIXED_BYTES[name]:
        return None
    return Logical(name)


def _decimal(properties: Mapping[str, Any], size: int | None) -> Logical | None:
    precision, scale = properties.get("precision", 0), properties.get("scale", 0)
    if not _is_count(precision) or not _is_count(scale):
        return None
    if precision == 0 or scale > precision or (size is not None and precision > _digits(size)):
        return None
    return Logical(DECIMAL, precision, scale)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _digits(size: int) -> int:
    """Return the number of decimal digits that every signed number of `size` bytes can have."""
    return math.floor((8 * size - 1) * math.log10(2)) if size else 0
