"""`decode = registry` of the data source: a task that turns the payloads of a slice into typed columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.spark.decode.decoder import Decoder
from penstock.spark.decode.layout import Layout
from penstock.spark.decode.options import Mode, Unnamed
from penstock.spark.decode.quarantine import BadRecords
from penstock.spark.decode.target import target_for
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.runtime.versions import arrow_schema
from penstock.spark.scan.columns import COLUMNS, schema_of
from penstock.spark.scan.filters import NO_FILTERS, Filters
from penstock.spark.scan.slice_reader import batches
from penstock.spark.scan.slices import Slice
from penstock.spark.source.option_values import Framing

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.spark.source.options import ReadOptions


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """A read task with decoding: made on the driver, run in the workers."""

    layout: Layout
    registry: RegistryLocation
    mode: Mode
    bad_records: str | None = None
    framing: str | None = None
    unnamed: Unnamed = Unnamed.BAD
    verify: bool = True
    fail_on_data_loss: bool = True

    @property
    def schema(self) -> pa.Schema:
        return self.layout.schema

    def run(self, part: Slice, filters: Filters = NO_FILTERS) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(self.layout.target, self.registry, self.mode, framing=self.framing, unnamed=self.unnamed)
        found = batches(
            part,
            self.layout.reads,
            verify=self.verify,
            filters=filters,
            fail_on_data_loss=self.fail_on_data_loss,
        )
        with nullcontext() if self.bad_records is None else BadRecords(self.bad_records) as bad_records:
            for batch in found:
                decoded = decoder.decode(batch)
                if bad_records is not None:
                    bad_records.add(decoded.bad)
                yield self.layout.rows(batch, decoded)


def decode_task(
    options: ReadOptions, topics: Callable[[], Sequence[TopicName]], schema: StructType | None = None
) -> DecodeTask:
    """Return the task for a read with `decode=registry`.

    `topics` is called once and returns the topics of the read. `schema` has the columns that Spark wants: the user's
    own, or those that the source chose before. Payload fields outside of it are not decoded. None stands for all
    columns.

    Raises `InvalidRequest` if the options have no `decode`, if the topics have no schema, if `quarantine` lacks the
    option `badRecords`, or if `schema` has a column that does not exist or has another type.
    """
    asked = options.decode
    if asked is None:
        raise InvalidRequest("decode is not asked for")
    mode = asked.mode
    if mode is Mode.QUARANTINE and asked.bad_records is None:
        raise InvalidRequest(
            "option decodeMode is 'quarantine', and badRecords does not say where to: give it a directory"
        )
    registry = RegistryLocation(options.location, asked.registry)
    target = target_for(registry.open(), topics(), pick=asked.pick)
    layout = Layout.of(target, schema_of(options.columns) if schema is None else COLUMNS, mode)
    return DecodeTask(
        layout=layout if schema is None else layout.only(arrow_schema(schema)),
        registry=registry,
        mode=mode,
        bad_records=asked.bad_records,
        framing=None if asked.framing is Framing.NONE else asked.framing.value,
        unnamed=asked.unnamed,
        verify=options.verify,
        fail_on_data_loss=options.fail_on_data_loss,
    )
