"""Places in a log as programs name them: what `start` and `seek` take, as the broker is told it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from penstock.core.errors import InvalidRequest
from penstock.core.positions import parse_position

Start = str | int | datetime | Mapping[int, str | int | datetime]
"""`earliest`, `latest`, an offset, a time (a `datetime`, or ISO 8601) or a message id; or one for each partition."""


def position_field(given: object, argument: str) -> object:
    """What the broker is told. Raises `InvalidRequest` that names the argument, before anything is asked."""
    if isinstance(given, Mapping):
        return {str(partition): _position(each, f"{argument}[{partition!r}]") for partition, each in given.items()}
    return _position(given, argument)


def _position(given: object, argument: str) -> str | int:
    match given:
        case bool():
            pass
        case int():
            return given
        case datetime(tzinfo=None):
            raise InvalidRequest(
                f"{argument}: {given} has no time zone: give one, such as datetime.now(UTC)", argument=argument
            )
        case datetime():
            return given.astimezone(UTC).isoformat()
        case str():
            return _checked(given, argument)
    raise InvalidRequest(
        f"{argument} is earliest, latest, an offset, a time (a datetime, or 2026-01-31T12:00:00Z) or a message id, not"
        f" {given!r}",
        argument=argument,
    )


def _checked(text: str, argument: str) -> str:
    try:
        parse_position(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{argument}: {error.message}", argument=argument) from None
    return text
