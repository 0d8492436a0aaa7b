"""Payloads: JSON from outside, parsed for the validator."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import msgspec

from penstock.schema.language import PayloadFault
from penstock.schema.problems import fragment

PAYLOAD_DEPTH_MAX: Final = 128
"""Depth of a payload's nesting: recursive schemas are applied at every level."""

SURELY_SHALLOW_BYTES: Final = 2 * PAYLOAD_DEPTH_MAX
"""A payload of at most this length is not nested too deep: every bracket is closed again."""

_DIGITS_MAX: Final = 400
_BEYOND: Final = 10**400
"""The stand-in for a number that is larger than a double can be: larger than any bound, and an integer."""

_NOT_OPENING: Final = bytes(byte for byte in range(256) if byte not in b"[{")

_decode: Final = msgspec.json.Decoder().decode


class InvalidPayload(Exception):
    """The payload is not JSON, or not JSON that is accepted here."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.fault = PayloadFault("", fragment(message))


def parse_payload(payload: bytes) -> Any:
    """Parse a payload and return its value. Raises `InvalidPayload` if it is not JSON or is nested too deep.

    The last value of a duplicate key counts. Bytes that are not UTF-8 and halves of surrogate pairs are refused, as are
    NaN and Infinity.
    """
    try:
        value = _decode(payload)
    except msgspec.ValidationError:
        value = _read_large_numbers(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidPayload(f"it is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    if not is_shallow(payload) and _depth(value) > PAYLOAD_DEPTH_MAX:
        raise _too_deep()
    return value


def is_shallow(payload: bytes) -> bool:
    """Return True if the payload is certainly not nested too deep, because it has too few brackets. False decides
    nothing: brackets may be within strings, or beside each other."""
    return len(payload) <= SURELY_SHALLOW_BYTES or len(payload.translate(None, _NOT_OPENING)) <= PAYLOAD_DEPTH_MAX


def _read_large_numbers(payload: bytes) -> Any:
    """Parse a payload with numbers that do not fit a double, or have more than 4,300 digits: it is still JSON. Raises
    `InvalidPayload`."""
    try:
        value = json.loads(payload.decode(), parse_int=_integer, parse_float=_float, parse_constant=_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError as error:
        raise InvalidPayload(f"it is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    return value


def _integer(text: str) -> int:
    if len(text) <= _DIGITS_MAX:
        return int(text)
    return -_BEYOND if text.startswith("-") else _BEYOND


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        return -_BEYOND if value < 0 else _BEYOND
    return value


def _constant(text: str) -> None:
    raise InvalidPayload(f"it is not JSON: {text} is no number")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        level = [child for holder in level for child in _children(holder)]
        depth += 1
    return depth - 1


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep() -> InvalidPayload:
    return InvalidPayload(f"it is nested more than {PAYLOAD_DEPTH_MAX} deep")
