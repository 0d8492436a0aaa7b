"""Parsers of option texts. Each raises `ValueError` or a `PenstockError` for a wrong text.

The user sees the text of a `ValueError` only if it begins with "it is". Spark is not imported here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from penstock.client.wire.address import parse_url
from penstock.core.names import TopicName
from penstock.core.positions import AtTime, parse_position
from penstock.core.units import parse_size
from penstock.spark.decode.options import LATEST, MERGED
from penstock.spark.scan.columns import schema_of
from penstock.storage.catalog.topics import check_subscription_name


class Rows(StrEnum):
    """The rows of a read: messages (`records`), ranges of offsets for a job to read (`slices`), or numbers of messages
    in each partition (`counts`) or in each hour of it (`hours`)."""

    RECORDS = "records"
    SLICES = "slices"
    COUNTS = "counts"
    HOURS = "hours"

    @property
    def counted(self) -> bool:
        return self in (Rows.COUNTS, Rows.HOURS)


class Decode(StrEnum):
    NONE = "none"
    REGISTRY = "registry"


class Framing(StrEnum):
    """The framing of payloads. They begin with the id of their schema always (`confluent`), sometimes (`auto`) or never
    (`none`)."""

    NONE = "none"
    CONFLUENT = "confluent"
    AUTO = "auto"


def flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) or int(text) == 0:
        raise ValueError(text)
    return int(text)


def size(text: str) -> int:
    found = parse_size(text)
    if not found:
        raise ValueError(text)
    return found


def words(text: str) -> tuple[str, ...]:
    found = tuple(word.strip() for word in text.split(","))
    if not all(found):
        raise ValueError(text)
    return found


def topics(text: str) -> tuple[TopicName, ...]:
    return tuple(dict.fromkeys(TopicName.parse(word) for word in words(text)))


def pattern(text: str) -> re.Pattern[str]:
    if not text:
        raise ValueError("it is empty")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None


def time_ms(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,15}", text, re.ASCII):
        return int(text)
    place = parse_position(text)
    if not isinstance(place, AtTime):
        raise ValueError(text)
    return place.unix_ms


def columns(text: str) -> tuple[str, ...]:
    names = words(text)
    schema_of(names)
    return names


def pick(text: str) -> str:
    if text.isdecimal():
        return str(count(text))
    if text.lower() not in (LATEST, MERGED):
        raise ValueError(text)
    return text.lower()


def plain(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text


def directory(text: str) -> str:
    """Return the directory as an absolute path or URL: the workers that write there have other current directories."""
    return plain(text) if "://" in text else str(Path(plain(text)).expanduser().absolute())


def subscription(text: str) -> str:
    check_subscription_name(text)
    return text


def broker(text: str) -> str:
    parse_url(text)
    return text


def lower(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    return lambda text: kind(text.lower())
