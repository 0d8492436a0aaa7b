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
from penstock.spark.lake.tables.file_writer import FILE_BYTES_MAX, FileWriter, Shape
from penstock.spark.lake.tables.table import Conflict, DataFile, LakeTable, pause
from penstock.spark.lake.tables.table_scan import file_batches

SMALL: Final = 0.75
"""A file is small below this part of the size aimed at: what compaction has made is not compacted again."""
_TRIES_MAX: Final = 8
_LOG: Final = logging.getLogger("penstock.lake")


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
            self.rows + other.rows,
        )


def groups(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Small files of one partition that together make one of about the size aimed at; at least two."""
    small = sorted((each for each in files if each.size < target_bytes * SMALL), key=_order)
    for _, same in groupby(small, key=lambda each: each.partition):
        yield from (group for group in _filled(same, target_bytes) if len(group) > 1)


def _order(file: DataFile) -> tuple[str, str, int, str]:
    """Rows that were beside each other in the log are so in the table."""
    low = json.loads(file.stats).get("minValues", {})
    return file.partition or "", str(low.get("_topic", "")), int(low.get("_offset", 0)), file.path


def _filled(files: Iterable[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    for each in files:
        if group and sum(file.size for file in group) + each.size > target_bytes:
            yield group
            group = []
        group.append(each)
    yield group


def compact(
    table: LakeTable,
    *,
    target_bytes: int = FILE_BYTES_MAX,
    told: Callable[[int], None] | None = None,
) -> Compacted:
    """Rewrite the small files of a table, group by group; each group is committed when it is done.

    An archive may go on meanwhile. `told` gets the bytes of each group that is done. Raises `StorageFailed` if a
    rewritten file has other rows than those it replaces, before anything is replaced.
    """
    total = Compacted()
    for group in list(groups(table.live(), target_bytes)):
        total += _compact_group(table, group, target_bytes)
        if told is not None:
            told(sum(each.size for each in group))
    return total


def planned(table: LakeTable, *, target_bytes: int = FILE_BYTES_MAX) -> Compacted:
    """What compaction would take up."""
    files = [each for group in groups(table.live(), target_bytes) for each in group]
    return Compacted(files_before=len(files), bytes_before=sum(f.size for f in files), rows=sum(f.rows for f in files))


def _compact_group(table: LakeTable, group: list[DataFile], target_bytes: int) -> Compacted:
    shape = shape_of(table, file_bytes_max=2 * target_bytes)  # one file of a group, also where it compresses worse
    with FileWriter(table.folder, shape, f"compact-{uuid.uuid4().hex}") as writer:
        for batch in _rows(table, group, shape.schema, shape.partition_by):
            writer.write(batch)
        made = writer.finish()
        _check(table, group, made)
    # Outside of the writer, which would delete its files: from here on they may be the table.
    if not _replaced(table, group, made):
        return Compacted()  # somebody else has rewritten or deleted them
    return Compacted(len(group), len(made), _bytes(group), _bytes(made), sum(each.rows for each in made))


def _rows(table: LakeTable, group: list[DataFile], schema: pa.Schema, by: str | None) -> Iterator[pa.RecordBatch]:
    for file in group:
        yield from file_batches(table.folder, file, schema, by)


def _bytes(files: Iterable[DataFile]) -> int:
    return sum(each.size for each in files)


def _check(table: LakeTable, group: list[DataFile], made: list[DataFile]) -> None:
    before, after = sum(each.rows for each in group), sum(each.rows for each in made)
    if before != after:
        raise StorageFailed(f"table {table.name}: {before} rows would become {after}; nothing was replaced")


def _replaced(table: LakeTable, group: list[DataFile], made: list[DataFile]) -> bool:
    """Whether the table has the new files now; False if somebody else was quicker.

    Files are deleted only where the table has refused them and does not have them. After any other error they stay,
    for `vacuum`: the commit may have landed, or land yet.
    """
    try:
        _replace(table, group, made)
    except (Conflict, ServiceUnavailable) as error:
        if _are_live(table, made):
            return True  # refused was a repetition inside of the library: its first try had landed
        table.folder.delete([each.path for each in made])
        if isinstance(error, Conflict):
            return False
        raise
    except Exception:
        if not _are_live(table, made):
            raise
        _LOG.warning("a commit to %s was reported lost and is there: going on", table.name)
    return True


def _are_live(table: LakeTable, made: list[DataFile]) -> bool:
    there = {each.path for each in table.live()}
    return any(each.path in there for each in made)


def _replace(table: LakeTable, group: list[DataFile], made: list[DataFile]) -> None:
    """Again where only others' appends were in the way. Raises `Conflict` where the files themselves are gone."""
    for attempt in range(_TRIES_MAX):
        try:
            table.replace(group, made)
        except Conflict:
            there = {each.path for each in table.live()}
            if any(each.path not in there for each in group):
                raise
            pause(attempt)
        else:
            return
    raise ServiceUnavailable(f"table {table.name}: others committed first, {_TRIES_MAX} times in a row; try again")


def shape_of(table: LakeTable, *, file_bytes_max: int = FILE_BYTES_MAX) -> Shape:
    """How new files of a table look."""
    return Shape(
        table.schema(),
        table.partition_by(),
        table.keeps_partition,
        prefix="data/" if table.kind == "iceberg" else "",
        file_bytes_max=file_bytes_max,
    )
