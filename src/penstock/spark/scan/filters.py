"""Filters that are applied where the log is read: by topic, partition, offset, time, id and type.

Times and ids rise with the offset, so conditions on them become ranges of offsets, found by binary search. Other rows
of a block are dropped before any payload is copied. Spark is not imported here: its filters are known by the names of
their classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import numpy as np

from penstock.core.ids import ID_BYTES, high_word, ticks_of_unix_ms
from penstock.record import layout as at
from penstock.record.block import Block, Bools
from penstock.spark.scan.columns import NAMES, NULLABLE
from penstock.storage.base.disk import Disk
from penstock.storage.log.log_view import LogView, find_id

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US_PER_MS: Final = 1000
_MS_MAX: Final = 2**50
"""The latest time in milliseconds that is compared, in about the year 37,000: no id has a later one."""
_ID_STOP: Final = 1 << 128
_WORD: Final = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class NumberFilter:
    """A condition on whole numbers: from `start` on and below `stop`; None stands for no bound. If `among` is set, the
    number must also be one of those."""

    start: int | None = None
    stop: int | None = None
    among: frozenset[int] | None = None

    def __contains__(self, value: int) -> bool:
        return (
            (self.start is None or value >= self.start)
            and (self.stop is None or value < self.stop)
            and (self.among is None or value in self.among)
        )

    def at_least(self, value: int) -> NumberFilter:
        return replace(self, start=value if self.start is None else max(self.start, value))

    def below(self, value: int) -> NumberFilter:
        return replace(self, stop=value if self.stop is None else min(self.stop, value))

    def one_of(self, values: Iterable[int]) -> NumberFilter:
        wanted = frozenset(values)
        among = wanted if self.among is None else self.among & wanted
        if not among:
            return NumberFilter(0, 0, among)
        return replace(self, among=among).at_least(min(among)).below(max(among) + 1)

    def clip(self, start: int, stop: int) -> tuple[int, int]:
        """Return the part of `[start, stop)` within the bounds, as `(start, stop)`; both are equal if it is empty."""
        low = start if self.start is None else max(start, self.start)
        return low, max(low, stop if self.stop is None else min(stop, self.stop))

    def mask(self, values: Any) -> Bools | None:
        """Return a boolean mask of the values that pass; None if there is no condition, so that all pass."""
        if self == ANY_NUMBER:
            return None
        wanted: Bools = np.ones(len(values), dtype=np.bool_)
        if self.start is not None:
            wanted &= values >= self.start
        if self.stop is not None:
            wanted &= values < self.stop
        if self.among is not None and len(self.among) != 1:
            wanted &= np.isin(values, np.array(sorted(self.among), dtype=np.int64))
        return wanted


@dataclass(frozen=True, slots=True)
class TextFilter:
    """A condition on texts: begins with each of the prefixes and, if `among` is set, is one of those."""

    among: frozenset[str] | None = None
    prefixes: tuple[str, ...] = ()

    def __contains__(self, text: str) -> bool:
        return (self.among is None or text in self.among) and all(map(text.startswith, self.prefixes))

    def one_of(self, values: Iterable[str]) -> TextFilter:
        wanted = frozenset(values)
        return replace(self, among=wanted if self.among is None else self.among & wanted)

    def starting(self, prefix: str) -> TextFilter:
        return replace(self, prefixes=(*self.prefixes, prefix))


ANY_NUMBER: Final = NumberFilter()
ANY_TEXT: Final = TextFilter()


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that must all hold. Times are in microseconds, as in Spark; ids are numbers of 128 bits."""

    topic: TextFilter = field(default=ANY_TEXT)
    partition: NumberFilter = field(default=ANY_NUMBER)
    offset: NumberFilter = field(default=ANY_NUMBER)
    timestamp: NumberFilter = field(default=ANY_NUMBER)
    id: NumberFilter = field(default=ANY_NUMBER)
    type: TextFilter = field(default=ANY_TEXT)

    def matches_partition(self, topic: str, partition: int) -> bool:
        return topic in self.topic and partition in self.partition

    def clip(self, disk: Disk, view: LogView, start: int, stop: int) -> tuple[int, int]:
        """Return the part of `[start, stop)` that the conditions on offset, time and id leave, as `(start, stop)`; both
        are equal if it is empty.

        Each bound on time or id takes a binary search with a few reads of one record, however long the log is.
        """
        start, stop = self.offset.clip(start, stop)
        bounds = [
            (_time_id(self.timestamp.start), _time_id(self.timestamp.stop)),
            (self.id.start, self.id.stop),
        ]
        for low, high in bounds:
            if low is not None and start < stop:
                start = max(start, _offset_of(disk, view, low))
            if high is not None and start < stop:
                stop = min(stop, _offset_of(disk, view, high))
        return start, max(start, stop)

    def select_rows(self, block: Block) -> Block:
        """Return the records of a block that pass. Topic and partition are not checked: the caller has done that."""
        if self == NO_FILTERS:
            return block
        block = _masked(block, self.offset.mask(block.columns[:, at.OFFSET]))
        block = _masked(block, self.timestamp.mask(block.columns[:, at.PUBLISH_TIME] * _US_PER_MS))
        block = _masked(block, _id_mask(block, self.id))
        return block if self.type == ANY_TEXT else block.filtered(block.accepted(self.type.__contains__))


NO_FILTERS: Final = Filters()


def _masked(block: Block, wanted: Bools | None) -> Block:
    return block if wanted is None else block.filtered(wanted)


def _time_id(time_us: int | None) -> int | None:
    """Return the lowest id of the first whole millisecond at or after a time, as a number of 128 bits; None for
    None."""
    if time_us is None:
        return None
    ms = min(max(-(-time_us // _US_PER_MS), 0), _MS_MAX)
    return min(high_word(ticks_of_unix_ms(ms)) << 64, _ID_STOP)


def _offset_of(disk: Disk, view: LogView, id_number: int) -> int:
    if id_number >= _ID_STOP:
        return int(view.next_offset)
    return int(find_id(disk, view, id_number >> 64, id_number & _WORD))


def _id_mask(block: Block, wanted: NumberFilter) -> Bools | None:
    if wanted == ANY_NUMBER:
        return None
    if wanted.among is not None:
        among = {number.to_bytes(ID_BYTES) for number in wanted.among}
        return np.array([block.id(row) in among for row in range(len(block))], dtype=np.bool_)
    high, low = (block.columns[:, column].astype(np.uint64) for column in (at.ID_HIGH, at.ID_LOW))
    mask: Bools = np.ones(len(block), dtype=np.bool_)
    if wanted.start is not None:
        mask &= ~_is_below(high, low, wanted.start)
    if wanted.stop is not None:
        mask &= _is_below(high, low, wanted.stop)
    return mask


def _is_below(high: Any, low: Any, bound: int) -> Any:
    if bound >= _ID_STOP:
        return np.ones(len(high), dtype=np.bool_)
    word, rest = np.uint64(bound >> 64), np.uint64(bound & _WORD)
    return (high < word) | ((high == word) & (low < rest))


# ---- Spark's filters


def translate(filters: Sequence[Any], done: Filters = NO_FILTERS) -> tuple[Filters, list[Any]]:
    """Split Spark's filters of a query by who applies them.

    Return `done` with those added that Penstock applies exactly, and a list of the others, which Spark must apply.
    """
    left = []
    for one in filters:
        less = _with_spark_filter(done, one)
        if less is None:
            left.append(one)
        else:
            done = less
    return done, left


def _with_spark_filter(filters: Filters, one: Any) -> Filters | None:
    """Return the filters with one of Spark's added; None if it cannot be applied here."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1:
        return None
    return with_condition(filters, path[0].lower(), type(one).__name__, getattr(one, "value", None))


def with_condition(filters: Filters, column: str, kind: str, value: Any) -> Filters | None:
    """Return the filters with one more condition; None if it cannot be applied to the log.

    `kind` is the name of Spark's class for it, such as `GreaterThan` or `In`.
    """
    if kind == "IsNotNull":
        return filters if column in FILTERED or column in _NEVER_NULL else None
    narrow = _COLUMN_KINDS.get(column)
    less = None if narrow is None else narrow(getattr(filters, column), kind, value)
    return None if less is None else replace(filters, **{column: less})


_NEVER_NULL: Final = frozenset(NAMES) - NULLABLE


def _values(kind: str, value: Any) -> list[Any]:
    return list(value) if kind == "In" else [value]


_T = TypeVar("_T")


def _read(values: Iterable[Any], parse: Callable[[Any], _T | None]) -> list[_T] | None:
    """Return all values parsed; None if one is not of the column's type. A null in a list never equals anything."""
    found = []
    for value in values:
        if value is None:
            continue
        parsed = parse(value)
        if parsed is None:
            return None
        found.append(parsed)
    return found


_EQUAL: Final = ("EqualTo", "EqualNullSafe", "In")


def _text(now: TextFilter, kind: str, value: Any) -> TextFilter | None:
    if kind == "StringStartsWith" and isinstance(value, str):
        return now.starting(value)
    if kind not in _EQUAL or (kind != "In" and value is None):
        return None
    wanted = _read(_values(kind, value), lambda one: one if isinstance(one, str) else None)
    return None if wanted is None else now.one_of(wanted)


def _number(now: NumberFilter, kind: str, value: Any, parse: Callable[[Any], int | None]) -> NumberFilter | None:
    if kind in _EQUAL:
        if kind != "In" and value is None:
            return None
        wanted = _read(_values(kind, value), parse)
        return None if wanted is None else now.one_of(wanted)
    bound = None if value is None else parse(value)
    narrow = _BOUNDS.get(kind)
    return None if bound is None or narrow is None else narrow(now, bound)


_BOUNDS: Final[Mapping[str, Callable[[NumberFilter, int], NumberFilter]]] = {
    "GreaterThan": lambda now, bound: now.at_least(bound + 1),
    "GreaterThanOrEqual": NumberFilter.at_least,
    "LessThan": NumberFilter.below,
    "LessThanOrEqual": lambda now, bound: now.below(bound + 1),
}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


def _id(now: NumberFilter, kind: str, value: Any) -> NumberFilter | None:
    """Return the condition on ids with one more added; None if it cannot be applied.

    Bytes of any length are compared as in Spark. Only bytes of an id's length, sixteen, can be equal to one.
    """
    if kind in _EQUAL:
        if kind != "In" and value is None:
            return None
        wanted = _read(_values(kind, value), lambda one: bytes(one) if isinstance(one, bytes | bytearray) else None)
        if wanted is None:
            return None
        return now.one_of(int.from_bytes(one) for one in wanted if len(one) == ID_BYTES)
    if not isinstance(value, bytes | bytearray):
        return None
    # The next bytes in order after some bytes are the same with a zero byte appended.
    after = bytes(value) + (b"\0" if kind in ("GreaterThan", "LessThanOrEqual") else b"")
    bound = int.from_bytes(after[:ID_BYTES].ljust(ID_BYTES, b"\0")) + (len(after) > ID_BYTES)
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return now.at_least(bound)
    return now.below(bound) if kind in ("LessThan", "LessThanOrEqual") else None


_COLUMN_KINDS: Final[Mapping[str, Callable[[Any, str, Any], Any]]] = {
    "topic": _text,
    "type": _text,
    "partition": lambda now, kind, value: _number(now, kind, value, _whole),
    "offset": lambda now, kind, value: _number(now, kind, value, _whole),
    "timestamp": lambda now, kind, value: _number(now, kind, value, _microseconds),
    "id": _id,
}

FILTERED: Final = tuple(_COLUMN_KINDS)
"""The columns that can be filtered by."""
