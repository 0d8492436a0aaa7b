"""The write task of an archive: slices of topics into files of tables. Runs in the workers, without Spark.

Rows are made of the log's own columns and, where a topic has schemas, of its payloads. A payload that does not decode
goes to the bad-rows table with the reason; a payload that names no schema stays unchanged in `_value`. No message is
left out.
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
    """The folder and the layout of a table's files."""

    folder: Folder
    layout: FileLayout


@dataclass(frozen=True, slots=True)
class PayloadDecoding:
    """The decoding of payloads into columns."""

    target: Target
    registry: RegistryLocation
    mappings: tuple[ColumnMapping, ...]
    keep_values: bool
    """True if the column `_value` keeps also those payloads that were decoded."""
    bad: Output


@dataclass(frozen=True, slots=True)
class QuarantinedOffsets:
    """Offsets `start` to `stop` of a partition for which the bad-rows table is committed and the main table is not.

    The messages at the offsets in `bad` are in the bad-rows table; all others belong into the main table. This was
    decided when they were first decoded, and holds even if a payload would decode differently now.
    """

    topic: str
    partition: int
    start: int
    stop: int
    bad: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Slices of one table's topics, to be written as files."""

    table: str
    output: Output
    slices: tuple[Slice, ...]
    name: str
    """First part of the names of the files that the task writes."""
    typed: PayloadDecoding | None = None
    verify: bool = True
    fail_on_data_loss: bool = True
    quarantined: tuple[QuarantinedOffsets, ...] = ()


@dataclass(slots=True)
class WriteResult:
    """The files that a task has written, and the offsets in them. The files are not committed to a table yet. `lost`
    counts messages that the log has lost."""

    table: str
    ranges: list[OffsetRange]
    files: list[DataFile] = field(default_factory=list)
    bad: list[DataFile] = field(default_factory=list)
    lost: int = 0
    why: BadRows = field(default_factory=BadRows)
    """Offsets and reasons of the bad rows."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, sent: dict[str, Any]) -> WriteResult:
        ranges = [OffsetRange(*values) for values in sent["ranges"]]
        files, bad = ([DataFile(**file) for file in sent[name]] for name in ("files", "bad"))
        return cls(sent["table"], ranges, files, bad, sent["lost"], BadRows.of_json(sent["why"]))


def run_task(task: WriteTask) -> WriteResult:
    """Write the files of a task and return them. After an error the files written so far are deleted."""
    result = WriteResult(
        task.table, [OffsetRange(slice_.topic, slice_.partition, slice_.start, slice_.stop) for slice_ in task.slices]
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
                split = rows.of(batch)
                good.write(split.good)
                if bad is not None and split.bad is not None:
                    bad.write(split.bad)
                    result.why.add_rows(split.bad)
        result.files = good.finish()
        result.bad = [] if bad is None else bad.finish()
    return result


def run_as_json(task: WriteTask) -> dict[str, Any]:
    """Run a task and return its result as a dict for JSON. A Penstock error is returned as `{"error": ...}`, from which
    `results_of` makes the same error in the driver."""
    try:
        return run_task(task).as_json()
    except PenstockError as error:
        return {"error": error.as_dict()}


def results_of(sent: Sequence[dict[str, Any]]) -> list[WriteResult]:
    """Return the results that workers sent as dicts (see `run_as_json`). If any of them is an error, raise the
    first."""
    for result in sent:
        if "error" in result:
            raise error_from_dict(result["error"])
    return [WriteResult.of_json(result) for result in sent]


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
            from penstock.spark.decode.decoder import Decoder  # imports all schema languages, which takes a second
            from penstock.spark.decode.options import Mode

            self._decoder = Decoder(typed.target, typed.registry, Mode.QUARANTINE)
            self._mappings = typed.mappings
            self._keep_values = typed.keep_values

    def of(self, batch: pa.RecordBatch) -> TableRows:
        """Return the rows of a batch, split into good and bad ones, without rows that the bad-rows table has already.
        All messages of the batch must be of one partition."""
        batch = self._without_quarantined(batch)
        columns = system_columns(batch)
        unnamed = batch.column("schema_id").null_count
        if not self._is_typed or unnamed == batch.num_rows:
            return TableRows(self._batch(columns, batch.num_rows))
        named = None if not unnamed else pc.indices_nonzero(batch.column("schema_id").is_valid())
        return self._decoded(columns, batch, named)

    def _without_quarantined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for known in self._quarantined_in(batch):
            batch = batch.filter(pc.invert(pc.is_in(batch.column("offset"), pa.array(known.bad, pa.int64()))))
        return batch

    def _quarantined_in(self, batch: pa.RecordBatch) -> list[QuarantinedOffsets]:
        if not self._quarantined or not batch.num_rows:
            return []
        source = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        return [known for known in self._quarantined if (known.topic, known.partition) == source]

    def _reasons_of_new(self, batch: pa.RecordBatch, reasons: pa.Array) -> pa.Array:
        """Return `reasons`, with null for rows that an earlier run found good. Such rows go to the main table even if
        their payload does not decode now."""
        offset = batch.column("offset")
        for known in self._quarantined_in(batch):
            good = pc.and_(pc.greater_equal(offset, known.start), pc.less(offset, known.stop))
            reasons = pc.if_else(good, pa.scalar(None, reasons.type), reasons)
        return reasons

    def _decoded(self, columns: dict[str, pa.Array], batch: pa.RecordBatch, places: pa.Array | None) -> TableRows:
        """Decode payloads and return the good and the bad rows. `places` are the numbers of the rows that name a
        schema; only these are decoded. None means all rows."""
        rows = batch.num_rows
        decoded = self._decoder.decode(batch if places is None else batch.take(places))
        reasons = decoded.reasons if places is None else _scattered(decoded.reasons, places, rows)
        typed = self._typed_columns(decoded.rows)
        if decoded.rows.num_rows < rows:
            decoded_places = decoded.kept if places is None else places.take(decoded.kept)
            which = _scattered(pa.array(np.arange(len(decoded_places))), decoded_places, rows)
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
        columns = {}
        for mapping in self._mappings:
            column = rows.column(mapping.field)
            named = cast_array(column, column_type(column.type), by_position=True)
            columns[mapping.column] = cast_array(named, mapping.kind)
        return columns

    def _values(self, batch: pa.RecordBatch, reasons: pa.Array) -> dict[str, pa.Array]:
        """Return the column `_value` with null for payloads that became columns. Return an empty dict if payloads are
        to be kept: then the column stays as it is."""
        if self._keep_values:
            return {}
        typed, values = pc.and_(batch.column("schema_id").is_valid(), reasons.is_null()), batch.column("value")
        return {"_value": pc.if_else(typed, pa.scalar(None, values.type), values)}

    def _batch(self, columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        """Build a batch in the table's schema; columns that these rows lack are null."""
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _scattered(values: pa.Array, places: pa.Array, rows: int) -> pa.Array:
    """Return an array of length `rows` with `values` at the positions `places`, and null at all others."""
    return pc.scatter(values, places.cast(pa.int64()), max_index=rows - 1)


def system_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the system columns of a batch of a log, `_value` and `_day` included, by their names in the table."""
    columns = {name: batch.column(source) for name, source in LOG_NAMES.items()}
    columns |= {"_topic": batch.column("topic"), "_partition": batch.column("partition")}
    return columns | {DAY_COLUMN: batch.column("timestamp").cast(pa.date32())}
