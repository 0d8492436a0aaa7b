"""Durable subscriptions as values: their options, and their cursors.

Each value is checked when it is made, so every instance is valid. No SQL and no files here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Final

import msgspec

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.core.offsets import Offset, OffsetRange
from penstock.storage.catalog.topics import REDELIVERIES_MAX, Exhausted, check_choice, check_integer
from penstock.storage.catalog.topics import check_subscription_name as check_subscription_name

WAIT_MS_MAX: Final = 86_400_000
"""The longest wait before a redelivery: one day, in milliseconds."""

FILTERS_MAX: Final = 16
"""Filters of a subscription: each is tried on every message."""

FILTER_CHARS_MAX: Final = 255
"""The longest filter: as long as a message type."""

SEEKS_MAX: Final = 2**22 - 1
"""The most seeks of a cursor: the count and an offset below 2**40 together fit into a number of 62 bits."""


class SubscriptionKind(StrEnum):
    """The rule that decides which of several consumers gets a message."""

    EXCLUSIVE = "exclusive"
    """A single consumer may join."""
    FAILOVER = "failover"
    """The first consumer gets all messages; when it leaves, the next one does."""
    SHARED = "shared"
    """Any consumer with credit gets a message."""
    KEY_SHARED = "key_shared"
    """Messages with the same key go to the same consumer."""


class SubscriptionOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Options of a subscription.

    An impossible value is refused with `InvalidRequest`; its `field` detail names the field.
    """

    kind: SubscriptionKind
    ack_timeout_ms: int = 30_000
    """The time after which an unacknowledged message is delivered again."""
    backoff_ms: int = 1_000
    """The pause between a failed delivery and the next; it doubles each time, up to `backoff_ms_max`."""
    backoff_ms_max: int = 60_000
    redeliveries: int = 5
    exhausted: Exhausted = Exhausted.DEAD_LETTER
    types: tuple[str, ...] = ()
    """Patterns with `*` and `?`. A message must have a type that matches one of them; without patterns any type will
    do."""
    keys: tuple[str, ...] = ()
    """Patterns with `*` and `?`. A message must have a key that matches one; without patterns any key will do, or
    none."""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, SubscriptionKind)
        check_integer("ack_timeout_ms", self.ack_timeout_ms, at_least=1, at_most=WAIT_MS_MAX)
        check_integer("backoff_ms_max", self.backoff_ms_max, at_most=WAIT_MS_MAX)
        check_integer("backoff_ms", self.backoff_ms, at_most=self.backoff_ms_max)
        check_integer("redeliveries", self.redeliveries, at_most=REDELIVERIES_MAX)
        check_choice("exhausted", self.exhausted, Exhausted)
        _check_filters("types", self.types)
        _check_filters("keys", self.keys)


def _check_filters(field: str, globs: object) -> None:
    if not isinstance(globs, tuple) or len(globs) > FILTERS_MAX:
        raise InvalidRequest(f"{field} must be a tuple of at most {FILTERS_MAX} globs, not {globs!r}", field=field)
    for glob in globs:
        if not _is_text(glob) or not 1 <= len(glob) <= FILTER_CHARS_MAX:
            raise InvalidRequest(f"{field}: a glob has 1 to {FILTER_CHARS_MAX} characters, not {glob!r}", field=field)


def _is_text(value: object) -> bool:
    """Return True if a value is a string that can be stored as UTF-8. A Python string with half a surrogate pair
    cannot."""
    return isinstance(value, str) and value == value.encode(errors="replace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSubscription:
    """A durable subscription, as the catalog had it when it was read."""

    subscription_uid: int
    """The number of the subscription: unique in the catalog and never reused."""
    topic_uid: int
    name: str
    options: SubscriptionOptions
    paused: bool
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The progress of a subscription in one partition. Raises `InvalidRequest` if the parts contradict each other."""

    floor: Offset
    """The lowest offset that is not acked."""
    acked: tuple[OffsetRange, ...] = ()
    """Acked ranges above the floor: in order, none empty, and with an unacked offset before each of them."""
    failures: Mapping[int, int] = field(default_factory=dict)
    """The number of failed deliveries, by offset; only unacked offsets with at least one failure are present."""
    seeks: int = field(default=0, compare=False)
    """The number of seeks so far. Two cursors that differ only in this are equal. With the number, a failure after a
    seek can be told from the same failure before it."""
    reported_ms: int = field(default=0, compare=False)
    """The time of the last position report by an external reader of the files, in Unix milliseconds; 0 without one."""

    def __post_init__(self) -> None:
        check_integer("floor", self.floor)
        check_integer("seeks", self.seeks, at_most=SEEKS_MAX)
        check_integer("reported_ms", self.reported_ms)
        self._check_acked()
        self._check_failures()
        object.__setattr__(self, "failures", MappingProxyType(dict(self.failures)))

    def _check_acked(self) -> None:
        for before, span in pairwise(chain([OffsetRange(self.floor, self.floor)], self.acked)):
            if span.start <= before.stop or span.stop <= span.start:
                raise InvalidRequest(f"acked: {span} is empty, or not apart from {before} before it", field="acked")

    def _check_failures(self) -> None:
        starts = [span.start for span in self.acked]
        for offset, count in self.failures.items():
            check_integer("failures", count, at_least=1)
            check_integer("failures", offset, at_least=self.floor)
            count_before = bisect_right(starts, offset)
            if count_before and offset < self.acked[count_before - 1].stop:
                raise InvalidRequest(f"failures: offset {offset} is done", field="failures")


def options_text(options: SubscriptionOptions) -> str:
    return msgspec.json.encode(options).decode()


@lru_cache(maxsize=256)
def parse_options(text: str) -> SubscriptionOptions:
    """Parse the text of `options_text`. Equal texts give the same object, so that many subscriptions share one.

    Raises `StorageFailed` for any other text, also for one with options of another release.
    """
    try:
        return _OPTIONS.decode(text)
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise StorageFailed(f"stored subscription options cannot be read: {error}") from error


class _CursorState(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The stored form of a cursor without its floor: `[start, stop]` pairs and `[offset, count]` pairs."""

    acked: tuple[tuple[int, int], ...] = ()
    failures: tuple[tuple[int, int], ...] = ()
    seeks: int = 0
    reported_ms: int = 0


def cursor_text(cursor: Cursor) -> str:
    """Encode a cursor without its floor, in the order of offsets, so that equal cursors have equal texts."""
    acked = tuple((int(done.start), int(done.stop)) for done in cursor.acked)
    failures = tuple(sorted(cursor.failures.items()))
    return msgspec.json.encode(_CursorState(acked, failures, cursor.seeks, cursor.reported_ms)).decode()


def parse_cursor(floor: int, text: str) -> Cursor:
    """Parse the text of `cursor_text`. Raises `StorageFailed` for any other text."""
    try:
        state = _STATE.decode(text)
        acked = tuple(OffsetRange.of(start, stop) for start, stop in state.acked)
        failures = dict(state.failures)
        if len(failures) < len(state.failures):
            raise InvalidRequest("failures: an offset is there twice", field="failures")
        return Cursor(
            floor=Offset(floor), acked=acked, failures=failures, seeks=state.seeks, reported_ms=state.reported_ms
        )
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise StorageFailed(f"a stored cursor cannot be read: {error}") from error


_OPTIONS: Final = msgspec.json.Decoder(SubscriptionOptions)
_STATE: Final = msgspec.json.Decoder(_CursorState)
