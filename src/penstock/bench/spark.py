"""The speed of Spark jobs over a topic, compared with what Spark itself does with the same rows, in the same
session."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.bench import Figure, best_seconds
from penstock.bench.schema import ORDER, payload
from penstock.bench.spark_latency import latencies
from penstock.bench.stream import best_in_turns
from penstock.core.names import TopicName
from penstock.core.schemas import Schema, SchemaKind, default_subject
from penstock.record.block import Draft
from penstock.record.kernels import kernel_cache
from penstock.schema.languages import SchemaLanguages
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import run_procedure
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit.run import audit
from penstock.spark.lake.archive.run import archive
from penstock.storage.base.disk import OsDisk
from penstock.storage.inspect.verify import segment_paths, verify_segment
from penstock.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = TopicName.parse("bench.orders")
CORES: Final = 2
_BATCH: Final = 10_000
_RARE_EVERY: Final = 100
_RARE: Final = "order.returned"
_METADATA: Final = "topic,partition,offset,timestamp,type"
_ROW: Final = "order string, customer long, amount double, currency string, express boolean, note string"


@dataclass(frozen=True, slots=True)
class SampleLog:
    """A data directory with one topic of 200-byte JSON messages that name their schema. One in a hundred has a rare
    type."""

    path: Path
    messages: int

    @classmethod
    def make(cls, path: Path, messages: int, *, distinct: int | None = None) -> SampleLog:
        """Create the log with `messages` messages. With `distinct`, only that many different payloads are made, and
        repeated, since making them takes most of the time."""
        different = messages if distinct is None else distinct
        with Store.open(path, create=True) as store:
            store.create_topic(TOPIC)
            wanted = Schema(kind=SchemaKind.JSON, text=json.dumps(ORDER))
            registry = Registry(store.catalog.schemas)
            made = run_procedure(registry.register(default_subject(TOPIC), wanted), SchemaLanguages())
            known: dict[int, Draft] = {}
            for start in range(0, messages, _BATCH):
                first, rows = start % different, min(_BATCH, messages - start)
                draft = known.get(first) or _draft(range(first, first + rows), made.schema_id, made.version)
                if different < messages:
                    known[first] = draft
                store.append(TOPIC, draft)
        return cls(path, messages)

    @property
    def location(self) -> Location:
        return Location.parse(path=str(self.path))

    def frame(self, spark: SparkSession, **options: str) -> DataFrame:
        chosen = {"path": str(self.path), "subscribe": str(TOPIC), **options}
        return spark.read.format("penstock").options(**chosen).load()


def _draft(numbers: range, schema_id: int, version: int) -> Draft:
    rows = len(numbers)
    types = [_RARE if number % _RARE_EVERY == 0 else "order.created" for number in numbers]
    columns = {
        "value": pa.array([payload(number) for number in numbers], pa.binary()),
        "key": pa.array([b"customer-%d" % (number % 1000) for number in numbers], pa.binary()),
        "type": pa.array(types),
        "schema_id": pa.array(np.full(rows, schema_id, np.int64)),
        "schema_version": pa.array(np.full(rows, version, np.int32)),
    }
    return Draft.from_arrow(pa.RecordBatch.from_pydict(columns))


def drain(frame: DataFrame) -> None:
    """Compute every row of a frame and discard the rows."""
    frame.write.format("noop").mode("overwrite").save()


def measure(folder: Path, *, messages: int = 4_000_000, rounds: int = 3, seconds: float = 20.0) -> Iterator[Figure]:
    """Yield all figures. Files are kept in `folder`, which needs about a kilobyte of space per message."""
    from penstock.spark.runtime.session import session

    kernel_cache.load_all()
    sample = SampleLog.make(folder / "data", messages)
    spark = session("bench", master=f"local[{CORES}]", memory="4g")
    try:
        bench = SparkMeasurements(spark, folder, sample, rounds)
        yield from bench.reading()
        yield bench.decoding()
        yield from bench.archiving()
        yield bench.auditing()
        yield latencies(spark, folder / "latency", seconds=seconds)
        yield bench.growing()
    finally:
        spark.stop()


class SparkMeasurements:
    def __init__(self, spark: SparkSession, folder: Path, sample: SampleLog, rounds: int) -> None:
        self._spark = spark
        self._folder = folder
        self._sample = sample
        self._rounds = rounds
        self._parquet = str(folder / "parquet")

    def _rate(self, work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return self._sample.messages / (time.perf_counter() - began)

    def _copy(self) -> DataFrame:
        """Return a frame of the same rows in Parquet. Its schema is passed to Spark, as Penstock's source does it:
        otherwise Spark would run a job first to find it."""
        return self._spark.read.schema(self._sample.frame(self._spark).schema).parquet(self._parquet)

    def _read(self, **options: str) -> Callable[[], float]:
        return partial(self._rate, lambda: drain(self._sample.frame(self._spark, **options)))

    def reading(self) -> Iterator[Figure]:
        self._sample.frame(self._spark).write.option("compression", "snappy").parquet(self._parquet)
        first = self._sample.messages // 2
        tenth = f"offset >= {first} and offset < {first + self._sample.messages // 10}"
        sides: dict[str, Callable[[], float]] = {
            "Parquet": partial(self._rate, lambda: drain(self._copy())),
            "full": self._read(),
            "metadata": self._read(columns=_METADATA),
            "rare": self._read(where=f"type = '{_RARE}'"),
            "tenth": self._read(where=tenth),
        }
        best = best_in_turns(sides, self._rounds + 1)  # the first round warms the JVM
        yield _beside("read, every column, verified", best["full"], "Spark's own reader of Parquet", best["Parquet"])
        yield _beside("read, metadata alone", best["metadata"], "every column", best["full"])
        yield _beside("read, a type that one message in a hundred has", best["rare"], "every column", best["full"])
        yield _beside("read, a tenth by offset", best["tenth"], "every column", best["full"])

    def decoding(self) -> Figure:
        names = [name.split()[0] for name in _ROW.split(", ")]

        def theirs() -> None:
            drain(_decoded(self._sample.frame(self._spark, columns="value")).select(*names))

        def ours() -> None:
            drain(self._sample.frame(self._spark, columns="offset", decode="registry").select(*names))

        sides = {"ours": partial(self._rate, ours), "theirs": partial(self._rate, theirs)}
        best = best_in_turns(sides, self._rounds)
        return _beside("JSON to typed columns", best["ours"], "Spark's from_json", best["theirs"])

    def archiving(self) -> Iterator[Figure]:
        """Measure archiving, with payloads as they are and decoded to typed columns. The times include the start of the
        query and the commit.

        The reference copies Parquet files and decodes nothing. Typed archiving is compared with it, and also with a
        reference that decodes.
        """
        sides: dict[str, Callable[[], float]] = {
            "plain": partial(self._rate, lambda: self._archived(decode=False)),
            "typed": partial(self._rate, lambda: self._archived(decode=True)),
            "copied": partial(self._rate, lambda: self._written(self._copy())),
            "decoded": partial(self._rate, lambda: self._written(_decoded(self._copy()))),
        }
        best = best_in_turns(sides, self._rounds)
        copied, decoded = "Spark copies Parquet to Parquet", "Spark copies, and decodes with from_json"
        yield _beside("archive to Delta", best["plain"], copied, best["copied"])
        yield _beside("archive to Delta, typed", best["typed"], copied, best["copied"])
        yield _beside("archive to Delta, typed as well", best["typed"], decoded, best["decoded"])

    def _written(self, frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(str(self._folder / "copy"))

    def _archived(self, *, decode: bool) -> None:
        warehouse = self._folder / "lake"
        shutil.rmtree(warehouse, ignore_errors=True)
        archive(self._spark, self._sample.location, [str(TOPIC)], warehouse=str(warehouse), once=True, decode=decode)

    def auditing(self) -> Figure:
        def alone() -> None:
            for path in segment_paths(self._sample.path / "topics"):
                verify_segment(OsDisk(), path)

        sides = {
            "ours": partial(self._rate, lambda: audit(self._spark, self._sample.location)),
            "alone": partial(self._rate, alone),
        }
        best = best_in_turns(sides, self._rounds)
        return _beside("audit of a data directory", best["ours"], f"{CORES} times one process", CORES * best["alone"])

    def growing(self) -> Figure:
        """Measure whether the read rate stays the same for more data: the rate for all messages, compared with that for
        a sixteenth of them."""
        small = self._sample.messages // 16
        part = f"offset < {small}"
        whole = best_seconds(lambda: drain(self._sample.frame(self._spark)), rounds=self._rounds)
        piece = best_seconds(lambda: drain(self._sample.frame(self._spark, where=part)), rounds=self._rounds)
        return _beside("read, rate of all", self._sample.messages / whole, "rate of a sixteenth", small / piece)


def _decoded(frame: DataFrame) -> DataFrame:
    """Return the rows with the JSON in `value` decoded to columns by Spark's own `from_json`."""
    from pyspark.sql.functions import from_json

    return frame.select("*", from_json(frame.value.cast("string"), _ROW).alias("row")).select("*", "row.*").drop("row")


def _beside(name: str, ours: float, reference: str, theirs: float) -> Figure:
    return Figure(
        name=name, value=ours, unit="messages/s", reference=reference, reference_value=theirs, ratio=ours / theirs
    )
