"""Storage, what the catalog holds, as values: topics, their settings, producers and what they wrote last.

Each is checked when it is made, so whoever holds one holds a valid one. No SQL and no files come in here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.core.limits import (
    PARTITIONS_MAX,
    PRODUCER_NAME_BYTES_MAX,
    QUOTED_CHARS_MAX,
    SEGMENT_BYTES_CEILING,
    SEGMENT_BYTES_FLOOR,
)
from penstock.core.names import TopicName
from penstock.core.offsets import OFFSET_MAX, Offset
from penstock.core.schemas import LATEST, SCHEMA_VERSION_MAX, SUBJECT_CHARS_MAX, is_subject

INT64_MAX: Final = 2**63 - 1
"""What a signed 64-bit column holds, in SQL, in Arrow and in Spark."""


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_optional_integer(field: str, value: int | None, *, at_least: int = 1, at_most: int = INT64_MAX) -> None:
    """As `check_integer`; `None` sets no bound and is always right."""
    if value is not None:
        check_integer(field, value, at_least=at_least, at_most=at_most)


def check_integer(field: str, value: int, *, at_least: int = 0, at_most: int = OFFSET_MAX) -> None:
    """Raise `InvalidRequest`, with the field's name, for anything but a whole number within these bounds."""
    if not _is_int(value) or not at_least <= value <= at_most:
        raise InvalidRequest(f"{field} must be a whole number from {at_least} to {at_most}, not {value!r}", field=field)


def check_choice(field: str, value: object, kind: type[StrEnum]) -> None:
    """Raise `InvalidRequest`, with the field's name, for anything but a member of `kind`."""
    if not isinstance(value, kind):
        raise InvalidRequest(f"{field} must be one of {', '.join(kind)}, not {value!r}", field=field)


class Dispatch(StrEnum):
    """What a topic promises to those who are not there."""

    RELIABLE = "reliable"
    """Every message is kept, acknowledged and, where need be, delivered again."""
    LIVE = "live"
    """A message goes to whoever listens at that moment."""


class SchemaPolicy(StrEnum):
    """What happens to a message that the topic's schema does not allow."""

    NONE = "none"
    """Nobody looks."""
    WARN = "warn"
    """It is taken, and said."""
    ENFORCE = "enforce"
    """It is refused."""


class Exhausted(StrEnum):
    """What becomes of a message after its last redelivery has failed."""

    DEAD_LETTER = "dead_letter"
    """It goes to the topic of dead letters, and counts as done."""
    BLOCK = "block"
    """Nothing behind it in its partition is delivered until somebody skips it, or has it tried again."""
    DROP = "drop"
    """It counts as done."""


TOPIC_SUBJECTS_MAX: Final = 16
"""Of one topic: every kind of message in it may have one."""

REDELIVERIES_MAX: Final = 1_000
"""With a minute between two of them, most of a day: whoever needs more wants `Exhausted.BLOCK`."""


SUBSCRIPTION_NAME_CHARS_MAX: Final = 128
"""A name for people, in lists and in metric labels."""

_SUBSCRIPTION_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)

KEEP_FOR_MAX: Final = 16
"""Subscriptions that one topic's retention waits for: each is looked up once a minute."""


def check_subscription_name(name: str, field: str = "subscription") -> None:
    """Raise `InvalidRequest` for a name that no subscription has."""
    if len(name) > SUBSCRIPTION_NAME_CHARS_MAX or not _SUBSCRIPTION_NAME.fullmatch(name):
        raise InvalidRequest(
            f"a subscription's name has 1 to {SUBSCRIPTION_NAME_CHARS_MAX} letters, digits, '.', '_' and '-', a letter"
            f" or digit first, not {name[: SUBSCRIPTION_NAME_CHARS_MAX + 1]!r}",
            field=field,
        )


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much of a partition is kept: what is over any one of these may go. `None` sets no bound."""

    age_ms: int | None = None
    bytes: int | None = None
    count: int | None = None
    keep_for: tuple[str, ...] = ()
    """Subscriptions whose messages stay until they are acknowledged, whatever the bounds say. Until there is a
    subscription of that name, everything stays."""

    def __post_init__(self) -> None:
        _check_kept_for(self.keep_for)
        check_optional_integer("retention.age_ms", self.age_ms)
        check_optional_integer("retention.bytes", self.bytes)
        check_optional_integer("retention.count", self.count)


def _check_kept_for(names: object) -> None:
    if not isinstance(names, tuple) or len(names) > KEEP_FOR_MAX:
        raise InvalidRequest(
            f"retention.keep_for names at most {KEEP_FOR_MAX} subscriptions, unlike {names!r}",
            field="retention.keep_for",
        )
    for name in names:
        check_subscription_name(name, "retention.keep_for")


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What may be changed on a living topic. `None` means: as the broker's own `Limits` say.

    A value that cannot be is refused with `InvalidRequest`; its `field` detail names the field.
    """

    retention: Retention = Retention()
    segment_bytes_max: int | None = None
    segment_age_ms_max: int | None = None
    payload_bytes_max: int | None = None
    rate_max: int | None = None
    """Messages a second that may be published."""
    schema_policy: SchemaPolicy | None = None
    schema_subjects: tuple[str, ...] | None = None
    """Of whose versions every message is to name one; by default `default_subject` of the topic."""
    schema_payloads: bool | None = None
    """Whether payloads are held against the version they name."""
    schema_default: int | str | None = None
    """The version of the first subject that is meant where a message names none: a number, or `latest`."""
    schema_deprecated: bool | None = None
    """Whether a version that is deprecated may still be named; it may, unless somebody says no."""
    redeliveries: int | None = None
    """How often a delivery is repeated, and then `exhausted`: for subscriptions that say nothing else."""
    exhausted: Exhausted | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.retention, Retention):
            raise InvalidRequest(f"retention must be a Retention, not {self.retention!r}", field="retention")
        check_optional_integer(
            "segment_bytes_max", self.segment_bytes_max, at_least=SEGMENT_BYTES_FLOOR, at_most=SEGMENT_BYTES_CEILING
        )
        check_optional_integer("segment_age_ms_max", self.segment_age_ms_max)
        check_optional_integer(
            "payload_bytes_max", self.payload_bytes_max, at_most=self.segment_bytes_max or SEGMENT_BYTES_CEILING
        )
        check_optional_integer("rate_max", self.rate_max)
        check_optional_integer("redeliveries", self.redeliveries, at_least=0, at_most=REDELIVERIES_MAX)
        if self.schema_policy is not None:
            check_choice("schema_policy", self.schema_policy, SchemaPolicy)
        _check_subjects(self.schema_subjects)
        _check_default(self.schema_default)
        if self.exhausted is not None:
            check_choice("exhausted", self.exhausted, Exhausted)


def _check_subjects(subjects: tuple[str, ...] | None) -> None:
    if subjects is not None and not 1 <= len(subjects) <= TOPIC_SUBJECTS_MAX:
        raise InvalidRequest(
            f"a topic has 1 to {TOPIC_SUBJECTS_MAX} subjects, not {len(subjects)}", field="schema_subjects"
        )
    for subject in subjects or ():
        if not is_subject(subject):
            raise InvalidRequest(
                f"a subject has 1 to {SUBJECT_CHARS_MAX} characters, none of them a control character, unlike"
                f" {subject[:QUOTED_CHARS_MAX]!r}",
                field="schema_subjects",
            )


def _check_default(version: int | str | None) -> None:
    if isinstance(version, str) and version != LATEST:
        raise InvalidRequest(
            f"schema_default is a version or {LATEST!r}, not {version[:QUOTED_CHARS_MAX]!r}", field="schema_default"
        )
    if not isinstance(version, str):
        check_optional_integer("schema_default", version, at_most=SCHEMA_VERSION_MAX)


_NOTHING_SET: Final = TopicSettings()


def merged_settings(settings: TopicSettings, defaults: TopicSettings, dispatch: Dispatch) -> TopicSettings:
    """`settings`, with what `defaults` have for every field that was not given; retention is given as a whole.

    A live topic takes nothing about schemas: it could not keep to it. Raises `InvalidRequest` if the two do not go
    together.
    """
    fields: dict[str, Any] = {}
    for name in TopicSettings.__struct_fields__:
        value = getattr(settings, name)
        if value == getattr(_NOTHING_SET, name) and _inherits(name, dispatch):
            value = getattr(defaults, name)
        fields[name] = value
    return TopicSettings(**fields)


def _inherits(field: str, dispatch: Dispatch) -> bool:
    return dispatch is not Dispatch.LIVE or not field.startswith("schema_")


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


class LogEnd(NamedTuple):
    """How far the log of one partition went: it holds `[first_offset, next_offset)`, and gave no id after `last_id`."""

    first_offset: int
    next_offset: int
    last_id: bytes


class RequestRun(NamedTuple):
    """`count` consecutive requests of one producer at as many consecutive offsets."""

    request_id: int
    offset: int
    count: int  # type: ignore[assignment]  # how many there are, not how often something is in it


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerCheckpoint:
    """Who had written what lately, in the part of a log before `next_offset`. The rest is read from the log itself."""

    next_offset: Offset
    runs: Mapping[int, tuple[RequestRun, ...]]
    """Of every producer, by its number, in the order of their offsets."""

    def __post_init__(self) -> None:
        check_integer("next_offset", self.next_offset)
        for producer_id, runs in self.runs.items():
            check_integer("producer_id", producer_id, at_least=1)
            _check_runs(runs, self.next_offset)
        object.__setattr__(self, "runs", MappingProxyType(dict(self.runs)))


def _check_runs(runs: tuple[RequestRun, ...], next_offset: int) -> None:
    stop = 0
    for run in runs:
        if run.request_id < 1 or run.count < 1 or run.offset < stop or run.request_id > INT64_MAX - run.count + 1:
            raise InvalidRequest(f"{run} is no run of requests, or not behind offset {stop}", field="runs")
        stop = run.offset + run.count
    if stop > next_offset:
        raise InvalidRequest(
            f"a checkpoint of the log before offset {next_offset} cannot know of offset {stop - 1}", field="runs"
        )


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


@lru_cache(maxsize=256)
def parse_settings(text: str) -> TopicSettings:
    """What `settings_text` wrote: one value for all topics with the same.

    Raises `StorageFailed` for anything else, keys of another release included.
    """
    try:
        return _SETTINGS.decode(text)
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise StorageFailed(f"stored topic settings cannot be read: {error}") from error


def runs_text(runs: Mapping[int, tuple[RequestRun, ...]]) -> str:
    """In the order of the ids: the same runs are the same text."""
    return msgspec.json.encode([(producer_id, runs[producer_id]) for producer_id in sorted(runs)]).decode()


def parse_checkpoint(next_offset: int, text: str) -> ProducerCheckpoint:
    """What `runs_text` wrote. Raises `StorageFailed` for anything else."""
    try:
        return ProducerCheckpoint(next_offset=Offset(next_offset), runs=dict(_RUNS.decode(text)))
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise StorageFailed(f"a stored producer checkpoint cannot be read: {error}") from error


_SETTINGS: Final = msgspec.json.Decoder(TopicSettings)
_RUNS: Final = msgspec.json.Decoder(list[tuple[int, tuple[RequestRun, ...]]])
