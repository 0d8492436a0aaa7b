"""The worker's part of `stats`: the messages of slices, grouped and added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.core.errors import InvalidRequest, TopicNotSupported
from penstock.record import layout as at
from penstock.record.block import Block, Longs
from penstock.record.kernels import stream_kernels
from penstock.spark.jobs.audit.scan_range import LostOffsets, scan_range
from penstock.spark.jobs.audit.slice_audit import join_slices
from penstock.spark.jobs.histogram import Histogram
from penstock.spark.scan.slices import Slice, open_data, view_within

HOUR_MS: Final = 3_600_000
GROUPS_MAX: Final = 100_000
"""Most groups of one result. More do not fit on a screen, and would fill the memory if, for example, each message has a
type of its own."""

_NAME_AT: Final = at.HEAD_BYTES + at.NAME_LENGTH_AT + 2

Value = str | int | None
Group = tuple[Value, ...]
"""Values of the grouping fields, in their order."""


@dataclass(frozen=True, slots=True)
class MessageSums:
    """The sums over the messages of one group."""

    count: int
    record_bytes: int
    sizes: Histogram
    first_ms: int
    last_ms: int

    def __add__(self, other: MessageSums) -> MessageSums:
        return MessageSums(
            self.count + other.count,
            self.record_bytes + other.record_bytes,
            self.sizes + other.sizes,
            min(self.first_ms, other.first_ms),
            max(self.last_ms, other.last_ms),
        )


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """The sums of each group of some slices, and in `lost` the number of messages that could not be read."""

    groups: Mapping[Group, MessageSums]
    lost: int = 0


@dataclass(frozen=True, slots=True)
class StatsTask:
    slices: tuple[Slice, ...]
    by: tuple[str, ...]


def count(task: StatsTask) -> GroupTotals:
    """Count the messages of a task's slices. Runs in a worker."""
    return add_totals(_count_slice(slice_, task.by) for slice_ in join_slices(task.slices))


def add_totals(parts: Iterable[GroupTotals]) -> GroupTotals:
    """Add totals, in any order. Raises `InvalidRequest` if there are more groups than one answer may have."""
    groups: dict[Group, MessageSums] = {}
    lost = 0
    for part in parts:
        lost += part.lost
        add_groups(groups, part.groups)
    return GroupTotals(groups, lost)


def add_groups(groups: dict[Group, MessageSums], more: Mapping[Group, MessageSums]) -> None:
    for group, sums in more.items():
        known = groups.get(group)
        groups[group] = sums if known is None else known + sums
    if len(groups) > GROUPS_MAX:
        raise InvalidRequest(f"there are more than {GROUPS_MAX} groups: choose fewer or coarser ones with --by")


def _count_slice(slice_: Slice, by: tuple[str, ...]) -> GroupTotals:
    data = open_data(slice_.location)
    try:
        view = view_within(data, slice_.topic, slice_.partition, slice_.start, slice_.stop)
    except TopicNotSupported:  # deleted while the job runs
        return GroupTotals({})
    groups: dict[Group, MessageSums] = {}
    lost = 0
    for event in scan_range(data.disk, view, slice_.start, slice_.stop):
        if isinstance(event, Block):
            add_groups(groups, of_block(event, slice_.topic, slice_.partition, by))
        elif isinstance(event, LostOffsets):
            lost += len(event)
    return GroupTotals(groups, lost)


def of_block(block: Block, topic: str, partition: int, by: tuple[str, ...]) -> dict[Group, MessageSums]:
    """Return the sums over the messages of a block, for each combination of values of the fields `by` that occurs."""
    fixed: Mapping[str, Value] = {"topic": topic, "partition": partition}
    codes = np.zeros(len(block), dtype=np.int64)
    values: list[list[Value]] = []
    for name in by:
        distinct, numbers = ([fixed[name]], None) if name in fixed else FIELDS[name](block)
        if numbers is not None:
            codes = codes * len(distinct) + numbers
        values.append(distinct)
    _, firsts, inverse = np.unique(codes, return_index=True, return_inverse=True)
    rows = [_split(int(codes[first]), values) for first in firsts]
    return dict(zip(rows, _sums(block, inverse, len(rows)), strict=True))


def _split(code: int, values: list[list[Value]]) -> Group:
    """Return the values that a combined number stands for. `values` has the distinct values of each field; the number
    is made of the positions in them."""
    group: list[Value] = []
    for distinct in reversed(values):
        code, number = divmod(code, len(distinct))
        group.append(distinct[number])
    return tuple(reversed(group))


def _sums(block: Block, inverse: Longs, count: int) -> list[MessageSums]:
    order = np.argsort(inverse, kind="stable")
    starts = np.searchsorted(inverse[order], np.arange(count))
    columns = block.columns[order]
    sizes = block.payload_sizes[order]
    bytes_ = np.add.reduceat(columns[:, at.END] - columns[:, at.START], starts).tolist()
    times = columns[:, at.PUBLISH_TIME]
    first, last = (choose.reduceat(times, starts).tolist() for choose in (np.minimum, np.maximum))
    pieces = np.split(sizes, starts[1:])
    return [
        MessageSums(len(piece), bytes_[number], Histogram.of(piece), first[number], last[number])
        for number, piece in enumerate(pieces)
    ]


# grouping fields: the distinct values in a block, and for each record the number of its value

CodedValues = tuple[list[Value], Longs]


def _texts(block: Block, starts: Longs, sizes: Longs) -> CodedValues:
    sizes = np.ascontiguousarray(sizes)
    numbers, firsts = np.empty_like(starts), np.empty_like(starts)
    count = stream_kernels.alike(block.data, starts, sizes, numbers, firsts)
    texts = [
        block.data[starts[row] : starts[row] + sizes[row]].tobytes().decode(errors="replace") for row in firsts[:count]
    ]
    return _distinct(texts, numbers)


def _distinct(values: Iterable[Value], numbers: Longs) -> CodedValues:
    """Return distinct values, and the numbers changed to positions in them. The kernel may have given one value two
    numbers."""
    number_of: dict[Value, int] = {}
    new_numbers = np.array([number_of.setdefault(value, len(number_of)) for value in values], dtype=np.int64)
    return list(number_of), new_numbers[numbers]


def _type(block: Block) -> CodedValues:
    return _texts(block, block.columns[:, at.START] + at.TYPE_AT, block.columns[:, at.TYPE_BYTES])


def _producer(block: Block) -> CodedValues:
    """Return the producer of each record: its name, without a name `#ID`, and None for no producer."""
    columns = block.columns
    starts = columns[:, at.START] + columns[:, at.TYPE_BYTES] + _NAME_AT
    names, numbers = _texts(block, starts, columns[:, at.NAME_BYTES])
    if "" not in names:
        return names, numbers
    ids, of_id = np.unique(columns[:, at.PRODUCER_ID], return_inverse=True)
    nameless = numbers == names.index("")
    both = np.where(nameless, len(names) + of_id, numbers)
    return _distinct([*names, *(f"#{id_}" if id_ else None for id_ in ids.tolist())], both)


def _schema(block: Block) -> CodedValues:
    """Return the schema of each record as `ID/VERSION`; None for a message that names no schema."""
    named = (block.columns[:, at.FLAGS] & at.FLAG_SCHEMA) != 0
    pairs = np.where(named[:, None], block.columns[:, [at.SCHEMA_ID, at.SCHEMA_VERSION]], -1)
    rows, numbers = np.unique(pairs, axis=0, return_inverse=True)
    schemas: list[Value] = [None if row[0] < 0 else f"{row[0]}/{row[1]}" for row in rows.tolist()]
    return schemas, numbers.reshape(-1)


def _hour(block: Block) -> CodedValues:
    hours, numbers = np.unique(block.columns[:, at.PUBLISH_TIME] // HOUR_MS, return_inverse=True)
    return [hour * HOUR_MS for hour in hours.tolist()], numbers


def _day(block: Block) -> CodedValues:
    days, numbers = np.unique(block.columns[:, at.PUBLISH_TIME] // (24 * HOUR_MS), return_inverse=True)
    return [day * 24 * HOUR_MS for day in days.tolist()], numbers


FIELDS: Final[Mapping[str, Callable[[Block], CodedValues]]] = {
    "type": _type,
    "producer": _producer,
    "schema": _schema,
    "hour": _hour,
    "day": _day,
}
TIMES: Final = ("hour", "day")
BY: Final = ("topic", "partition", *FIELDS)
