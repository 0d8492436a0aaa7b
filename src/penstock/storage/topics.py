"""Storage, what the catalog holds, as values: topics, their settings, producers and their marks.

Each is checked when it is made, so whoever holds one holds a valid one. No SQL and no files come in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.core.limits import (
    PARTITIONS_MAX,
    PRODUCER_NAME_BYTES_MAX,
    SEGMENT_BYTES_CEILING,
    SEGMENT_BYTES_FLOOR,
)
from penstock.core.names import TopicName
from penstock.core.offsets import OFFSET_MAX, Offset

WORD_MAX: Final = 2**63 - 1
"""What a signed 64-bit column holds, in SQL, in Arrow and in Spark."""


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_bound(field: str, value: int | None, *, at_least: int = 1, at_most: int = WORD_MAX) -> None:
    if value is not None:
        _check_word(field, value, at_least=at_least, at_most=at_most)


def _check_word(field: str, value: int, *, at_least: int = 0, at_most: int = OFFSET_MAX) -> None:
    if not _is_int(value) or not at_least <= value <= at_most:
        raise InvalidRequest(f"{field} must be a whole number from {at_least} to {at_most}, not {value!r}", field=field)


class Dispatch(StrEnum):
    """What a topic promises to those who are not there."""

    RELIABLE = "reliable"
    """Every message is kept, acknowledged and, where need be, delivered again."""
    LIVE = "live"
    """A message goes to whoever listens at that moment."""


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much of a partition is kept: what is over any one of these may go. `None` sets no bound."""

    age_ms: int | None = None
    bytes: int | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        _check_bound("retention.age_ms", self.age_ms)
        _check_bound("retention.bytes", self.bytes)
        _check_bound("retention.count", self.count)


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What may be changed on a living topic. `None` means: as the broker's own `Limits` say.

    A value that cannot be is refused with `InvalidRequest`; its `field` detail names the field.
    """

    retention: Retention = Retention()
    segment_bytes_max: int | None = None
    segment_age_ms_max: int | None = None
    payload_bytes_max: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.retention, Retention):
            raise InvalidRequest(f"retention must be a Retention, not {self.retention!r}", field="retention")
        _check_bound(
            "segment_bytes_max", self.segment_bytes_max, at_least=SEGMENT_BYTES_FLOOR, at_most=SEGMENT_BYTES_CEILING
        )
        _check_bound("segment_age_ms_max", self.segment_age_ms_max)
        _check_bound(
            "payload_bytes_max", self.payload_bytes_max, at_most=self.segment_bytes_max or SEGMENT_BYTES_CEILING
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic, as the catalog had it when asked."""

    topic_uid: int
    """Unique in the catalog and never given twice: a topic that was deleted and made again has another."""
    name: TopicName
    partitions: int
    dispatch: Dispatch
    created_ms: int
    settings: TopicSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """One producer of one topic."""

    producer_id: int
    name: str
    created_ms: int


class ProducerMark(msgspec.Struct, frozen=True, kw_only=True):
    """The last request of one producer that the log holds, and where it lies."""

    request_id: int
    offset: int

    def __post_init__(self) -> None:
        _check_word("request_id", self.request_id)
        _check_word("offset", self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerCheckpoint:
    """Who had last written what, in the part of a log before `next_offset`. The rest is read from the log itself."""

    next_offset: Offset
    last: Mapping[int, ProducerMark]

    def __post_init__(self) -> None:
        _check_word("next_offset", self.next_offset)
        for producer_id, mark in self.last.items():
            _check_word("producer_id", producer_id, at_least=1)
            if mark.offset >= self.next_offset:
                raise InvalidRequest(
                    f"a checkpoint of the log before offset {self.next_offset} cannot know of offset {mark.offset}",
                    field="last",
                )
        object.__setattr__(self, "last", MappingProxyType(dict(self.last)))


def check_partitions(name: TopicName, partitions: int) -> None:
    """Raise `InvalidRequest` for a number no topic has, `TopicNotSupported` for a name too long to be partitioned."""
    if not _is_int(partitions) or not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidRequest(
            f"partitions must be a whole number from 1 to {PARTITIONS_MAX}, not {partitions!r}", field="partitions"
        )
    name.partition(partitions - 1, partitions)


def check_producer_name(name: str) -> None:
    """Raise `InvalidRequest` for a name that the envelope or the catalog cannot hold."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"producer name {name!r} is not valid Unicode", field="name") from None
    if not 1 <= length <= PRODUCER_NAME_BYTES_MAX or "\0" in name:
        raise InvalidRequest(
            f"a producer name has 1 to {PRODUCER_NAME_BYTES_MAX} bytes of UTF-8, none of them zero, not {length}",
            field="name",
        )


def settings_text(settings: TopicSettings) -> str:
    return msgspec.json.encode(settings).decode()


def stored_settings(text: str) -> TopicSettings:
    """What `settings_text` wrote. Raises `StorageFailed` for anything else, keys of another release included."""
    try:
        return _SETTINGS.decode(text)
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise StorageFailed(f"stored topic settings cannot be read: {error}") from error


def marks_text(last: Mapping[int, ProducerMark]) -> str:
    """In the order of the ids: the same marks are the same text."""
    return msgspec.json.encode([(key, last[key].request_id, last[key].offset) for key in sorted(last)]).decode()


def stored_checkpoint(next_offset: int, marks: str) -> ProducerCheckpoint:
    """What `marks_text` wrote. Raises `StorageFailed` for anything else."""
    try:
        last = {
            producer_id: ProducerMark(request_id=request_id, offset=offset)
            for producer_id, request_id, offset in _MARKS.decode(marks)
        }
        return ProducerCheckpoint(next_offset=Offset(next_offset), last=last)
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise StorageFailed(f"a stored producer checkpoint cannot be read: {error}") from error


_SETTINGS: Final = msgspec.json.Decoder(TopicSettings)
_MARKS: Final = msgspec.json.Decoder(list[tuple[int, int, int]])
