"""Slices of topics into files of tables: what one task of an archive does. In the workers, without Spark.

Rows are made from the log's own columns and, where a topic has schemas, from its payloads. What does not decode goes to
the companion table with the reason; what names no schema stays as it is, in `_value`. Nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import PenstockError, error_from_dict
from penstock.spark.lake.archive.bad_rows import BadRows
from penstock.spark.lake.tables.cast import cast_array
from penstock.spark.lake.tables.columns import BAD_COLUMNS, DAY_COLUMN, LOG_NAMES, ColumnMapping, column_type
from penstock.spark.lake.tables.file_writer import FileLayout, FileWriter
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.table import DataFile, OffsetRange
from penstock.spark.scan.slice_reader import LostRange, batches
from penstock.spark.scan.slices import Slice

if TYPE_CHECKING:
    from penstock.spark.decode.target import Target
    from penstock.spark.files.registry import RegistryLocation

_READ: Final = ("topic", "partition", *LOG_NAMES.values())


@dataclass(frozen=True, slots=True)
class Output:
    """Where files go, and how they look."""

    folder: Folder
    layout: FileLayout


@dataclass(frozen=True, slots=True)
class PayloadDecoding:
    """How payloads become columns."""

    target: Target
    registry: RegistryLocation
    mappings: tuple[ColumnMapping, ...]
    keep_values: bool
    """Whether payloads that decode stay in `_value` as well."""
    bad: Output


@dataclass(frozen=True, slots=True)
class QuarantinedOffsets:
    """Offsets of a partition that the companion table was told of before the table was: those it has are bad, and no
    others are. It was decided when they were committed, whatever would be decided today."""

    topic: str
    partition: int
    start: int
    stop: int
    bad: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Some slices of one table's topics."""

    table: str
    output: Output
    slices: tuple[Slice, ...]
    name: str
    """The beginning of its files' names."""
    typed: PayloadDecoding | None = None
    verify: bool = True
    fail_on_data_loss: bool = True
    quarantined: tuple[QuarantinedOffsets, ...] = ()


@dataclass(slots=True)
class WriteResult:
    """What a job has written. Nothing of it is in a table yet."""

    table: str
    ranges: list[OffsetRange]
    files: list[DataFile] = field(default_factory=list)
    bad: list[DataFile] = field(default_factory=list)
    lost: int = 0
    why: BadRows = field(default_factory=BadRows)
    """Of the bad ones."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, said: dict[str, Any]) -> WriteResult:
        ranges = [OffsetRange(*each) for each in said["ranges"]]
        files, bad = ([DataFile(**each) for each in said[name]] for name in ("files", "bad"))
        return cls(said["table"], ranges, files, bad, said["lost"], BadRows.of_json(said["why"]))


def run_task(task: WriteTask) -> WriteResult:
    """Write the files of a job. After an error there are none."""
    result = WriteResult(
        task.table, [OffsetRange(each.topic, each.partition, each.start, each.stop) for each in task.slices]
    )

    def lose(loss: LostRange) -> None:
        result.lost += loss.stop - loss.start

    with ExitStack() as stack:
        good = stack.enter_context(FileWriter(task.output.folder, task.output.layout, task.name))
        bad = None
        if task.typed is not None:
            bad = stack.enter_context(FileWriter(task.typed.bad.folder, task.typed.bad.layout, task.name))
        rows = RowMaker(task.output.layout.schema, task.typed, task.quarantined)
        for slice_ in task.slices:
            for batch in batches(
                slice_, _READ, verify=task.verify, fail_on_data_loss=task.fail_on_data_loss, on_loss=lose
            ):
                made = rows.of(batch)
                good.write(made.good)
                if bad is not None and made.bad is not None:
                    bad.write(made.bad)
                    result.why.add_rows(made.bad)
        result.files = good.finish()
        result.bad = [] if bad is None else bad.finish()
    return result


def run_as_json(task: WriteTask) -> dict[str, Any]:
    """As it travels back from a worker: an error of ours as what it says, so that it is raised again as itself."""
    try:
        return run_task(task).as_json()
    except PenstockError as error:
        return {"error": error.as_dict()}


def results_of(said: Sequence[dict[str, Any]]) -> list[WriteResult]:
    """Raises the first error among them."""
    for each in said:
        if "error" in each:
            raise error_from_dict(each["error"])
    return [WriteResult.of_json(each) for each in said]


@dataclass(frozen=True, slots=True)
class TableRows:
    good: pa.RecordBatch
    bad: pa.RecordBatch | None = None


class RowMaker:
    """Makes rows of a table out of batches of a log."""

    def __init__(
        self, schema: pa.Schema, typed: PayloadDecoding | None, quarantined: Sequence[QuarantinedOffsets] = ()
    ) -> None:
        self._schema = schema
        self._quarantined = quarantined
        self._is_typed = typed is not None
        if typed is not None:
            from penstock.spark.decode.decoder import Decoder  # with all languages of schemas: a second of imports
            from penstock.spark.decode.options import Mode

            self._decoder = Decoder(typed.target, typed.registry, Mode.QUARANTINE)
            self._mappings = typed.mappings
            self._keep_values = typed.keep_values

    def of(self, batch: pa.RecordBatch) -> TableRows:
        """`batch` is of one partition. Rows that the companion has already are left out."""
        batch = self._without_quarantined(batch)
        columns = system_columns(batch)
        unnamed = batch.column("schema_id").null_count
        if not self._is_typed or unnamed == batch.num_rows:
            return TableRows(self._batch(columns, batch.num_rows))
        named = None if not unnamed else pc.indices_nonzero(batch.column("schema_id").is_valid())
        return self._decoded(columns, batch, named)

    def _without_quarantined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for each in self._quarantined_in(batch):
            batch = batch.filter(pc.invert(pc.is_in(batch.column("offset"), pa.array(each.bad, pa.int64()))))
        return batch

    def _quarantined_in(self, batch: pa.RecordBatch) -> list[QuarantinedOffsets]:
        if not self._quarantined or not batch.num_rows:
            return []
        source = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        return [each for each in self._quarantined if (each.topic, each.partition) == source]

    def _reasons_of_new(self, batch: pa.RecordBatch, reasons: pa.Array) -> pa.Array:
        """Why rows are bad; null for those of which it was settled that they are not. They stay as they are."""
        offset = batch.column("offset")
        for each in self._quarantined_in(batch):
            good = pc.and_(pc.greater_equal(offset, each.start), pc.less(offset, each.stop))
            reasons = pc.if_else(good, pa.scalar(None, reasons.type), reasons)
        return reasons

    def _decoded(self, columns: dict[str, pa.Array], batch: pa.RecordBatch, places: pa.Array | None) -> TableRows:
        """`places` are the rows that name a schema, if not all do."""
        rows = batch.num_rows
        found = self._decoder.decode(batch if places is None else batch.take(places))
        reasons = found.reasons if places is None else _scattered(found.reasons, places, rows)
        typed = self._typed_columns(found.rows)
        if found.rows.num_rows < rows:
            kept = found.kept if places is None else places.take(found.kept)
            which = _scattered(pa.array(np.arange(len(kept))), kept, rows)
            typed = {name: column.take(which) for name, column in typed.items()}
        whole = self._batch(columns | self._values(batch, reasons) | typed, rows)
        reasons = self._reasons_of_new(batch, reasons)
        if reasons.null_count == rows:
            return TableRows(whole)
        bad = [(columns | {"_reason": reasons})[name] for name in BAD_COLUMNS.names]
        return TableRows(
            whole.filter(reasons.is_null()),
            pa.RecordBatch.from_arrays(bad, schema=BAD_COLUMNS).filter(reasons.is_valid()),
        )

    def _typed_columns(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        made = {}
        for mapping in self._mappings:
            column = rows.column(mapping.field)
            named = cast_array(column, column_type(column.type), by_position=True)
            made[mapping.column] = cast_array(named, mapping.kind)
        return made

    def _values(self, batch: pa.RecordBatch, reasons: pa.Array) -> dict[str, pa.Array]:
        """Payloads of rows that are typed are kept in `_value` only if that is asked for."""
        if self._keep_values:
            return {}
        typed, values = pc.and_(batch.column("schema_id").is_valid(), reasons.is_null()), batch.column("value")
        return {"_value": pc.if_else(typed, pa.scalar(None, values.type), values)}

    def _batch(self, columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        """Columns that the table has and these rows have not are null."""
        arrays = [columns[each.name] if each.name in columns else pa.nulls(rows, each.type) for each in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _scattered(values: pa.Array, places: pa.Array, rows: int) -> pa.Array:
    """The values at these places of so many rows; null elsewhere."""
    return pc.scatter(values, places.cast(pa.int64()), max_index=rows - 1)


def system_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """What every message has."""
    columns = {name: batch.column(source) for name, source in LOG_NAMES.items()}
    columns |= {"_topic": batch.column("topic"), "_partition": batch.column("partition")}
    return columns | {DAY_COLUMN: batch.column("timestamp").cast(pa.date32())}
