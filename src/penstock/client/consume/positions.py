"""Positions in a log: the forms in which programs pass them to `start` and `seek`, and the form sent to the broker."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from penstock.core.errors import InvalidRequest
from penstock.core.positions import parse_position

Start = str | int | datetime | Mapping[int, str | int | datetime]
"""A position: `earliest`, `latest`, an offset, a time (a `datetime`, or ISO 8601) or a message id; or a dict of
positions by partition."""


def position_field(position: object, argument: str) -> object:
    """Convert a position to the form that is sent to the broker.

    Raises `InvalidRequest` for a position that is not valid. `argument` is the parameter's name for that error.
    """
    if isinstance(position, Mapping):
        return {str(partition): _position(one, f"{argument}[{partition!r}]") for partition, one in position.items()}
    return _position(position, argument)


def _position(position: object, argument: str) -> str | int:
    match position:
        case bool():
            pass
        case int():
            return position
        case datetime(tzinfo=None):
            raise InvalidRequest(
                f"{argument}: {position} has no time zone: give one, such as datetime.now(UTC)", argument=argument
            )
        case datetime():
            return position.astimezone(UTC).isoformat()
        case str():
            return _checked(position, argument)
    raise InvalidRequest(
        f"{argument} is earliest, latest, an offset, a time (a datetime, or 2026-01-31T12:00:00Z) or a message id, not"
        f" {position!r}",
        argument=argument,
    )


def _checked(text: str, argument: str) -> str:
    try:
        parse_position(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{argument}: {error.message}", argument=argument) from None
    return text
