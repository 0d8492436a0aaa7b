"""Fields of JSON payloads. Each function reads one field, and raises `InvalidRequest`, which names the field, if its
value is wrong."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from penstock.core.errors import InvalidRequest, MalformedMessage, PenstockError
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.core.names import TopicName
from penstock.core.offset_set import OffsetSet, Span
from penstock.core.offsets import parse_offset
from penstock.core.positions import AtOffset, Position, parse_position

Fields = dict[str, Any]
_PARTITION_DIGITS: Final = 4


def read_fields(payload: bytes, missing: str = "The payload must be a JSON object") -> Fields:
    """Decode a JSON object; an empty payload counts as an empty object.

    Raises `MalformedMessage` if the payload is not JSON. Raises `InvalidRequest` if it is JSON but no object; `missing`
    is the text of that error.
    """
    if not payload:
        return {}
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise MalformedMessage("Invalid JSON payload", payload=payload.decode(errors="replace")) from None
    if not isinstance(value, dict):
        raise InvalidRequest(missing, payload=None)  # shown as `"details": {}`, as the founding protocol has it
    return value


def check_known(fields: Fields, known: Collection[str]) -> None:
    unknown = sorted(fields.keys() - set(known))
    if unknown:
        shown = unknown[0][:QUOTED_CHARS_MAX]
        raise InvalidRequest(f"Unknown option '{shown}': choose from {', '.join(known)}", option=shown)


def text(fields: Fields, name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"Missing or invalid {name}: expected text", field=name, given=value)
    return value


def flag(fields: Fields, name: str, *, default: bool = False) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequest(f"Invalid {name}: expected true or false", field=name, given=value)
    return value


def number(
    fields: Fields, name: str, default: int | None = None, *, at_least: int = 0, at_most: int = 2**63 - 1
) -> int:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
        raise InvalidRequest(
            f"Missing or invalid {name}: expected a whole number from {at_least} to {at_most}", field=name, given=value
        )
    return value


def texts(fields: Fields, name: str) -> tuple[str, ...]:
    """Read a text, or a list of texts, as a tuple; an absent field is an empty one. Raises `InvalidRequest`."""
    value = fields.get(name, [])
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise InvalidRequest(f"Invalid {name}: expected a list of texts", field=name, given=value)
    return tuple(values)


def topic_name(fields: Fields, name: str = "topic") -> TopicName:
    try:
        return TopicName.parse(text(fields, name))
    except PenstockError as error:
        raise InvalidRequest(f"Missing or invalid {name}: {error.message}", field=name) from None


def positions(value: object, name: str) -> Position | dict[int, Position]:
    """Parse one position for all partitions, or an object with a position for each partition number. Raises
    `InvalidRequest`, in which `name` is the field."""
    if isinstance(value, dict):
        if not all(number.isascii() and number.isdecimal() and len(number) <= _PARTITION_DIGITS for number in value):
            raise InvalidRequest(f"Invalid {name}: partitions are numbers", field=name, given=value)
        return {int(number): position(each, name) for number, each in value.items()}
    return position(value, name)


def position(value: object, name: str) -> Position:
    """Parse `earliest`, `latest`, an offset, a time, or a message id. Raises `InvalidRequest`, in which `name` is the
    field."""
    if isinstance(value, int) and not isinstance(value, bool):
        return AtOffset(parse_offset(value))
    if not isinstance(value, str) or len(value) > QUOTED_CHARS_MAX:
        raise InvalidRequest(
            f"Invalid {name}: expected earliest, latest, an offset, a time or a message id", field=name, given=value
        )
    try:
        return parse_position(value)
    except InvalidRequest as error:
        raise InvalidRequest(f"Invalid {name}: {error.message}", field=name, given=value) from None


_SPANS_MAX: Final = 10_000
"""The most offsets and ranges in one message: all other clients wait while they are processed."""


def spans(fields: Fields) -> list[Span]:
    """Read the offsets in `offsets`, a list of numbers, and `ranges`, a list of pairs that exclude their end. Returns
    sorted, disjoint spans. Raises `InvalidRequest`."""
    singles, ranges = fields.get("offsets", []), fields.get("ranges", [])
    named = "offsets" in fields or "ranges" in fields
    if not isinstance(singles, list) or not isinstance(ranges, list) or not named:
        raise InvalidRequest('Expected "offsets": [7, 9] or "ranges": [[10, 20]]', field="offsets")
    if len(singles) + len(ranges) > _SPANS_MAX:
        raise InvalidRequest(f"At most {_SPANS_MAX} offsets and ranges at a time", field="ranges")
    offsets = OffsetSet((offset, offset + 1) for offset in map(parse_offset, singles))
    for pair in ranges:
        if not isinstance(pair, list) or len(pair) != 2:
            raise InvalidRequest("A range is two offsets: [10, 20] is 10 to 19", field="ranges", given=pair)
        start, stop = parse_offset(pair[0]), parse_offset(pair[1])
        if stop < start:
            raise InvalidRequest(f"A range cannot end ({stop}) before it starts ({start})", field="ranges")
        offsets.add(start, stop)
    return list(offsets)
