"""The seam: what a table of the lake is, whatever its format, and how a batch gets into it exactly once.

A commit carries a marker: which query, which of its batches, which offsets. The table keeps three things of it, in the
same transaction as the files: the last batch of each query, the span of offsets it holds of each partition, and whose
table it is. `judge` decides from these alone; formats only read and write them.
"""

from __future__ import annotations

import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa

from penstock.core.errors import NotOwner, ServiceUnavailable, StorageFailed
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.runtime.failpoints import reach

ATTEMPTS_MAX: Final = 12
"""Tries of one commit while others commit to the same table; the waits between them add up to about half a minute."""

_PAUSE_SECONDS_MAX: Final = 5.0
_LOG: Final = logging.getLogger("penstock.lake")

Source = tuple[str, int]
"""A topic's full name, and a partition."""
Condition = tuple[str, str, Any]
"""A column, one of `= != < <= > >= in`, and what to compare it with. Several are all to hold."""


class Range(NamedTuple):
    """Offsets of one partition, half-open."""

    topic: str
    partition: int
    start: int
    stop: int


class Span(NamedTuple):
    """What a table holds of one partition: all from the first up to the next, and nothing else."""

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table. `path` is relative to the table's folder."""

    path: str
    size: int
    rows: int
    partition: str | None = None
    """The value of the column that the table is partitioned by, as text."""
    stats: str = "{}"
    """As Delta has it: numRecords, minValues, maxValues, nullCount."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Which batch of which query a commit is, and the offsets in it."""

    query_id: str
    batch_id: int
    ranges: tuple[Range, ...] = ()
    gaps: bool = False
    """The ranges need not begin where the table ends: a companion table, or a log that has lost something."""
    before: bool = False
    """A backfill: the ranges lie before what the table has, and are no business of whoever extends its end."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch is in the table. `found`: the commit was reported lost, and was there all the same."""

    found: bool = False


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """The batch was in the table before; nothing was done."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a table says of itself at one moment."""

    batch: int | None = None
    """The last batch of the query that asks."""
    owner: str | None = None
    spans: Mapping[Source, Span] = field(default_factory=dict)


def judge(held: Held, marker: Marker, table: str) -> bool:
    """Whether this batch is to be committed; False if it is there already.

    Raises `NotOwner` where another archiver extends the table, `StorageFailed` where the offsets do not join.
    """
    if held.batch is not None and marker.batch_id <= held.batch:
        return False
    if held.owner not in (None, marker.query_id) and not marker.before:
        raise fenced(table, held.owner, marker.query_id)
    for each in marker.ranges:
        span = held.spans.get((each.topic, each.partition))
        if span is not None and not _joins(span, each, marker):
            raise _out_of_step(table, span, each)
    return True


def joined(held: Held, marker: Marker) -> dict[Source, Span]:
    """The spans after the commit, of the partitions in it."""
    found: dict[Source, Span] = {}
    for each in marker.ranges:
        source = (each.topic, each.partition)
        span = found.get(source) or held.spans.get(source)
        found[source] = Span(
            each.start if span is None else min(span.first, each.start),
            each.stop if span is None else max(span.next, each.stop),
        )
    return found


def marker_json(marker: Marker) -> dict[str, Any]:
    return {"query": marker.query_id, "batch": marker.batch_id, "ranges": [list(each) for each in marker.ranges]}


def marker_from(described: Mapping[str, Any]) -> Marker:
    ranges = tuple(Range(*each) for each in described["ranges"])
    return Marker(described["query"], described["batch"], ranges)


def fenced(table: str, owner: str | None, query_id: str) -> NotOwner:
    return NotOwner(
        f"table {table} is archived by the query {owner}, and this one is {query_id}: two archives of one table would"
        " write everything twice. Stop the other one and repeat with --take-over, which goes on where the table ends;"
        " or use the checkpoint of the other one; or name the topics to archive, without that of this table",
        table=table,
        owner=owner,
        query=query_id,
    )


def _joins(span: Span, each: Range, marker: Marker) -> bool:
    if marker.before:
        return each.stop <= span.first if marker.gaps else each.stop == span.first
    return each.start >= span.next if marker.gaps else each.start == span.next


def _out_of_step(table: str, span: Span, each: Range) -> StorageFailed:
    return StorageFailed(
        f"table {table} holds offsets {span.first} to {span.next - 1} of {each.topic}[{each.partition}], and the batch"
        f" has {each.start} to {each.stop - 1}: they do not join. Another archive has written to the table, or the"
        " checkpoint is an old copy; --take-over goes on where the table ends",
        table=table,
        topic=each.topic,
        partition=each.partition,
        table_next=span.next,
        batch_start=each.start,
    )


class Conflict(Exception):
    """Somebody else committed first: look again."""


class LakeTable(ABC):
    """One table. Every answer is about now: nothing is kept between calls that another process can change."""

    kind: ClassVar[str]
    keeps_partition: ClassVar[bool]
    """Whether the files hold the column that the table is partitioned by, or the path alone says it."""

    def __init__(self, name: str, folder: Folder) -> None:
        self.name = name
        self.folder = folder

    # what a format does

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def create(self, schema: pa.Schema, partition_by: str | None = None, *, owner: str | None = None) -> None:
        """Make the table, unless it is there; `owner` is then the query that may extend it."""

    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @abstractmethod
    def partition_by(self) -> str | None: ...

    @abstractmethod
    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns, and fields of columns, that it has not. What it has stays as it is."""

    @abstractmethod
    def held(self, query_id: str, sources: Sequence[Source] | None = None) -> Held:
        """What it says of itself now; of these partitions, or of all."""

    @abstractmethod
    def claim(self, query_id: str, *, seen: str | None) -> None:
        """From now on this query, and no other, extends the table.

        `seen`: whose it was when that was decided. Raises `NotOwner` if it is somebody else's by now.
        """

    @abstractmethod
    def live(self) -> list[DataFile]:
        """The files that are the table now."""

    @abstractmethod
    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        """Other files with the same rows. Raises `Conflict` if one of the removed is gone."""

    @abstractmethod
    def archived(self, limit: int | None = None) -> list[tuple[int, Marker]]:
        """When which batch was committed (Unix ms), oldest first, as far back as the table's history goes.

        `limit`: the last so many, at most: a long history is read file by file.
        """

    @abstractmethod
    def vacuum(self, *, hours: float, dry_run: bool = False) -> list[str]:
        """Delete files that no version in use refers to and that are older than `hours`; which they are."""

    @abstractmethod
    def expire(self, *, hours: float) -> int:
        """Forget versions older than `hours`, but the last; how many. Markers and positions stay."""

    @abstractmethod
    def version(self) -> str:
        """Which state of the table is the last, for people."""

    @abstractmethod
    def _put(self, files: Sequence[DataFile], marker: Marker, held: Held) -> None:
        """Commit on what was read as `held`. Raises `Conflict` if that is no longer what the table says."""

    # what all do alike

    def commit(self, files: Sequence[DataFile], marker: Marker) -> Committed | AlreadyThere:
        """Files and marker in one transaction, or neither. On return it is done, by this call or before.

        Raises what `judge` does; `ServiceUnavailable` if others commit all the time; what the format raises if it
        cannot commit, after having looked whether it did.
        """
        sources = [(each.topic, each.partition) for each in marker.ranges]
        for attempt in range(ATTEMPTS_MAX):
            held = self.held(marker.query_id, sources)
            if not judge(held, marker, self.name):
                return AlreadyThere()
            self._check_there(files)
            reach("before-commit")
            try:
                self._put(files, marker, held)
            except Conflict:
                pause(attempt)
                continue
            except Exception:
                if not self._landed(marker):
                    raise
                _LOG.warning("a commit to %s was reported lost and is there: going on", self.name)
                return Committed(found=True)
            reach("committed-before-return")
            return Committed()
        raise ServiceUnavailable(
            f"table {self.name}: others committed first, {ATTEMPTS_MAX} times in a row; try again", table=self.name
        )

    def _check_there(self, files: Sequence[DataFile]) -> None:
        """Raises `StorageFailed` if one is gone: a table that names it could not be read any more."""
        for each in files:
            if self.folder.size(each.path) != each.size:
                raise StorageFailed(
                    f"table {self.name}: the file {each.path} was written and is gone or another, so the batch was not"
                    " committed. A vacuum has deleted it, if it was older than what that spares; start again, which"
                    " writes it anew",
                    table=self.name,
                    path=each.path,
                )

    def _landed(self, marker: Marker) -> bool:
        batch = self.held(marker.query_id, []).batch
        return batch is not None and batch >= marker.batch_id

    def spans(self) -> dict[Source, Span]:
        """What it holds of each partition."""
        return dict(self.held("").spans) if self.exists() else {}

    def positions(self) -> dict[Source, int]:
        """The next offset to archive, of each partition it has something of."""
        return {source: span.next for source, span in self.spans().items()}

    def owner(self) -> str | None:
        return self.held("", []).owner if self.exists() else None

    def read(self, columns: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> Iterator[pa.RecordBatch]:
        """The rows, file by file; files whose statistics say that nothing matches are not opened."""
        from penstock.spark.lake.tables.table_scan import scan

        return scan(self, columns, where)


def pause(attempt: int) -> None:
    """Longer each time, and not the same for two that met."""
    time.sleep(min(_PAUSE_SECONDS_MAX, 0.05 * 2**attempt) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
