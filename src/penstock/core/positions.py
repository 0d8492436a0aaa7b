"""Positions in a log, as people and subscriptions name them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.core.ids import ID_BYTES, parse_id
from penstock.core.offsets import Offset, parse_offset

_DIGITS: Final = re.compile(r"[0-9]{1,100}", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Earliest:
    """The position of the oldest message that is kept."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The position behind the newest message: only later messages follow."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The position of the message with this offset."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class AtTime:
    """The position of the first message published at this time (Unix milliseconds) or later."""

    unix_ms: int


@dataclass(frozen=True, slots=True)
class AtId:
    """The position of the message with this id, or of the first with a greater one."""

    id: bytes

    def __post_init__(self) -> None:
        if len(self.id) != ID_BYTES:
            raise InvalidRequest(f"an id has {ID_BYTES} bytes, not {len(self.id)}")


Position = Earliest | Latest | AtOffset | AtTime | AtId


def parse_position(text: str) -> Position:
    """Parse `earliest`, `latest`, an offset, a message id, or a time in ISO 8601 (UTC by default). Raises
    `InvalidRequest`."""
    if text in ("earliest", "latest"):
        return Earliest() if text == "earliest" else Latest()
    if _DIGITS.fullmatch(text):
        return AtOffset(parse_offset(int(text)))
    if _UUID.fullmatch(text):
        return AtId(parse_id(text))
    return AtTime(_parse_time(text))


def _parse_time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is no place in a log: expected earliest, latest, an offset (42), a time (2026-01-31T12:00:00Z)"
            " or a message id",
            given=text,
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def parse_positions(start: str, stop: str | None) -> tuple[Position, Position | None]:
    """Parse a start and a stop; without a stop, the second result is None.

    Raises `InvalidRequest` for an invalid text, or if both are of one kind and the start comes after the stop.
    """
    first, last = parse_position(start), None if stop is None else parse_position(stop)
    match first, last:
        case (AtOffset(one), AtOffset(other)) | (AtTime(one), AtTime(other)) | (AtId(one), AtId(other)):
            if one > other:  # type: ignore[operator]  # both of one kind
                raise InvalidRequest(f"nothing lies between {start} and {stop}: the start comes after the stop")
    return first, last
