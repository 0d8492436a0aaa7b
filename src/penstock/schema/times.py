"""Dates and times in JSON strings. Validation and the conversion to table columns share these readers."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

_CLOCK: Final = r"(\d\d:\d\d):(\d\d)(?:\.(\d{1,6})\d*)?([Zz]|[+-]\d\d:?\d\d)?"
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(_CLOCK, re.ASCII)
_DATE_TIME: Final = re.compile(rf"(\d{{4}}-\d\d-\d\d)[Tt ]{_CLOCK}", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(text: str) -> int:
    """Return the microseconds from 1970 to a date and time of RFC 3339. Raises `ValueError` for any other text.

    A time without a zone is UTC, as most programs write it; digits beyond microseconds are cut off; a leap second is
    the first second of the next minute.
    """
    parts = _DATE_TIME.fullmatch(text)
    if parts is None:
        raise ValueError("it is no date and time")
    day, *clock = parts.groups()
    return _since_epoch(day, *clock)


def days(text: str) -> int:
    """Return the days from 1970 to a date such as 2026-01-31. Raises `ValueError` for any other text."""
    if _DATE.fullmatch(text) is None:
        raise ValueError("it is no date")
    return (date.fromisoformat(text) - _EPOCH.date()).days


def check_time(text: str) -> None:
    """Raise `ValueError` unless the text is a time of RFC 3339, with or without a zone."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise ValueError("it is no time")
    _since_epoch("2000-01-01", *parts.groups())


def _since_epoch(day: str, minutes: str, seconds: str, fraction: str | None, zone: str | None) -> int:
    leap = seconds == "60"
    at = datetime.fromisoformat(f"{day}T{minutes}:{'59' if leap else seconds}{(zone or 'Z').upper()}")
    since = at - _EPOCH + timedelta(seconds=leap)
    return since // timedelta(microseconds=1) + int(f"{fraction or '0':0<6}")
