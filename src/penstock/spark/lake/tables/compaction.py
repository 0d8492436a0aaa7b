"""Compaction: many small files of a partition become few, with the same rows. Markers and positions stay."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa

from penstock.core.errors import ServiceUnavailable, StorageFailed
from penstock.spark.lake.tables.file_writer import FILE_BYTES_MAX, FileLayout, FileWriter
from penstock.spark.lake.tables.table import CommitConflict, DataFile, LakeTable, back_off
from penstock.spark.lake.tables.table_scan import file_batches

SMALL: Final = 0.75
"""Files smaller than this share of the target size are compacted. It is less than 1, so that the files that compaction
writes are not compacted again."""
_TRIES_MAX: Final = 8
_LOG: Final = logging.getLogger("penstock.lake")


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The totals of a compaction."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0

    def __add__(self, other: CompactionReport) -> CompactionReport:
        return CompactionReport(
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
            self.rows + other.rows,
        )


def compaction_groups(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Yield groups of at least two small files of one partition. The files of a group together have at most about
    `target_bytes`."""
    small = sorted((file for file in files if file.size < target_bytes * SMALL), key=_order)
    for _, same in groupby(small, key=lambda file: file.partition):
        yield from (group for group in _grouped(same, target_bytes) if len(group) > 1)


def _order(file: DataFile) -> tuple[str, str, int, str]:
    """Return the key by which files are sorted before they are grouped: partition, first topic, first offset. So a
    compacted file has rows that are neighbours in the log."""
    low = json.loads(file.stats).get("minValues", {})
    return file.partition or "", str(low.get("_topic", "")), int(low.get("_offset", 0)), file.path


def _grouped(files: Iterable[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    for file in files:
        if group and sum(member.size for member in group) + file.size > target_bytes:
            yield group
            group = []
        group.append(file)
    yield group


def compact(
    table: LakeTable,
    *,
    target_bytes: int = FILE_BYTES_MAX,
    on_group: Callable[[int], None] | None = None,
) -> CompactionReport:
    """Rewrite the small files of a table, group by group, and return the totals. Each group is committed when it is
    done.

    An archive may go on meanwhile. `on_group` gets the bytes of each finished group. Raises `StorageFailed` if a
    rewritten file has another number of rows than the files it replaces, before any file is replaced.
    """
    total = CompactionReport()
    for group in list(compaction_groups(table.live(), target_bytes)):
        total += _compact_group(table, group, target_bytes)
        if on_group is not None:
            on_group(sum(file.size for file in group))
    return total


def plan_compaction(table: LakeTable, *, target_bytes: int = FILE_BYTES_MAX) -> CompactionReport:
    """Return the number, bytes and rows of the files that a compaction would rewrite now. The result's `files_after`
    and `bytes_after` are 0."""
    files = [file for group in compaction_groups(table.live(), target_bytes) for file in group]
    return CompactionReport(
        files_before=len(files), bytes_before=sum(f.size for f in files), rows=sum(f.rows for f in files)
    )


def _compact_group(table: LakeTable, group: list[DataFile], target_bytes: int) -> CompactionReport:
    # One file of a group, also where the rewritten rows compress worse.
    layout = file_layout_of(table, file_bytes_max=2 * target_bytes)
    with FileWriter(table.folder, layout, f"compact-{uuid.uuid4().hex}") as writer:
        for batch in _rows(table, group, layout.schema, layout.partition_by):
            writer.write(batch)
        written = writer.finish()
        _check(table, group, written)
    # Outside of the writer, which would delete its files: from here on the table may use them.
    if not _try_replace(table, group, written):
        return CompactionReport()  # another process has rewritten or deleted them
    return CompactionReport(
        len(group), len(written), _bytes(group), _bytes(written), sum(file.rows for file in written)
    )


def _rows(table: LakeTable, group: list[DataFile], schema: pa.Schema, by: str | None) -> Iterator[pa.RecordBatch]:
    for file in group:
        yield from file_batches(table.folder, file, schema, by)


def _bytes(files: Iterable[DataFile]) -> int:
    return sum(file.size for file in files)


def _check(table: LakeTable, group: list[DataFile], written: list[DataFile]) -> None:
    before, after = sum(file.rows for file in group), sum(file.rows for file in written)
    if before != after:
        raise StorageFailed(f"table {table.name}: {before} rows would become {after}; nothing was replaced")


def _try_replace(table: LakeTable, group: list[DataFile], written: list[DataFile]) -> bool:
    """Replace the files of a group. Return True if the table has the new files, False if another process had removed an
    old one.

    The new files are deleted only if the table refused the commit and does not have them. After any other error they
    stay for `vacuum`: the commit may have succeeded, or still succeed.
    """
    try:
        _replace(table, group, written)
    except (CommitConflict, ServiceUnavailable) as error:
        if _are_live(table, written):
            return True  # the library repeated its commit and was refused: the first try had succeeded
        table.folder.delete([file.path for file in written])
        if isinstance(error, CommitConflict):
            return False
        raise
    except Exception:
        if not _are_live(table, written):
            raise
        _LOG.warning("commit to table %s reported an error, but succeeded: continuing", table.name)
    return True


def _are_live(table: LakeTable, written: list[DataFile]) -> bool:
    live = {file.path for file in table.live()}
    return any(file.path in live for file in written)


def _replace(table: LakeTable, group: list[DataFile], written: list[DataFile]) -> None:
    """Commit the replacement. If another process committed first and the old files are still there, try again.

    Raises `CommitConflict` if an old file is gone, `ServiceUnavailable` after eight tries.
    """
    for attempt in range(_TRIES_MAX):
        try:
            table.replace(group, written)
        except CommitConflict:
            live = {file.path for file in table.live()}
            if any(file.path not in live for file in group):
                raise
            back_off(attempt)
        else:
            return
    raise ServiceUnavailable(f"table {table.name}: others committed first, {_TRIES_MAX} times in a row; try again")


def file_layout_of(table: LakeTable, *, file_bytes_max: int = FILE_BYTES_MAX) -> FileLayout:
    """Return the layout for files that are to be added to a table."""
    return FileLayout(
        table.schema(),
        table.partition_by(),
        table.keeps_partition,
        prefix="data/" if table.table_format == "iceberg" else "",
        file_bytes_max=file_bytes_max,
    )
