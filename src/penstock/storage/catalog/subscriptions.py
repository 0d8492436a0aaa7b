"""Storage, durable subscriptions as values: what one was made with, and how far it is in each partition.

Each is checked when it is made, so whoever holds one holds a valid one. No SQL and no files come in here.
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
"""A day: whoever needs longer does not want to be asked again."""

FILTERS_MAX: Final = 16
"""Every one of them is tried on every message."""

FILTER_CHARS_MAX: Final = 255
"""As long as a message type."""

SEEKS_MAX: Final = 2**22 - 1
"""Four million times elsewhere: with an offset below 2**40 it makes a number of 62 bits."""


class SubscriptionKind(StrEnum):
    """Who of several consumers gets a message."""

    EXCLUSIVE = "exclusive"
    """There is only one consumer."""
    FAILOVER = "failover"
    """The first; when it goes, the next in line."""
    SHARED = "shared"
    """Whoever has room."""
    KEY_SHARED = "key_shared"
    """The same for the same key."""


class SubscriptionOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a subscription was asked to do.

    A value that cannot be is refused with `InvalidRequest`; its `field` detail names the field.
    """

    kind: SubscriptionKind
    ack_timeout_ms: int = 30_000
    """A message that was not acknowledged by then is delivered again."""
    backoff_ms: int = 1_000
    """Between a failed delivery and the next one; twice as long each time, up to `backoff_ms_max`."""
    backoff_ms_max: int = 60_000
    redeliveries: int = 5
    exhausted: Exhausted = Exhausted.DEAD_LETTER
    types: tuple[str, ...] = ()
    """Globs, one of which a message's type must match; any type if there are none."""
    keys: tuple[str, ...] = ()
    """Globs, one of which a message's key must match; any key, or none, if there are none."""

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
    """Whether it can be stored: half a surrogate pair is a string in Python and nowhere else."""
    return isinstance(value, str) and value == value.encode(errors="replace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One durable subscription, as the catalog had it when asked."""

    subscription_uid: int
    """Unique in the catalog and never given twice."""
    topic_uid: int
    name: str
    options: SubscriptionOptions
    paused: bool
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a subscription is in one partition. Raises `InvalidRequest` if the parts do not go together."""

    floor: Offset
    """Every offset below is done."""
    acked: tuple[OffsetRange, ...] = ()
    """Done above the floor: in order, none of them empty, and between any two, and before the first, something is not
    done."""
    failures: Mapping[int, int] = field(default_factory=dict)
    """How often the delivery of an offset that is not done has failed, where it has."""
    seeks: int = field(default=0, compare=False)
    """How often it was set elsewhere. No part of where it is, but what failed before a seek and fails again after it
    has failed twice."""
    reported_ms: int = field(default=0, compare=False)
    """When somebody who reads the files last said how far that is; 0 if nobody did."""

    def __post_init__(self) -> None:
        check_integer("floor", self.floor)
        check_integer("seeks", self.seeks, at_most=SEEKS_MAX)
        check_integer("reported_ms", self.reported_ms)
        self._check_acked()
        self._check_failures()
        object.__setattr__(self, "failures", MappingProxyType(dict(self.failures)))

    def _check_acked(self) -> None:
        for before, done in pairwise(chain([OffsetRange(self.floor, self.floor)], self.acked)):
            if done.start <= before.stop or done.stop <= done.start:
                raise InvalidRequest(f"acked: {done} is empty, or not apart from {before} before it", field="acked")

    def _check_failures(self) -> None:
        starts = [done.start for done in self.acked]
        for offset, count in self.failures.items():
            check_integer("failures", count, at_least=1)
            check_integer("failures", offset, at_least=self.floor)
            place = bisect_right(starts, offset)
            if place and offset < self.acked[place - 1].stop:
                raise InvalidRequest(f"failures: offset {offset} is done", field="failures")


def options_text(options: SubscriptionOptions) -> str:
    return msgspec.json.encode(options).decode()


@lru_cache(maxsize=256)
def parse_options(text: str) -> SubscriptionOptions:
    """What `options_text` wrote: one value for all subscriptions with the same.

    Raises `StorageFailed` for anything else, keys of another release included.
    """
    try:
        return _OPTIONS.decode(text)
    except (msgspec.MsgspecError, InvalidRequest) as error:
        raise StorageFailed(f"stored subscription options cannot be read: {error}") from error


class _CursorState(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A cursor but for its floor, as it is stored: `[start, stop]` pairs and `[offset, count]` pairs."""

    acked: tuple[tuple[int, int], ...] = ()
    failures: tuple[tuple[int, int], ...] = ()
    seeks: int = 0
    reported_ms: int = 0


def cursor_text(cursor: Cursor) -> str:
    """All of a cursor but its floor, in the order of offsets: the same cursor is the same text."""
    acked = tuple((int(done.start), int(done.stop)) for done in cursor.acked)
    failures = tuple(sorted(cursor.failures.items()))
    return msgspec.json.encode(_CursorState(acked, failures, cursor.seeks, cursor.reported_ms)).decode()


def parse_cursor(floor: int, text: str) -> Cursor:
    """What `cursor_text` wrote. Raises `StorageFailed` for anything else."""
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
