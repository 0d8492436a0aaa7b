"""The function `decode` for DataFrames. No other module of this package imports Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.spark.decode.assembly import BAD
from penstock.spark.decode.decoder import Decoder
from penstock.spark.decode.layout import Layout, check_columns
from penstock.spark.decode.options import LATEST, Mode, Unnamed
from penstock.spark.decode.quarantine import BadRecords
from penstock.spark.decode.target import target_for
from penstock.spark.files.location import BROKER_SCHEMES, Location
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.runtime.versions import arrow_schema, spark_schema

BadSink = str | Callable[[pa.RecordBatch], None]
Batches = Iterable[pa.RecordBatch]
_Word = TypeVar("_Word", Mode, Unnamed)


class Split(NamedTuple):
    """Good and bad rows of the same messages. Each reads and decodes them when it is used: persist if you use both."""

    good: DataFrame
    bad: DataFrame


def decode(
    df: DataFrame,
    *,
    topic: str | Sequence[str],
    registry: str | RegistryLocation,
    pick: str = LATEST,
    subject: str | None = None,
    message: str | None = None,
    mode: str = Mode.FAIL,
    framing: str | None = None,
    unnamed: str = Unnamed.BAD,
    bad_records: BadSink | None = None,
) -> DataFrame | Split:
    """Return the messages with typed columns in the place of `value`; `penstock.spark.decode.layout` describes their
    names.

    `df` needs the columns `value` and `schema_id`, as the data source gives them. `registry` says where the schemas
    are: a data directory, the URL of a broker or of a registry, or a file that `penstock schema export` wrote. `pick`,
    `subject` and `message` choose the columns, see `target_for`.

    `mode` says what happens to rows that do not decode. `fail` makes the job fail at the first. `null` keeps them with
    nulls, and has the reason in the column `_error`. `quarantine` leaves them out, and returns two DataFrames, the good
    rows and the bad ones (`topic, partition, offset, id, schema_id, schema_version, reason, value`). If `bad_records`
    is given, a directory or a function that takes Arrow batches, only the good rows are returned; the workers pass it
    the bad rows, each at least once.

    `framing` is `confluent` if payloads begin with the id of their schema, `auto` if some do. `unnamed` says what
    happens to messages that name no schema: with `bad` they do not decode, with `latest` the latest schema reads them.

    Raises `InvalidRequest` for wrong arguments, missing columns, and topics without a schema.
    """
    check_columns(df.columns)
    chosen = _word(Mode, "mode", mode)
    if bad_records is not None and chosen is not Mode.QUARANTINE:
        raise InvalidRequest(f"bad_records is for mode='quarantine', and mode is {chosen.value!r}")
    at = registry_at(registry)
    target = target_for(at.open(), _topics(topic), pick=pick, subject=subject, message=message)
    kept = arrow_schema(df.schema)
    layout = Layout.of(target, kept, chosen)
    work = _DecodeTask(layout, at, chosen, framing, _word(Unnamed, "unnamed", unnamed), bad_records)
    work.decoder()
    good = df.mapInArrow(work.good, spark_schema(layout.schema))
    if chosen is not Mode.QUARANTINE or bad_records is not None:
        return good
    return Split(good, df.mapInArrow(work.bad, spark_schema(BAD)))


@dataclass(frozen=True, slots=True)
class _DecodeTask:
    """The decoding that workers do."""

    layout: Layout
    registry: RegistryLocation
    mode: Mode
    framing: str | None
    unnamed: Unnamed
    bad_records: BadSink | None

    def decoder(self) -> Decoder:
        return Decoder(self.layout.target, self.registry, self.mode, framing=self.framing, unnamed=self.unnamed)

    def good(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        if isinstance(self.bad_records, str):
            with BadRecords(self.bad_records) as sink:
                yield from self._rows(batches, sink.add)
        else:
            yield from self._rows(batches, self.bad_records)

    def _rows(self, batches: Batches, sink: Callable[[pa.RecordBatch], None] | None) -> Iterator[pa.RecordBatch]:
        decoder = self.decoder()
        for batch in batches:
            decoded = decoder.decode(batch)
            if sink is not None and decoded.bad.num_rows:
                sink(decoded.bad)
            yield self.layout.rows(batch, decoded)

    def bad(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        decoder = self.decoder()
        for batch in batches:
            yield decoder.decode(batch).bad


def registry_at(given: str | RegistryLocation) -> RegistryLocation:
    """Return the location of the registry at a path or URL; it is not opened. Raises `InvalidRequest` for a wrong
    URL."""
    if isinstance(given, RegistryLocation):
        return given
    if given.startswith(tuple(f"{scheme}://" for scheme in BROKER_SCHEMES)):
        return RegistryLocation(Location.parse(url=given))
    if Path(given).expanduser().is_dir():
        return RegistryLocation(Location.parse(path=given))
    return RegistryLocation(Location(""), str(Path(given).expanduser().absolute()))


def _topics(given: str | Sequence[str]) -> list[TopicName]:
    names = [given] if isinstance(given, str) else list(given)
    if not names:
        raise InvalidRequest("topic is empty: name the topic whose schemas the columns are of")
    return [TopicName.parse(name) for name in names]


def _word(kind: type[_Word], name: str, given: str) -> _Word:
    try:
        return kind(given)
    except ValueError:
        raise InvalidRequest(f"{name}={given!r}: it is {', '.join(kind)}", given=given) from None
