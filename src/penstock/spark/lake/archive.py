"""`penstock archive`: topics into tables by a Spark query, continuously or as far as there is something now.

The query's rows are slices of the log, not messages: the driver collects them, the workers read and write, the driver
commits. Spark's checkpoint says which offsets a batch has; the tables say which batches they have.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.core.errors import InvalidRequest, PenstockError, StorageFailed
from penstock.core.names import TopicName
from penstock.spark.files.location import Location
from penstock.spark.files.registry import RegistryAt
from penstock.spark.lake.batching import Archiver, BatchReport, Goal, TableReport
from penstock.spark.lake.checkpoint import Checkpoint
from penstock.spark.lake.folder import Folder
from penstock.spark.lake.landing import Job, Landed, land_as_json, landed_of
from penstock.spark.lake.names import bad_of
from penstock.spark.lake.opening import check_kind
from penstock.spark.lake.table import LakeTable, Source, fenced
from penstock.spark.runtime.classic import context
from penstock.spark.runtime.failpoints import reach
from penstock.spark.runtime.failures import raised
from penstock.spark.runtime.versions import LIMITS
from penstock.spark.scan.slices import Slice
from penstock.spark.source.subscribed import Log, Subscribed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_BYTES: Final = 1 << 30
"""Of log in one batch: what is lost of the work when a process is killed, and how many files wait for a commit."""
SLICE_BYTES: Final = 64 << 20
EVERY_SECONDS: Final = 10.0
"""Between batches, unless told otherwise: files get larger with it, and the tables staler."""
_LOOK_SECONDS: Final = 0.2
_LOG: Final = logging.getLogger("penstock.lake")

ALL_TOPICS: Final = "/.*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to archive, and how; see `archive`."""

    location: Location
    topics: tuple[str, ...] = ()
    goal: Goal
    checkpoint: Path
    once: bool = False
    take_over: bool = False
    batch_bytes: int = BATCH_BYTES
    every_seconds: float = EVERY_SECONDS
    subscription: str | None = None
    broker: str | None = None


@dataclass(slots=True)
class ArchiveReport:
    """What an archive did while it ran."""

    query_id: str
    batches: int = 0
    repeated: int = 0
    lost: int = 0
    swept: int = 0
    seconds: float = 0.0
    tables: dict[str, TableReport] = field(default_factory=dict)

    def add(self, batch: BatchReport) -> None:
        self.batches += 1
        self.repeated += batch.repeated
        self.lost += batch.lost
        for name, each in batch.tables.items():
            self.tables.setdefault(name, TableReport()).add(each)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.tables.values())

    def as_dict(self) -> dict[str, Any]:
        described = asdict(self) | {"rows": self.rows, "seconds": round(self.seconds, 3)}
        return described | {"rows_per_second": round(self.rows / self.seconds) if self.seconds else None}


def archive(
    spark: SparkSession,
    location: Location,
    topics: Sequence[str] = (),
    *,
    warehouse: str,
    kind: str = "delta",
    once: bool = False,
    name: str = "archive",
    checkpoint: str | None = None,
    one_table: bool = False,
    registry: str | None = None,
    decode: bool = True,
    keep_values: bool = True,
    take_over: bool = False,
    fail_on_data_loss: bool = True,
    batch_bytes: int = BATCH_BYTES,
    every_seconds: float = EVERY_SECONDS,
    subscription: str | None = None,
    broker: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    catalog: Mapping[str, str] | None = None,
    told: Callable[[BatchReport], None] | None = None,
    stop: threading.Event | None = None,
) -> ArchiveReport:
    """Archive topics, all of them if none is named, into tables of a warehouse, each message exactly once.

    With `once` it ends when all that is there now is archived; otherwise it goes on until `stop` is set or it is
    interrupted, which it survives in order: a batch that is under way is finished first. `told` hears of every batch.
    Raises `NotOwner` if another archive extends one of the tables, `StorageFailed` for messages that are lost or a
    topic that was made anew, `InvalidRequest` for what cannot be.
    """
    context(spark)
    if subscription is not None and broker is None:
        raise InvalidRequest(f"subscription {subscription!r} is reported to a broker: name it (HOST:PORT)")
    wanted = Wanted(
        location=location,
        topics=tuple(topics),
        goal=goal_of(
            location,
            warehouse=warehouse,
            kind=kind,
            one_table=one_table,
            registry=registry,
            decode=decode,
            keep_values=keep_values,
            fail_on_data_loss=fail_on_data_loss,
            storage_options=storage_options,
            catalog=catalog,
        ),
        checkpoint=checkpoint_of(warehouse, name, checkpoint),
        once=once,
        take_over=take_over,
        batch_bytes=batch_bytes,
        every_seconds=every_seconds,
        subscription=subscription,
        broker=broker,
    )
    with Checkpoint(wanted.checkpoint) as held:
        return Archive(spark, wanted, held, told).run(stop or threading.Event())


def goal_of(
    location: Location,
    *,
    warehouse: str,
    kind: str = "delta",
    one_table: bool = False,
    registry: str | None = None,
    decode: bool = True,
    keep_values: bool = True,
    fail_on_data_loss: bool = True,
    storage_options: Mapping[str, str] | None = None,
    catalog: Mapping[str, str] | None = None,
) -> Goal:
    check_kind(kind)
    root = Folder.parse(warehouse, storage_options)
    return Goal(
        warehouse=root.uri,
        kind=kind,
        one_table=one_table,
        registry=_registry(location, registry) if decode and not one_table else None,
        keep_values=keep_values,
        storage_options=root.options,
        catalog=tuple(sorted((catalog or {}).items())),
        fail_on_data_loss=fail_on_data_loss,
    )


def _registry(location: Location, uri: str | None) -> RegistryAt | None:
    """Where schemas are; None if none are with the data and no other place is named."""
    found = RegistryAt(location, uri)
    try:
        found.open()
    except InvalidRequest as error:
        if uri is not None:
            raise
        _LOG.warning("payloads are archived as they are, without columns of their own: %s", error.message)
        return None
    return found


def checkpoint_of(warehouse: str, name: str, given: str | None) -> Path:
    """Where an archive keeps its own. Raises `InvalidRequest` if that has to be said and is not."""
    if given is not None:
        if "://" in given:
            raise InvalidRequest(f"checkpoint {given!r}: it is a directory on the machine that runs the command")
        return Path(given).expanduser().absolute()
    root = Folder.parse(warehouse) if "://" not in warehouse else None
    if root is None:
        raise InvalidRequest(f"the warehouse {warehouse} is no local directory: say where to keep the checkpoint")
    if not name.replace("-", "").replace("_", "").isalnum():
        raise InvalidRequest(f"name {name!r}: letters, digits, '_' and '-' only", given=name)
    return root.local / "_checkpoints" / name


class Archive:
    """One run of an archive. The checkpoint is held by whoever made this."""

    def __init__(
        self,
        spark: SparkSession,
        wanted: Wanted,
        checkpoint: Checkpoint,
        told: Callable[[BatchReport], None] | None = None,
    ) -> None:
        self._spark = spark
        self._wanted = wanted
        self._checkpoint = checkpoint
        self._told = told
        self._busy = threading.Lock()
        self._stopping = False
        self._failure: Exception | None = None
        self._progress: Any = None

    def run(self, stop: threading.Event) -> ArchiveReport:
        begun = time.monotonic()
        self._begin()
        query = self._start()
        try:
            while query.isActive and not stop.wait(_LOOK_SECONDS):
                pass
        finally:
            self._end(query)
            self.report.seconds = time.monotonic() - begun
        self._check(query)
        return self.report

    # before the query

    def _begin(self) -> None:
        wanted, goal = self._wanted, self._wanted.goal
        self._checkpoint.settle(
            {
                "location": wanted.location.uri,
                "warehouse": goal.warehouse,
                "kind": goal.kind,
                "one_table": goal.one_table,
            }
        )
        self._logs = self._find_logs()
        names = sorted({goal.table_of(topic) for topic, _ in self._logs})
        if wanted.take_over and not self._is_own(names):
            self._checkpoint.put_aside()
        self._query_id = self._checkpoint.query_id()
        self.report = ArchiveReport(self._query_id)
        cores = context(self._spark).defaultParallelism
        self._archiver = Archiver(goal, self._checkpoint, self._query_id, self._run_jobs, cores=cores)
        for table in self._existing(names):
            self._settle_owner(table)
        if self._checkpoint.in_flight:
            self.report.swept = self._archiver.sweep([*names, *map(bad_of, names)])

    def _find_logs(self) -> dict[Source, Log]:
        data = self._wanted.location.open()
        named = tuple(TopicName.parse(each) for each in self._wanted.topics)
        subscribed = Subscribed(named) if named else Subscribed(pattern=_everything())
        return {key: Log(data, key, path) for key, path in subscribed.find(data).items()}

    def _existing(self, names: Sequence[str]) -> Iterator[LakeTable]:
        """Each companion before its table: whoever is fenced off both does not get further than the companion."""
        for name in (each for own in names for each in (bad_of(own), own)):
            table = self._wanted.goal.open(name)
            if table.exists():
                yield table

    def _is_own(self, names: Sequence[str]) -> bool:
        """Whether the tables are this checkpoint's already and it is not behind them: nothing is to be taken over.

        So a command that always says --take-over does not begin anew each time. With a batch that was not ended it
        does: that may be what could not be gone on with.
        """
        query_id, last = self._checkpoint.known_query(), self._checkpoint.last_begun
        if query_id is None or self._checkpoint.in_flight:
            return False
        held = [table.held(query_id, []) for table in self._existing(names)]
        return bool(held) and all(
            each.owner == query_id and (-1 if each.batch is None else each.batch) <= last for each in held
        )

    def _settle_owner(self, table: LakeTable) -> None:
        owner = table.owner()
        if owner in (None, self._query_id):
            return
        if not self._wanted.take_over:
            raise fenced(table.name, owner, self._query_id)
        table.claim(self._query_id, seen=owner)
        _LOG.warning("took over table %s from the query %s", table.name, owner)

    # the query

    def _start(self) -> StreamingQuery:
        source = self._spark.readStream.format("penstock").options(**self._source_options())
        writer = source.load().writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(self._checkpoint.query)).queryName(f"archive {self._query_id}")
        if self._wanted.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{max(1, int(self._wanted.every_seconds * 1000))} milliseconds").start()

    def _source_options(self) -> dict[str, str]:
        wanted = self._wanted
        where = "url" if wanted.location.is_broker else "path"
        chosen = {
            where: wanted.location.uri,
            "rows": "slices",
            "sliceBytes": str(wanted.batch_bytes),  # a slice is a task to Spark, only to be given back: few will do
            "failOnDataLoss": str(wanted.goal.fail_on_data_loss).lower(),
            "startingOffsets": self._starting(),
        }
        chosen |= {"maxBytesPerTrigger": str(wanted.batch_bytes)} if LIMITS.there else {}
        chosen |= {"subscribe": ",".join(wanted.topics)} if wanted.topics else {"subscribePattern": ALL_TOPICS}
        return chosen | {f"storage.{name}": value for name, value in wanted.location.storage_options}

    def _starting(self) -> str:
        """Where a new query begins: behind what the tables have. An old one goes on by its checkpoint, which
        tells also where its first batch began.

        Companions say nothing of that: they were told last of the last batch that had something bad.
        """
        if not self._checkpoint.is_new:
            return "earliest"
        starting: dict[str, dict[str, int]] = defaultdict(dict)
        names = sorted({self._wanted.goal.table_of(topic) for topic, _ in self._logs})
        tables = [self._archiver.table(name) for name in names]
        positions = {source: (table, at) for table in tables for source, at in table.positions().items()}
        for (topic, partition), log in self._logs.items():
            table, position = positions.get((topic, partition), (None, None))
            if table is not None and position is not None:
                _check_same(table, log, position)
                starting[topic][str(partition)] = position
        return json.dumps(starting) if starting else "earliest"

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        with self._busy:
            if self._stopping:
                raise _Stopped
            try:
                self._archive_batch(frame, batch_id)
            except Exception as error:
                self._failure = error
                raise

    def _archive_batch(self, frame: DataFrame, batch_id: int) -> None:
        slices = [Slice(self._wanted.location, *row) for row in frame.collect()]
        report = self._archiver.batch(batch_id, slices)
        self._report_progress(slices)
        reach("progress-reported")
        self.report.add(report)
        if self._told is not None:
            self._told(report)

    def _report_progress(self, slices: Sequence[Slice]) -> None:
        """To the broker, as a subscription: how far it is archived, for those who watch and for retention."""
        if self._wanted.subscription is None or self._wanted.broker is None:
            return
        if self._progress is None:
            from penstock.spark.source.progress import Progress

            tls = dict(self._wanted.location.storage_options)
            self._progress = Progress(self._wanted.broker, self._wanted.subscription, tls, archive=True)
        ends: dict[Source, int] = {}
        for each in slices:
            source = (each.topic, each.partition)
            ends[source] = max(each.stop, ends.get(source, 0))
        self._progress.report(ends)

    def _run_jobs(self, jobs: Sequence[Job]) -> list[Landed]:
        return run_jobs(self._spark, jobs)

    # after it

    def _end(self, query: StreamingQuery) -> None:
        self._stopping = True
        with self._busy:  # a batch that is under way is finished
            pass
        query.stop()  # also one that has ended: its name is free only when its thread is gone
        if self._progress is not None:
            self._progress.close()

    def _check(self, query: StreamingQuery) -> None:
        if isinstance(self._failure, PenstockError):
            raise self._failure
        failed = query.exception()
        if failed is None or _Stopped.__name__ in str(failed):
            return
        if self._failure is not None:
            raise raised(self._failure) from self._failure
        raise raised(failed) from failed


class _Stopped(Exception):
    """No further batch is wanted."""


def run_jobs(spark: SparkSession, jobs: Sequence[Job]) -> list[Landed]:
    """One task each, in Python workers; only what they have written comes back.

    Raises what a job did, as itself; `StorageFailed` where Spark could not run it.
    """
    from pyspark.errors import PySparkException

    given = list(jobs)
    if not given:
        return []

    def write(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.spark.scan.work import settle

        settle()
        for batch in numbers:
            texts = [json.dumps(land_as_json(given[number])) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"landed": texts})

    try:
        rows = spark.range(0, len(given), 1, len(given)).mapInArrow(write, "landed string").collect()
    except PySparkException as error:
        raise raised(error) from error
    return landed_of([json.loads(row[0]) for row in rows])


def _everything() -> Any:
    import re

    return re.compile(ALL_TOPICS)


def _check_same(table: LakeTable, log: Log, position: int) -> None:
    """Raises `StorageFailed` if the log is not the one that was archived: the topic was deleted and made again."""
    topic, partition = log.key
    _, following = log.edges()
    here = log.id_at(position - 1)
    if position <= following and here is None:
        return
    where = [("_topic", "=", topic), ("_partition", "=", partition), ("_offset", "=", position - 1)]
    there = [each.as_py().hex() for batch in table.read(["_id"], where) for each in batch.column(0)]
    if position > following or (there and there[0] != here):
        raise StorageFailed(
            f"table {table.name} holds {topic}[{partition}] up to offset {position}, and the log there now is another"
            " one: the topic was deleted and made again. Archive it into another warehouse, or move the old table away",
            table=table.name,
            topic=topic,
            partition=partition,
        )
