"""Sizes and durations as people write them."""

from __future__ import annotations

import re
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.core.limits import GIB, KIB, MIB

_NUMBER: Final = re.compile(r"([0-9]{1,15})([A-Za-z]*)", re.ASCII)
_SIZES: Final = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_SPANS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_size(text: str) -> int:
    """Parse `512`, `64KiB`, `10MB` or `2GiB`, and return bytes. Raises `InvalidRequest` for any other text."""
    return _parse(text, _SIZES, "a size such as 512, 64KiB, 10MB or 2GiB")


def parse_duration_ms(text: str) -> int:
    """Parse `500ms`, `30s`, `5m`, `2h` or `7d`, and return milliseconds. Raises `InvalidRequest` for any other text."""
    return _parse(text, _SPANS_MS, "a span of time such as 500ms, 30s, 5m, 2h or 7d")


def _parse(text: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER.fullmatch(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise InvalidRequest(f"{text!r} is not {expected}", given=text)
    return int(match[1]) * factor
