"""The summary of a scanned range of a partition, and the sum of two neighbouring ranges.

Addition is associative: however a log is cut into ranges, the sum is the same, findings at the seams included. A
summary does not grow with the number of records: lists of findings keep the first ones and count the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from penstock.core.errors import InvalidRequest
from penstock.spark.jobs.audit.scan_range import IndexFault, LossKind, LostOffsets
from penstock.spark.jobs.histogram import NO_VALUES, Histogram, add_counts

SAMPLES_MAX: Final = 1000
"""Most findings of one kind that are kept for a partition; further ones are only counted. So a log full of damage does
not fill the driver's memory."""
PRODUCERS_MAX: Final = 100_000
"""Most producers of one partition whose request numbers are checked; of more, those with the lowest ids."""

_WORD: Final = 2**64 - 1
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Sample(Generic[_Item]):
    """The first items of many, at most `SAMPLES_MAX`, and the count of all. A sum has the left items first."""

    first: tuple[_Item, ...] = ()
    count: int = 0

    def __add__(self, other: Sample[_Item]) -> Sample[_Item]:
        if not self.count or not other.count:
            return self if self.count else other
        return Sample((self.first + other.first)[:SAMPLES_MAX], self.count + other.count)


@dataclass(frozen=True, slots=True)
class Losses:
    """The lost offsets of a range. Adjacent losses with the same reason are joined into one run. `first` has the first
    runs, `last` the last one, `runs` their number, `records` the lost offsets by kind."""

    first: tuple[LostOffsets, ...] = ()
    last: LostOffsets | None = None
    runs: int = 0
    records: Mapping[LossKind, int] = field(default_factory=dict)

    @classmethod
    def of(cls, lost: LostOffsets) -> Losses:
        return cls((lost,), lost, 1, {lost.kind: len(lost)})

    def __add__(self, other: Losses) -> Losses:
        if self.last is None or other.last is None:
            return self if self.last is not None else other
        records = add_counts(self.records, other.records)
        if not _is_adjacent(self.last, other.first[0]):
            return Losses((self.first + other.first)[:SAMPLES_MAX], other.last, self.runs + other.runs, records)
        seam = _join(self.last, other.first[0])
        last = seam if other.runs == 1 else other.last
        first = self.first
        if self.runs <= SAMPLES_MAX:
            first = (*first[:-1], seam, *other.first[1:])[:SAMPLES_MAX]
        return Losses(first, last, self.runs + other.runs - 1, records)


def _is_adjacent(left: LostOffsets, right: LostOffsets) -> bool:
    alike = (left.kind, left.base, left.reason) == (right.kind, right.base, right.reason)
    return alike and left.stop == right.start


def _join(left: LostOffsets, right: LostOffsets) -> LostOffsets:
    return replace(left, stop=right.stop, end=right.end)


@dataclass(frozen=True, slots=True)
class Disorder:
    """A record whose id is not greater than the one before it."""

    offset: int
    id: bytes
    before: bytes

    @property
    def is_duplicate(self) -> bool:
        return self.id == self.before


@dataclass(frozen=True, slots=True)
class Requests:
    """The request numbers of one producer in a range of a partition, in the order of offsets.

    `breaks` counts the numbers that are not greater than the one before. If it is 0, no number can occur twice.
    """

    first: int
    last: int
    count: int
    breaks: int = 0

    def __add__(self, other: Requests) -> Requests:
        breaks = self.breaks + other.breaks + (other.first <= self.last)
        return Requests(self.first, other.last, self.count + other.count, breaks)


@dataclass(frozen=True, slots=True)
class Nonconforming:
    """A payload that does not conform to its schema."""

    offset: int
    schema_id: int
    schema_version: int
    reason: str


@dataclass(frozen=True, slots=True)
class Digest:
    """A count of messages and sums of their hashes, which do not depend on the order of the messages. The module
    `digests` defines the hashes."""

    count: int = 0
    places: int = 0
    """Sum over ids and offsets."""
    fields: int = 0
    """Sum over all fields except the payloads."""
    plain: int = 0
    """Sum over ids, offsets and payloads of messages that name no schema: an archive always keeps these payloads."""
    typed: int = 0
    """Sum over ids, offsets and payloads of messages that name a schema."""
    named: int = 0
    """Number of messages that name a schema."""
    in_bad_table: int = 0
    """Number of the messages in `named` that are rows of the bad-rows table, which always keeps payloads."""
    without_payload: int = 0
    """Number of the messages in `named` that are in the main table without a payload: columns may have its values."""
    payload_lost: int = 0
    """Number of all other messages without a payload: these payloads are lost."""

    @property
    def contents(self) -> int:
        """Sum of the hashes over id, offset and payload of all messages, modulo 2**64."""
        return (self.plain + self.typed) & _WORD

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            self.count + other.count,
            (self.places + other.places) & _WORD,
            (self.fields + other.fields) & _WORD,
            (self.plain + other.plain) & _WORD,
            (self.typed + other.typed) & _WORD,
            self.named + other.named,
            self.in_bad_table + other.in_bad_table,
            self.without_payload + other.without_payload,
            self.payload_lost + other.payload_lost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """The summary of the scanned offsets `[start, stop)` of one partition."""

    start: int
    stop: int
    records: int = 0
    record_bytes: int = 0
    """Bytes of the records in the segments."""
    payload_bytes: int = 0
    first_offset: int = -1
    """Offset of the first readable record; -1 if there is none."""
    first_id: bytes = b""
    last_id: bytes = b""
    first_ms: int | None = None
    last_ms: int | None = None
    sizes: Histogram = NO_VALUES
    latency: Histogram = NO_VALUES
    """Times from publishing a message to committing it to the archive, in milliseconds."""
    volume: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Number and bytes of messages, by the number of the time span (see `TimeSpans`) in which they were published."""
    losses: Losses = field(default_factory=Losses)
    disorder: Sample[Disorder] = field(default_factory=Sample)
    index_faults: Mapping[int, IndexFault] = field(default_factory=dict)
    requests: Mapping[int, Requests] = field(default_factory=dict)
    producers_left_out: bool = False
    schemas: Mapping[tuple[int, int], int] = field(default_factory=dict)
    nonconforming: Sample[Nonconforming] = field(default_factory=Sample)
    digests: Mapping[int, Digest] = field(default_factory=dict)
    """Digests of the messages that should be in the archive, by the number of the day since 1970."""

    def __add__(self, other: PartitionSummary) -> PartitionSummary:
        """Return the summary of this range and of `other`, which must begin where this one stops. Raises
        `InvalidRequest` if it does not."""
        if self.stop != other.start:
            raise InvalidRequest(f"offsets [{other.start}, {other.stop}) do not follow [{self.start}, {self.stop})")
        requests = _merged(self.requests, other.requests)
        followed = _lowest_producers(requests)
        return PartitionSummary(
            start=self.start,
            stop=other.stop,
            records=self.records + other.records,
            record_bytes=self.record_bytes + other.record_bytes,
            payload_bytes=self.payload_bytes + other.payload_bytes,
            first_offset=self.first_offset if self.first_id else other.first_offset,
            first_id=self.first_id or other.first_id,
            last_id=other.last_id or self.last_id,
            first_ms=_choose(self.first_ms, other.first_ms, min),
            last_ms=_choose(self.last_ms, other.last_ms, max),
            sizes=self.sizes + other.sizes,
            latency=self.latency + other.latency,
            volume=_merged(self.volume, other.volume, _add_pairs),
            losses=self.losses + other.losses,
            disorder=self.disorder + seam(self, other) + other.disorder,
            index_faults=_merged(self.index_faults, other.index_faults, _add_faults),
            requests=followed,
            producers_left_out=self.producers_left_out or other.producers_left_out or len(followed) < len(requests),
            schemas=add_counts(self.schemas, other.schemas),
            nonconforming=self.nonconforming + other.nonconforming,
            digests=_merged(self.digests, other.digests),
        )


def seam(left: PartitionSummary, right: PartitionSummary) -> Sample[Disorder]:
    """Return the first record of `right` if its id is not greater than that of the last record of `left`; otherwise an
    empty sample."""
    return disorder(left.last_id, right.first_id, right.first_offset)


def disorder(before: bytes, following: bytes, offset: int) -> Sample[Disorder]:
    if not before or not following or following > before:
        return Sample()
    return Sample((Disorder(offset, following, before),), 1)


def _choose(left: int | None, right: int | None, choose: Callable[[int, int], int]) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return choose(left, right)


def _add_pairs(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return left[0] + right[0], left[1] + right[1]


def _add_faults(left: IndexFault, right: IndexFault) -> IndexFault:
    count, header = left.count + right.count, left.header or right.header
    return IndexFault(left.base, min(left.first, right.first), count, header)


def _add(left: Any, right: Any) -> Any:
    return left + right


def _merged(left: Mapping[Any, Any], right: Mapping[Any, Any], add: Callable[[Any, Any], Any] = _add) -> dict[Any, Any]:
    """Return both mappings as one. Values of a key that is in both are combined by `add(left, right)`."""
    merged = dict(left)
    for key, value in right.items():
        merged[key] = add(merged[key], value) if key in merged else value
    return merged


def _lowest_producers(requests: dict[int, Requests]) -> dict[int, Requests]:
    if len(requests) <= PRODUCERS_MAX:
        return requests
    return {producer: requests[producer] for producer in sorted(requests)[:PRODUCERS_MAX]}
