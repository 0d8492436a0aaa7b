"""Logs on a disk in memory, with damage, for the tests of jobs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from tests.record.samples import FIRST_TICKS, stamped

from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.record.message import Message, SchemaRef
from penstock.spark.jobs.audit.partition_summary import PartitionSummary
from penstock.spark.jobs.audit.scan_range import scan_range
from penstock.spark.jobs.audit.tally import NOT_ARCHIVED, ArchivedRange, RangeTally, TimeSpans
from penstock.storage.base.disk import opened, write_all
from penstock.storage.log import index as indexes
from penstock.storage.log.index import HEADER_BYTES, IndexHeader, SegmentState
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import LogView, view_of
from penstock.storage.log.segment import base_of, index_path, segment_name
from penstock.testing import FaultDisk, ManualClock

FOLDER = Path("/log")
SMALL = Limits(
    payload_bytes_max=4096,
    block_bytes_max=8192,
    segment_bytes_first=4096,
    segment_bytes_max=16_384,
    disk_reserve_bytes=1,
)

messages = st.builds(
    Message,
    payload=st.integers(0, 900).map(lambda size: b"p" * size),
    type=st.sampled_from(["order.created", "", "é"]),
    key=st.none() | st.binary(max_size=8),
    producer_id=st.sampled_from([0, 1, 2]),
    producer_name=st.sampled_from(["", "till"]),
    request_id=st.integers(0, 6),
    schema=st.none() | st.builds(SchemaRef, id=st.integers(1, 2), version=st.integers(1, 2)),
)


@dataclass(frozen=True)
class Sample:
    """A log of several segments, and its view by another process."""

    disk: FaultDisk
    count: int

    @property
    def view(self) -> LogView:
        return view_of(self.disk, FOLDER)

    @property
    def segments(self) -> list[Path]:
        return sorted(path for path in self.disk.paths() if base_of(path.name) is not None)

    def flip(self, path: Path, bit: int) -> None:
        content = self.disk.content(path)
        content[bit // 8 % len(content)] ^= 1 << bit % 8


def write(blocks: Iterable[Sequence[Message]], *, step_ms: int = 1000) -> Sample:
    """Write a log with these blocks, each so much later than the one before."""
    disk, clock = FaultDisk(), ManualClock()
    log = Log.open(disk, FOLDER, ids=IdGenerator(clock, node=1), clock=clock, limits=SMALL)
    count = 0
    for block in blocks:
        log.append(Draft.of(block))
        count += len(block)
        clock.advance_ms(step_ms)
    return Sample(disk, count)


def orders(count: int, *, size: int = 500) -> Sample:
    """Return messages of one producer, one a block, in several segments."""
    numbered = (Message(payload=bytes(size), type="t", producer_id=5, request_id=n + 1) for n in range(count))
    return write([each] for each in numbered)


def out_of_order(ticks: Sequence[int], *, per_segment: int = 7) -> Sample:
    """Write a log whose records have the ids of these ticks, in any order: closed segments and their indexes."""
    disk = FaultDisk()
    disk.make_directory(FOLDER)
    for base in range(0, len(ticks), per_segment):
        path, ends = FOLDER / segment_name(base), []
        data = b""
        for place, tick in enumerate(ticks[base : base + per_segment]):
            data += stamped([Message(payload=b"x")], first_offset=base + place, first_ticks=FIRST_TICKS + tick)
            ends.append(len(data))
        with opened(disk, path, write=True, create=True) as file:
            write_all(file, data, 0)
        header = IndexHeader(state=SegmentState.CLOSED, base=base, count=len(ends), size=len(data), first_id=data[:16])
        indexes.rewrite_index(disk, index_path(path), header, np.array(ends, dtype=np.int64))
    return Sample(disk, len(ticks))


def lose_entry(sample: Sample, segment: Path, ordinal: int) -> None:
    """Spoil one entry of an index."""
    sample.disk.content(index_path(segment))[HEADER_BYTES + 8 * ordinal + 7] ^= 1


def partial_of(
    sample: Sample,
    start: int = 0,
    stop: int | None = None,
    *,
    spans: TimeSpans = TimeSpans(0, 1000, 4),  # noqa: B008 - a value
    archived: ArchivedRange = NOT_ARCHIVED,
) -> PartitionSummary:
    end = sample.count if stop is None else stop
    events = scan_range(sample.disk, sample.view, start, end)
    return RangeTally(start, end, spans, archived).take(events).result()


def pieces_of(sample: Sample, cuts: Sequence[int], **given: object) -> list[PartitionSummary]:
    """Scan the whole log in pieces that end at the cuts."""
    edges = sorted({0, sample.count, *(cut for cut in cuts if 0 < cut < sample.count)})
    return [partial_of(sample, *edge, **given) for edge in itertools.pairwise(edges)]  # type: ignore[arg-type]
