"""The seam: what a table of the lake is, whatever its format, and how a batch gets into it exactly once.

A commit carries a marker: which query, which of its batches, which offsets. The table keeps three things of it, in the
same transaction as the files: the last batch of each query, the span of offsets it holds of each partition, and whose
table it is. `needs_commit` decides from these alone; formats only read and write them.
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

TopicPartition = tuple[str, int]
"""A topic's full name, and a partition."""
Condition = tuple[str, str, Any]
"""A column, one of `= != < <= > >= in`, and what to compare it with. Several are all to hold."""


class OffsetRange(NamedTuple):
    """Offsets of one partition, half-open."""

    topic: str
    partition: int
    start: int
    stop: int


class OffsetSpan(NamedTuple):
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
class CommitMarker:
    """Which batch of which query a commit is, and the offsets in it."""

    query_id: str
    batch_id: int
    ranges: tuple[OffsetRange, ...] = ()
    gaps: bool = False
    """The ranges need not begin where the table ends: a companion table, or a log that has lost something."""
    before: bool = False
    """A backfill: the ranges lie before what the table has, and are no business of whoever extends its end."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch is in the table. `despite_error`: the commit was reported lost, and was there all the same."""

    despite_error: bool = False


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The batch was in the table before; nothing was done."""


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table says of itself at one moment."""

    batch: int | None = None
    """The last batch of the query that asks."""
    owner: str | None = None
    spans: Mapping[TopicPartition, OffsetSpan] = field(default_factory=dict)


def needs_commit(state: TableState, marker: CommitMarker, table: str) -> bool:
    """Whether this batch is to be committed; False if it is there already.

    Raises `NotOwner` where another archiver extends the table, `StorageFailed` where the offsets do not join.
    """
    if state.batch is not None and marker.batch_id <= state.batch:
        return False
    if state.owner not in (None, marker.query_id) and not marker.before:
        raise wrong_owner(table, state.owner, marker.query_id)
    for each in marker.ranges:
        span = state.spans.get((each.topic, each.partition))
        if span is not None and not _is_adjacent(span, each, marker):
            raise _not_adjacent(table, span, each)
    return True


def spans_after(state: TableState, marker: CommitMarker) -> dict[TopicPartition, OffsetSpan]:
    """The spans after the commit, of the partitions in it."""
    spans: dict[TopicPartition, OffsetSpan] = {}
    for each in marker.ranges:
        source = (each.topic, each.partition)
        span = spans.get(source) or state.spans.get(source)
        spans[source] = OffsetSpan(
            each.start if span is None else min(span.first, each.start),
            each.stop if span is None else max(span.next, each.stop),
        )
    return spans


def marker_json(marker: CommitMarker) -> dict[str, Any]:
    return {"query": marker.query_id, "batch": marker.batch_id, "ranges": [list(each) for each in marker.ranges]}


def marker_from_json(described: Mapping[str, Any]) -> CommitMarker:
    ranges = tuple(OffsetRange(*each) for each in described["ranges"])
    return CommitMarker(described["query"], described["batch"], ranges)


def wrong_owner(table: str, owner: str | None, query_id: str) -> NotOwner:
    return NotOwner(
        f"table {table} is archived by the query {owner}, and this one is {query_id}: two archives of one table would"
        " write everything twice. Stop the other one and repeat with --take-over, which goes on where the table ends;"
        " or use the checkpoint of the other one; or name the topics to archive, without that of this table",
        table=table,
        owner=owner,
        query=query_id,
    )


def _is_adjacent(span: OffsetSpan, each: OffsetRange, marker: CommitMarker) -> bool:
    if marker.before:
        return each.stop <= span.first if marker.gaps else each.stop == span.first
    return each.start >= span.next if marker.gaps else each.start == span.next


def _not_adjacent(table: str, span: OffsetSpan, each: OffsetRange) -> StorageFailed:
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


class CommitConflict(Exception):
    """Somebody else committed first: look again."""


class LakeTable(ABC):
    """One table. Every answer is about now: nothing is kept between calls that another process can change."""

    table_format: ClassVar[str]
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
    def table_state(self, query_id: str, sources: Sequence[TopicPartition] | None = None) -> TableState:
        """What it says of itself now; of these partitions, or of all."""

    @abstractmethod
    def claim(self, query_id: str, *, seen: str | None) -> None:
        """From now on this query, and no other, extends the table.

        `seen`: whose it was when that was decided. Raises `NotOwner` if it is somebody else's by now.
        """

    @abstractmethod
    def live_files(self) -> list[DataFile]:
        """The files that are the table now."""

    @abstractmethod
    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        """Other files with the same rows. Raises `CommitConflict` if one of the removed is gone."""

    @abstractmethod
    def commit_history(self, limit: int | None = None) -> list[tuple[int, CommitMarker]]:
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
    def _try_commit(self, files: Sequence[DataFile], marker: CommitMarker, state: TableState) -> None:
        """Commit on what was read as `state`. Raises `CommitConflict` if that is no longer what the table says."""

    # what all do alike

    def commit(self, files: Sequence[DataFile], marker: CommitMarker) -> Committed | AlreadyCommitted:
        """Files and marker in one transaction, or neither. On return it is done, by this call or before.

        Raises what `needs_commit` does; `ServiceUnavailable` if others commit all the time; what the format
        raises if it cannot commit, after having looked whether it did.
        """
        sources = [(each.topic, each.partition) for each in marker.ranges]
        for attempt in range(ATTEMPTS_MAX):
            state = self.table_state(marker.query_id, sources)
            if not needs_commit(state, marker, self.name):
                return AlreadyCommitted()
            self._check_files(files)
            reach("before-commit")
            try:
                self._try_commit(files, marker, state)
            except CommitConflict:
                pause(attempt)
                continue
            except Exception:
                if not self._has_batch(marker):
                    raise
                _LOG.warning("a commit to %s was reported lost and is there: going on", self.name)
                return Committed(despite_error=True)
            reach("committed-before-return")
            return Committed()
        raise ServiceUnavailable(
            f"table {self.name}: others committed first, {ATTEMPTS_MAX} times in a row; try again", table=self.name
        )

    def _check_files(self, files: Sequence[DataFile]) -> None:
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

    def _has_batch(self, marker: CommitMarker) -> bool:
        batch = self.table_state(marker.query_id, []).batch
        return batch is not None and batch >= marker.batch_id

    def spans(self) -> dict[TopicPartition, OffsetSpan]:
        """What it holds of each partition."""
        return dict(self.table_state("").spans) if self.exists() else {}

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to archive, of each partition it has something of."""
        return {source: span.next for source, span in self.spans().items()}

    def owner(self) -> str | None:
        return self.table_state("", []).owner if self.exists() else None

    def read(self, columns: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> Iterator[pa.RecordBatch]:
        """The rows, file by file; files whose statistics say that nothing matches are not opened."""
        from penstock.spark.lake.tables.table_scan import scan

        return scan(self, columns, where)


def pause(attempt: int) -> None:
    """Longer each time, and not the same for two that met."""
    time.sleep(min(_PAUSE_SECONDS_MAX, 0.05 * 2**attempt) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
