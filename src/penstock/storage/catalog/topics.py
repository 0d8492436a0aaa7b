"""Topics, their settings, producers and producers' last requests, as values.

Each value is checked when it is made, so every instance is valid. No SQL and no files here.
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
"""The largest number of a signed 64-bit column, in SQL, in Arrow and in Spark."""


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_optional_integer(field: str, value: int | None, *, at_least: int = 1, at_most: int = INT64_MAX) -> None:
    """Check an integer as `check_integer` does; `None`, which means no bound, passes."""
    if value is not None:
        check_integer(field, value, at_least=at_least, at_most=at_most)


def check_integer(field: str, value: int, *, at_least: int = 0, at_most: int = OFFSET_MAX) -> None:
    """Raise `InvalidRequest`, with the field's name, unless the value is an integer from `at_least` to `at_most`."""
    if not _is_int(value) or not at_least <= value <= at_most:
        raise InvalidRequest(f"{field} must be a whole number from {at_least} to {at_most}, not {value!r}", field=field)


def check_choice(field: str, value: object, kind: type[StrEnum]) -> None:
    """Raise `InvalidRequest`, with the field's name, for anything but a member of `kind`."""
    if not isinstance(value, kind):
        raise InvalidRequest(f"{field} must be one of {', '.join(kind)}, not {value!r}", field=field)


class Dispatch(StrEnum):
    """The promise of a topic to consumers that are not connected."""

    RELIABLE = "reliable"
    """Every message is stored, and redelivered until it is acknowledged."""
    LIVE = "live"
    """A message goes only to those who are subscribed at that moment; it is not stored."""


class SchemaPolicy(StrEnum):
    """The treatment of a message that violates the topic's schema."""

    NONE = "none"
    """Messages are not checked."""
    WARN = "warn"
    """The message is accepted and logged."""
    ENFORCE = "enforce"
    """The message is refused."""


class Exhausted(StrEnum):
    """The treatment of a message after its last redelivery has failed."""

    DEAD_LETTER = "dead_letter"
    """The message goes to the dead letter topic, and counts as acked."""
    BLOCK = "block"
    """Delivery in the partition stops at the message until an operator skips or retries it."""
    DROP = "drop"
    """The message counts as acked, and is not delivered again."""


TOPIC_SUBJECTS_MAX: Final = 16
"""The most subjects of one topic: every kind of message in it may have one."""

REDELIVERIES_MAX: Final = 1_000
"""The most redeliveries of a message: with a minute between two, most of a day. `Exhausted.BLOCK` serves longer
waits."""


SUBSCRIPTION_NAME_CHARS_MAX: Final = 128
"""The longest subscription name: it is for people, in lists and in metric labels."""

_SUBSCRIPTION_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)

KEEP_FOR_MAX: Final = 16
"""The most subscriptions that one topic's retention waits for: each is looked up once a minute."""


def check_subscription_name(name: str, field: str = "subscription") -> None:
    """Raise `InvalidRequest` for an invalid subscription name."""
    if len(name) > SUBSCRIPTION_NAME_CHARS_MAX or not _SUBSCRIPTION_NAME.fullmatch(name):
        raise InvalidRequest(
            f"a subscription's name has 1 to {SUBSCRIPTION_NAME_CHARS_MAX} letters, digits, '.', '_' and '-', a letter"
            f" or digit first, not {name[: SUBSCRIPTION_NAME_CHARS_MAX + 1]!r}",
            field=field,
        )


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Bounds of the messages kept in a partition. Messages beyond any one bound may be dropped; `None` sets no
    bound."""

    age_ms: int | None = None
    bytes: int | None = None
    count: int | None = None
    keep_for: tuple[str, ...] = ()
    """Subscriptions whose unacknowledged messages stay, even if the bounds allow to drop them.

    Until a subscription of each of these names exists, all messages stay.
    """

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
    """Settings that can be changed on an existing topic. For a field that is `None`, the broker's own `Limits` apply.

    An impossible value raises `InvalidRequest`; its `field` detail names the field.
    """

    retention: Retention = Retention()
    segment_bytes_max: int | None = None
    segment_age_ms_max: int | None = None
    payload_bytes_max: int | None = None
    rate_max: int | None = None
    """Messages a second that may be published."""
    schema_policy: SchemaPolicy | None = None
    schema_subjects: tuple[str, ...] | None = None
    """Subjects of which every message must name a version; by default `default_subject` of the topic."""
    schema_payloads: bool | None = None
    """True if payloads are validated against the version they name."""
    schema_default: int | str | None = None
    """The version that counts for messages that name none: a version number of the first subject, or `latest`."""
    schema_deprecated: bool | None = None
    """False if deprecated versions may not be named; they may by default."""
    redeliveries: int | None = None
    """The number of redeliveries before `exhausted` applies, for subscriptions that set none."""
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
    """Return `settings` with each unset field taken from `defaults`. Retention is taken as a whole, or not at all.

    A live topic takes no schema settings from `defaults`, because it does not enforce schemas. Raises `InvalidRequest`
    if the result contradicts itself.
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
    """A topic, as the catalog had it when it was read."""

    topic_uid: int
    """The number of the topic: unique and never reused, so a topic deleted and created again has another."""
    name: TopicName
    partitions: int
    dispatch: Dispatch
    created_ms: int
    settings: TopicSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProducer:
    """A producer of one topic."""

    producer_id: int
    name: str
    created_ms: int


class LogEnd(NamedTuple):
    """The offsets `[first_offset, next_offset)` that a partition's log holds, and the id of its newest record."""

    first_offset: int
    next_offset: int
    last_id: bytes


class RequestRun(NamedTuple):
    """`count` consecutive requests of one producer, from `request_id` on, whose messages have consecutive offsets from
    `offset` on."""

    request_id: int
    offset: int
    count: int  # type: ignore[assignment]  # the field hides `tuple.count`


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerCheckpoint:
    """The last requests of the producers whose messages have offsets below `next_offset`. Later requests are read from
    the log itself."""

    next_offset: Offset
    runs: Mapping[int, tuple[RequestRun, ...]]
    """Runs by producer number, in the order of their offsets."""

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
    """Raise `InvalidRequest` for an impossible number of partitions, `TopicNotSupported` for a name too long for it."""
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
    """Parse the text of `settings_text`. Equal texts give the same object, so that many topics share one.

    Raises `StorageFailed` for any other text, also for one with settings of another release.
    """
    try:
        return _SETTINGS.decode(text)
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise StorageFailed(f"stored topic settings cannot be read: {error}") from error


def runs_text(runs: Mapping[int, tuple[RequestRun, ...]]) -> str:
    """Encode runs in the order of producer numbers, so that equal runs have equal texts."""
    return msgspec.json.encode([(producer_id, runs[producer_id]) for producer_id in sorted(runs)]).decode()


def parse_checkpoint(next_offset: int, text: str) -> ProducerCheckpoint:
    """Parse the text of `runs_text`. Raises `StorageFailed` for any other text."""
    try:
        return ProducerCheckpoint(next_offset=Offset(next_offset), runs=dict(_RUNS.decode(text)))
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise StorageFailed(f"a stored producer checkpoint cannot be read: {error}") from error


_SETTINGS: Final = msgspec.json.Decoder(TopicSettings)
_RUNS: Final = msgspec.json.Decoder(list[tuple[int, tuple[RequestRun, ...]]])
