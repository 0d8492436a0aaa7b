"""The input of a job: topics of a log or an archive, and a selection of their messages. As a DataFrame, or as text.

Both origins give the columns of the log, so that a job need not know where a message came from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from penstock.core.clock import iso_time
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Latest, Position, parse_positions
from penstock.spark.files.location import Location
from penstock.spark.runtime.failures import reason

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.spark.jobs.transfer.loss_accumulator import LossAccumulator
    from penstock.spark.lake.tables.table import LakeTable

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WITHOUT_PAYLOAD: Final = (
    "the archive keeps no payload of this message (it was made without _value): it cannot be published again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of messages. A message is selected if all conditions hold.

    `start` and `stop` are positions: an offset, a time, an id. `types` and `keys` are globs with `*` and `?`, of which
    one must match. `where` is a condition in Spark's SQL. Raises `InvalidRequest` for the start `latest`.
    """

    start: str = "earliest"
    stop: str | None = None
    partition: int | None = None
    types: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    where: str | None = None

    def __post_init__(self) -> None:
        first, _ = self.positions()
        if isinstance(first, Latest):
            raise InvalidRequest("from 'latest' there is nothing to read: give earliest, an offset, a time or an id")

    def positions(self) -> tuple[Position, Position | None]:
        return parse_positions(self.start, self.stop)

    def digest(self, topic: TopicName) -> str:
        """Return a hash, twelve hexadecimal digits, of the conditions and the topic: different selections have
        different hashes."""
        fields = [self.start, self.stop, self.partition, self.types, self.keys, self.where, str(topic)]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """The segments of a data directory, an object store or a broker."""

    location: Location

    def frame(
        self, spark: SparkSession, topics: Sequence[TopicName], selection: Selection, losses: LossAccumulator | None
    ) -> DataFrame:
        """Return the messages of the topics. Only those conditions are applied by which a log can be searched; the
        caller applies the others. Messages that cannot be read are added to `losses`, or with None fail the read."""
        options = _location_options(self.location) | {"subscribe": ",".join(map(str, topics))}
        options |= {"includeAttributes": "true"}
        if where := log_condition(selection):
            options["where"] = where
        return (
            spark.read.format("penstock").options(**options).load()
            if losses is None
            else losses.read_without_lost(options)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOrigin:
    """The tables that `penstock archive` made, with the bad-rows tables."""

    warehouse: str
    table_format: str = "delta"
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)

    def frame(
        self, spark: SparkSession, topics: Sequence[TopicName], _selection: Selection, _losses: LossAccumulator | None
    ) -> DataFrame:
        from pyspark.sql import functions as f

        parts = [_as_log(part) for topic in topics for part in self._tables(spark, topic)]
        selected = [str(topic) for topic in topics]
        return reduce(lambda one, other: one.unionByName(other), parts).where(f.col("topic").isin(selected))

    def _tables(self, spark: SparkSession, topic: TopicName) -> list[DataFrame]:
        from penstock.spark.lake.frames import read_frame
        from penstock.spark.lake.tables.names import ALL_TOPICS_TABLE, bad_table_of, table_of

        names = [name for name in (table_of(topic), ALL_TOPICS_TABLE) if self._table(name).exists()]
        if not names:
            raise InvalidRequest(
                f"the archive {self.warehouse} has no {self.table_format} table of {topic}: it would be"
                f" {table_of(topic)}",
                topic=str(topic),
            )
        tables = [self._table(name) for name in (names[0], bad_table_of(names[0]))]
        return [read_frame(spark, table) for table in tables if table.exists()]

    def _table(self, name: str) -> LakeTable:
        from penstock.spark.lake.tables.table_factory import open_table

        return open_table(
            self.table_format, self.warehouse, name, storage_options=self.storage_options, catalog=self.catalog
        )


Origin = LogOrigin | ArchiveOrigin


def select_messages(
    spark: SparkSession,
    origin: Origin,
    topics: Sequence[TopicName],
    selection: Selection,
    *,
    losses: LossAccumulator | None = None,
) -> DataFrame:
    """Return the selected messages, in the columns of the log. A message of a log that cannot be read makes the
    computation fail; with `losses` it is left out and added there.

    Raises `InvalidRequest` for a condition that Spark refuses.
    """
    rows = origin.frame(spark, topics, selection, losses)
    for condition in _conditions(selection):
        rows = rows.where(condition)
    return rows if selection.where is None else _where(rows, selection.where)


def _where(rows: DataFrame, condition: str) -> DataFrame:
    from pyspark.errors import PySparkException

    try:
        return rows.where(condition)
    except PySparkException as error:
        raise InvalidRequest(f"where={condition!r} is no condition on these messages: {reason(error)}") from None


def _conditions(selection: Selection) -> list[Column]:
    from pyspark.sql import functions as f

    first, last = selection.positions()
    conditions = [*_bounds(first, lower=True), *_bounds(last, lower=False)]
    if selection.partition is not None:
        conditions.append(f.col("partition") == selection.partition)
    if selection.types:
        conditions.append(_any([_like(f.col("type"), glob) for glob in selection.types]))
    if selection.keys:
        conditions.append(_any([_like(f.col("key").cast("string"), glob) for glob in selection.keys]))
    return conditions


def _bounds(place: Position | None, *, lower: bool) -> list[Column]:
    """Return the condition of Spark that a position stands for, as a list of one: at or behind it with `lower`,
    otherwise before it. Empty for no position, and for the ends of the log."""
    from pyspark.sql import functions as f

    value: Any
    match place:
        case None | Earliest() | Latest():
            return []
        case AtOffset(offset):
            name, value = "offset", int(offset)
        case AtTime(unix_ms):
            name, value = "timestamp", _EPOCH + timedelta(milliseconds=unix_ms)
        case AtId(id_):
            name, value = "id", bytearray(id_)
    return [f.col(name) >= f.lit(value) if lower else f.col(name) < f.lit(value)]


def _any(conditions: list[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions)


def _like(column: Column, glob: str) -> Column:
    """Return a condition for a glob: `*` is any text and `?` one character; without them it is equality."""
    if not _has_wildcards(glob):
        return column == glob
    return column.rlike(f"(?s)^{regex_of(glob)}$")


def _has_wildcards(glob: str) -> bool:
    return bool({"*", "?"} & set(glob))


def log_condition(selection: Selection) -> str:
    """Return those conditions by which a log can be searched, in the syntax of the source's option `where`; an empty
    text if there are none."""
    first, last = selection.positions()
    conditions = [*_condition_text(first, ">="), *_condition_text(last, "<")]
    if selection.partition is not None:
        conditions.append(f"partition = {selection.partition}")
    if selection.types and not any(map(_has_wildcards, selection.types)):
        conditions.append(f"type in ({', '.join(map(_quoted, selection.types))})")
    return " and ".join(conditions)


def _condition_text(place: Position | None, sign: str) -> list[str]:
    match place:
        case AtOffset(offset):
            return [f"offset {sign} {int(offset)}"]
        case AtTime(unix_ms):
            return [f"timestamp {sign} '{iso_time(unix_ms)}'"]
        case AtId(id_):
            return [f"id {sign} X'{id_.hex()}'"]
    return []


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def regex_of(glob: str) -> str:
    """Return a glob as a regular expression of Java. All characters except `*` and `?` stand for themselves."""
    parts = {"*": ".*", "?": "."}
    return "".join(parts.get(char) or (char if char.isalnum() else f"\\x{{{ord(char):x}}}") for char in glob)


def _as_log(rows: DataFrame) -> DataFrame:
    """Return the rows of an archive table in the columns of the log. A row whose payload the archive did not keep fails
    the read."""
    from pyspark.sql import functions as f

    from penstock.spark.lake.tables.columns import LOG_NAMES

    names = {**LOG_NAMES, "_topic": "topic", "_partition": "partition"}
    columns = [f.col(name).alias(plain) for name, plain in names.items() if name != "_value"]
    payload = f.coalesce(f.col("_value"), f.raise_error(f.lit(_WITHOUT_PAYLOAD)).cast("binary"))
    return rows.select(payload.alias("value"), *columns)


def _location_options(location: Location) -> dict[str, str]:
    """Return the options of Spark's source `penstock` for this location."""
    name = "url" if location.is_broker else "path"
    return {name: location.uri, **{f"storage.{key}": value for key, value in location.storage_options}}
