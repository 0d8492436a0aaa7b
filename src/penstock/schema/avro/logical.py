"""Logical types: what they may stand on, and whether two of them mean the same.

One that is unknown, or stands on the wrong type, or has attributes that make no sense, is none: the specification has
implementations use the underlying type then.
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
"""How long the underlying fixed is, where that is not for the schema to say."""


def logical(kind: str, properties: Mapping[str, Any], size: int | None = None) -> Logical | None:
    """The logical type of a type of this kind with these properties; `size` is that of a fixed."""
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
    """How many decimal digits any signed number of that many bytes can have."""
    return math.floor((8 * size - 1) * math.log10(2)) if size else 0
