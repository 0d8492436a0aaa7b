"""The interface of a lake table, whatever its format, and the commit that adds a batch exactly once.

A commit carries a marker: its query, the batch number, and the offsets. The table keeps three things of it, in the same
transaction as the files: the last batch of each query, the span of offsets it holds of each partition, and its owner.
`needs_commit` decides from these alone; formats only read and write them.
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
"""Most tries of one commit while other processes commit to the same table. The pauses between the tries add up to about
half a minute."""

_PAUSE_SECONDS_MAX: Final = 5.0
_LOG: Final = logging.getLogger("penstock.lake")

TopicPartition = tuple[str, int]
"""A topic's full name, and a partition."""
Condition = tuple[str, str, Any]
"""A column, one of `= != < <= > >= in`, and the value to compare with. Several conditions must all hold."""


class OffsetRange(NamedTuple):
    """Offsets of one partition, from `start` up to, but not including, `stop`."""

    topic: str
    partition: int
    start: int
    stop: int


class OffsetSpan(NamedTuple):
    """The offsets that a table holds of one partition: all from `first` up to, but not including, `next`."""

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table. `path` is relative to the table's folder."""

    path: str
    size: int
    rows: int
    partition: str | None = None
    """Value of the column that the table is partitioned by, as text."""
    stats: str = "{}"
    """Statistics in Delta's form: numRecords, minValues, maxValues, nullCount."""


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """The identity of a commit: its query, its batch, and the offsets in it."""

    query_id: str
    batch_id: int
    ranges: tuple[OffsetRange, ...] = ()
    gaps: bool = False
    """True if the ranges may leave a hole behind the table's span, as in a bad-rows table, or where a log has lost
    messages."""
    before: bool = False
    """True for a batch of a backfill whose ranges lie in front of the table's span. The owner of the table is not
    checked then, since an owner adds only behind the span."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit that added the batch. `despite_error`: the commit reported an error, but a check showed
    that it had succeeded."""

    despite_error: bool = False


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The result of a commit that did nothing, because the table had the batch already."""


@dataclass(frozen=True, slots=True)
class TableState:
    """The last batch of one query, the owner, and the spans of a table at one moment."""

    batch: int | None = None
    """Number of the last batch of the query for which the state was read; None if the table has none of it."""
    owner: str | None = None
    spans: Mapping[TopicPartition, OffsetSpan] = field(default_factory=dict)


def needs_commit(state: TableState, marker: CommitMarker, table: str) -> bool:
    """Return True if this batch is to be committed, False if the table has it already. `table` is the name for errors.

    Raises `NotOwner` if another archive extends the table, `StorageFailed` if the offsets of the batch do not begin
    where the table's span ends. `CommitMarker.gaps` and `before` relax this.
    """
    if state.batch is not None and marker.batch_id <= state.batch:
        return False
    if state.owner not in (None, marker.query_id) and not marker.before:
        raise wrong_owner(table, state.owner, marker.query_id)
    for offsets in marker.ranges:
        span = state.spans.get((offsets.topic, offsets.partition))
        if span is not None and not _is_adjacent(span, offsets, marker):
            raise _not_adjacent(table, span, offsets)
    return True


def spans_after(state: TableState, marker: CommitMarker) -> dict[TopicPartition, OffsetSpan]:
    """Return the spans that the table will have after the commit, for the partitions that are in the commit."""
    spans: dict[TopicPartition, OffsetSpan] = {}
    for offsets in marker.ranges:
        source = (offsets.topic, offsets.partition)
        span = spans.get(source) or state.spans.get(source)
        spans[source] = OffsetSpan(
            offsets.start if span is None else min(span.first, offsets.start),
            offsets.stop if span is None else max(span.next, offsets.stop),
        )
    return spans


def marker_to_json(marker: CommitMarker) -> dict[str, Any]:
    return {"query": marker.query_id, "batch": marker.batch_id, "ranges": [list(offsets) for offsets in marker.ranges]}


def marker_from_json(described: Mapping[str, Any]) -> CommitMarker:
    ranges = tuple(OffsetRange(*values) for values in described["ranges"])
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


def _is_adjacent(span: OffsetSpan, offsets: OffsetRange, marker: CommitMarker) -> bool:
    if marker.before:
        return offsets.stop <= span.first if marker.gaps else offsets.stop == span.first
    return offsets.start >= span.next if marker.gaps else offsets.start == span.next


def _not_adjacent(table: str, span: OffsetSpan, offsets: OffsetRange) -> StorageFailed:
    return StorageFailed(
        f"table {table} holds offsets {span.first} to {span.next - 1} of {offsets.topic}[{offsets.partition}], and the"
        f" batch has {offsets.start} to {offsets.stop - 1}: they do not join. Another archive has written to the table,"
        " or the checkpoint is an old copy; --take-over goes on where the table ends",
        table=table,
        topic=offsets.topic,
        partition=offsets.partition,
        table_next=span.next,
        batch_start=offsets.start,
    )


class CommitConflict(Exception):
    """Raised if another process committed to the table first. Read the table's state again and retry."""


class LakeTable(ABC):
    """A table of the lake, which need not exist yet. Each method reads the table's current state: nothing that another
    process can change is cached between calls."""

    table_format: ClassVar[str]
    keeps_partition: ClassVar[bool]
    """True if the files hold the partition column, False if only their path does."""

    def __init__(self, name: str, folder: Folder) -> None:
        self.name = name
        self.folder = folder

    # implemented by each format

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def create(self, schema: pa.Schema, partition_by: str | None = None, *, owner: str | None = None) -> None:
        """Create the table with `owner` as the only query that may extend it. If the table exists, do nothing: its
        schema and its owner stay."""

    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @abstractmethod
    def partition_by(self) -> str | None: ...

    @abstractmethod
    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns, and struct fields of columns, that `schema` has and the table lacks. `schema` must contain
        all columns of the table."""

    @abstractmethod
    def table_state(self, query_id: str, sources: Sequence[TopicPartition] | None = None) -> TableState:
        """Return the current state of the table, with the last batch of this query and the spans of these partitions.
        `sources=None` means all partitions."""

    @abstractmethod
    def claim(self, query_id: str, *, seen: str | None) -> None:
        """Make this query the only one that may extend the table.

        `seen` is the owner that the caller has read before, None for no owner. Raises `NotOwner` if the table has
        another owner now.
        """

    @abstractmethod
    def live(self) -> list[DataFile]:
        """Return the data files of the table's current version."""

    @abstractmethod
    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        """Replace files by others with the same rows, in one commit. Raises `CommitConflict` if one of the removed
        files is gone, or if another process committed first."""

    @abstractmethod
    def commit_history(self, limit: int | None = None) -> list[tuple[int, CommitMarker]]:
        """Return the commit time (Unix ms) and marker of each batch, oldest first, as far back as the table's history
        goes.

        With `limit`, return only so many of the last batches: a long history takes long to read.
        """

    @abstractmethod
    def vacuum(self, *, hours: float, dry_run: bool = False) -> list[str]:
        """Delete the files older than `hours` that no version in use refers to, and return their paths. With `dry_run`
        only return the paths."""

    @abstractmethod
    def expire(self, *, hours: float) -> int:
        """Drop the versions of the table that are older than `hours`, except the last, and return how many were
        dropped. The state of the table (batches, spans, owner) stays."""

    @abstractmethod
    def version(self) -> str:
        """Return the last version of the table, for people."""

    @abstractmethod
    def _try_commit(self, files: Sequence[DataFile], marker: CommitMarker, state: TableState) -> None:
        """Commit files and marker, if the table's state is still `state`. Raises `CommitConflict` if the state has
        changed or another process commits first."""

    # shared by all formats

    def commit(self, files: Sequence[DataFile], marker: CommitMarker) -> Committed | AlreadyCommitted:
        """Commit files and marker in one transaction, or neither. On return the batch is committed, by this call or
        before.

        Raises what `needs_commit` does; `StorageFailed` if one of the files is gone; `ServiceUnavailable` if other
        processes committed first twelve times in a row. An error of the format's library is raised only after a check
        that the table does not have the batch.
        """
        sources = [(offsets.topic, offsets.partition) for offsets in marker.ranges]
        for attempt in range(ATTEMPTS_MAX):
            state = self.table_state(marker.query_id, sources)
            if not needs_commit(state, marker, self.name):
                return AlreadyCommitted()
            self._check_files(files)
            reach("before-commit")
            try:
                self._try_commit(files, marker, state)
            except CommitConflict:
                back_off(attempt)
                continue
            except Exception:
                if not self._has_batch(marker):
                    raise
                _LOG.warning("commit to table %s reported an error, but succeeded: continuing", self.name)
                return Committed(despite_error=True)
            reach("committed-before-return")
            return Committed()
        raise ServiceUnavailable(
            f"table {self.name}: others committed first, {ATTEMPTS_MAX} times in a row; try again", table=self.name
        )

    def _check_files(self, files: Sequence[DataFile]) -> None:
        """Raise `StorageFailed` if a file is gone or has another size. A table that names a missing file cannot be
        read."""
        for file in files:
            if self.folder.size(file.path) != file.size:
                raise StorageFailed(
                    f"table {self.name}: the file {file.path} was written and is gone or another, so the batch was not"
                    " committed. A vacuum has deleted it, if it was older than what that spares; start again, which"
                    " writes it anew",
                    table=self.name,
                    path=file.path,
                )

    def _has_batch(self, marker: CommitMarker) -> bool:
        batch = self.table_state(marker.query_id, []).batch
        return batch is not None and batch >= marker.batch_id

    def spans(self) -> dict[TopicPartition, OffsetSpan]:
        """Return the span of each partition of which the table holds messages; empty if the table does not exist."""
        return dict(self.table_state("").spans) if self.exists() else {}

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset to archive for each partition of which the table holds messages; empty if the table
        does not exist."""
        return {source: span.next for source, span in self.spans().items()}

    def owner(self) -> str | None:
        return self.table_state("", []).owner if self.exists() else None

    def read(self, columns: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match all conditions of `where`, in these columns (None: all), file by file.

        Files whose statistics exclude a match are not opened. Raises `InvalidRequest` for an unknown column.
        """
        from penstock.spark.lake.tables.table_scan import scan

        return scan(self, columns, where)


def back_off(attempt: int) -> None:
    """Sleep before the next try: 0.05 seconds for attempt 0, doubled with each attempt, at most 5 seconds. A random
    part, up to half, is left out, so that two writers that conflicted do not conflict again."""
    time.sleep(min(_PAUSE_SECONDS_MAX, 0.05 * 2**attempt) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
