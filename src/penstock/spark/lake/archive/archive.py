"""`penstock archive`: topics into tables, continuously or as far as there is something now.

The driver plans: it decides where a batch ends, logs that, has the batch's jobs run by an engine, commits, and notes
that the batch is done. All of it is the same for every engine, so any of them goes on with what another has begun. The
checkpoint says which offsets a batch has; the tables say which batches they have.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.core.names import TopicName
from penstock.spark.files.location import Location
from penstock.spark.files.registry import RegistryAt
from penstock.spark.lake.archive.batch_commit import Archiver, BatchReport, Goal, TableReport
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.engines import LOCAL_ENGINE, Engine, News, SparkEngine
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.names import bad_of
from penstock.spark.lake.tables.table import LakeTable, Source, fenced
from penstock.spark.lake.tables.table_factory import check_format, check_kind, check_reachable
from penstock.spark.runtime.failpoints import reach
from penstock.spark.scan.slices import Slice, plan_slices
from penstock.spark.source.follower import TopicFollower
from penstock.spark.source.offsets import Offsets
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.topic_selection import PartitionLog, TopicSelection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.source.progress import ProgressReporter

BATCH_BYTES: Final = 1 << 30
"""Of log in one batch: what is lost of the work when a process is killed, and how many files wait for a commit."""
SLICE_BYTES: Final = 64 << 20
EVERY_SECONDS: Final = 10.0
"""Between batches, unless told otherwise: files get larger with it, and the tables staler."""
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

    def __post_init__(self) -> None:
        if self.subscription is not None and self.broker is None:
            raise InvalidRequest(f"subscription {self.subscription!r} is reported to a broker: name it (HOST:PORT)")


@dataclass(slots=True)
class ArchiveReport:
    """What an archive did while it ran."""

    query_id: str
    engine: str = ""
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
        described["tables"] = {name: _described(name, each) for name, each in self.tables.items()}
        return described | {"rows_per_second": round(self.rows / self.seconds) if self.seconds else None}


def _described(name: str, table: TableReport) -> dict[str, Any]:
    """Where there are bad rows, in which table they are and why as well."""
    described = {key: value for key, value in asdict(table).items() if key != "why"}
    return described | ({"bad_table": bad_of(name), "bad_rows": table.why.as_dict()} if table.bad else {})


def archive(
    spark: SparkSession | None,
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

    Workers of `spark` read and write; None: this process does. Each goes on with what the other has done. With `once`
    it ends when all that is there now is archived; otherwise it goes on until `stop` is set: a batch that is under way
    is finished first. `told` hears of every batch.
    Raises `NotOwner` if another archive extends one of the tables, `StorageFailed` for messages that are lost or a
    topic that was made anew, `InvalidRequest` for what cannot be.
    """
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
    with prepared(wanted, told) as ready:
        return ready.run(LOCAL_ENGINE if spark is None else SparkEngine(spark), stop or threading.Event())


@contextmanager
def prepared(wanted: Wanted, told: Callable[[BatchReport], None] | None = None) -> Iterator[Archive]:
    """An archive that holds its checkpoint. What can be found wrong before an engine runs is raised here."""
    check_formats(wanted.goal, find_logs(wanted.location, wanted.topics))
    with Checkpoint(wanted.checkpoint) as held:
        ready = Archive(wanted, held, told)
        ready.prepare()
        yield ready


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
    check_reachable(kind, root, catalog)
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
        self, wanted: Wanted, checkpoint: Checkpoint, told: Callable[[BatchReport], None] | None = None
    ) -> None:
        self._wanted = wanted
        self._checkpoint = checkpoint
        self._told = told
        self._progress: ProgressReporter | None = None

    # before the first batch

    def prepare(self) -> None:
        """Whose the tables are, what a killed process has left, where to go on: all without an engine.

        Raises `NotOwner` where another archive extends one of the tables, `TopicNotSupported` for a topic that is not
        there, `StorageFailed` for one that is another by now, `InvalidRequest` for another archive's checkpoint.
        """
        wanted, goal = self._wanted, self._wanted.goal
        self._checkpoint.settle(
            {
                "location": wanted.location.uri,
                "warehouse": goal.warehouse,
                "kind": goal.kind,
                "one_table": goal.one_table,
            }
        )
        self._logs = find_logs(wanted.location, wanted.topics)
        names = sorted({goal.table_of(topic) for topic, _ in self._logs})
        if wanted.take_over and not self._is_own(names):
            self._checkpoint.put_aside()
        self._query_id = self._checkpoint.query_id()
        self.report = ArchiveReport(self._query_id)
        self._archiver = Archiver(goal, self._checkpoint, self._query_id)
        for table in self._existing(names):
            self._settle_owner(table)
        if self._checkpoint.log.in_flight:
            self.report.swept = self._archiver.sweep(self._begun(names))
        self._follow()

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
        query_id, log = self._checkpoint.known_query(), self._checkpoint.log
        if query_id is None or log.in_flight:
            return False
        held = [table.held(query_id, []) for table in self._existing(names)]
        return bool(held) and all(
            each.owner == query_id and (-1 if each.batch is None else each.batch) <= log.last_begun for each in held
        )

    def _settle_owner(self, table: LakeTable) -> None:
        owner = table.owner()
        if owner in (None, self._query_id):
            return
        if not self._wanted.take_over:
            raise fenced(table.name, owner, self._query_id)
        table.claim(self._query_id, seen=owner)
        _LOG.warning("took over table %s from the query %s", table.name, owner)

    def _begun(self, names: Sequence[str]) -> list[str]:
        """Tables that a batch which was begun may have files of, those of topics that are not named any more as well,
        and their companions."""
        log = self._checkpoint.log
        begun = {self._wanted.goal.table_of(topic) for topic, _ in log.end_of(log.last_begun).marks}
        return [name for each in sorted(begun.union(names)) for name in (each, bad_of(each))]

    def _follow(self) -> None:
        """Where to go on: behind the last batch that has ended, or where a new query begins."""
        log = self._checkpoint.log
        self._follower = TopicFollower(ReadOptions.of(self._source_options(), streaming=True))
        if self._wanted.once:
            self._follower.freeze()
        if log.last_begun < 0:
            self._done = self._follower.initial()
        else:
            self._done = log.end_of(log.last_begun - log.in_flight)

    def _source_options(self) -> dict[str, str]:
        wanted = self._wanted
        where = "url" if wanted.location.is_broker else "path"
        chosen = {
            where: wanted.location.uri,
            "failOnDataLoss": str(wanted.goal.fail_on_data_loss).lower(),
            "startingOffsets": self._starting(),
        }
        chosen |= {"subscribe": ",".join(wanted.topics)} if wanted.topics else {"subscribePattern": ALL_TOPICS}
        return chosen | {f"storage.{name}": value for name, value in wanted.location.storage_options}

    def _starting(self) -> str:
        """Where a new query begins: behind what the tables have. An old one goes on by its checkpoint, which
        tells also where its first batch began.

        Companions say nothing of that: they were told last of the last batch that had something bad.
        """
        if self._checkpoint.log.last_begun >= 0:
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

    def news(self) -> News | None:
        """How much there is to archive now, a batch that was broken off included; None if it goes on without an end."""
        if not self._wanted.once:
            return None
        log = self._checkpoint.log
        end = self._follower.latest(log.end_of(log.last_begun) if log.in_flight else self._done)
        slices = self._slices(end)
        return News(sum(each.stop - each.start for each in slices), sum(each.bytes for each in slices))

    # batches

    def run(self, engine: Engine, stop: threading.Event) -> ArchiveReport:
        """Batch after batch. Between two of them it ends if `stop` is set."""
        begun = time.monotonic()
        self.report.engine = engine.name
        self._archiver.hand_to(engine)
        try:
            self._repeat()
            while not stop.is_set() and self._go_on(stop):
                pass
        finally:
            if self._progress is not None:
                self._progress.close()
            self.report.seconds = time.monotonic() - begun
        return self.report

    def _repeat(self) -> None:
        """The batch that was begun and has not ended, as it was."""
        log = self._checkpoint.log
        if log.in_flight:
            self._batch(log.last_begun, log.end_of(log.last_begun))

    def _go_on(self, stop: threading.Event) -> bool:
        """The next batch, if there is something; False if there is not and that is the end."""
        begun = time.monotonic()
        end = self._follower.latest(self._done, bytes_max=self._wanted.batch_bytes)
        is_new = end != self._done
        if is_new:
            number = self._checkpoint.log.last_begun + 1
            self._checkpoint.log.begin(number, end)
            self._batch(number, end)
        if not self._wanted.once:
            stop.wait(max(0.0, self._wanted.every_seconds - (time.monotonic() - begun)))
        return is_new or not self._wanted.once

    def _batch(self, number: int, end: Offsets) -> None:
        slices = self._slices(end)
        report = self._archiver.batch(number, slices)
        self._report_progress(slices)
        reach("progress-reported")
        self._checkpoint.log.finish(number)
        reach("batch-noted")
        self._done = end
        self.report.add(report)
        if self._told is not None:
            self._told(report)

    def _slices(self, end: Offsets) -> list[Slice]:
        """What lies between the last batch and this end."""
        ranges = self._follower.ranges(self._done, end)
        return plan_slices(self._wanted.location, ranges, slice_bytes=self._wanted.batch_bytes)

    def _report_progress(self, slices: Sequence[Slice]) -> None:
        """To the broker, as a subscription: how far it is archived, for those who watch and for retention."""
        if self._wanted.subscription is None or self._wanted.broker is None:
            return
        if self._progress is None:
            from penstock.spark.source.progress import ProgressReporter

            tls = dict(self._wanted.location.storage_options)
            self._progress = ProgressReporter(self._wanted.broker, self._wanted.subscription, tls, archive=True)
        ends: dict[Source, int] = {}
        for each in slices:
            source = (each.topic, each.partition)
            ends[source] = max(each.stop, ends.get(source, 0))
        self._progress.report(ends)


def find_logs(location: Location, topics: Sequence[str]) -> dict[Source, PartitionLog]:
    """The partitions of these topics, or of all. Raises `TopicNotSupported` for one that is named and not there."""
    data = location.open()
    named = tuple(TopicName.parse(each) for each in topics)
    subscribed = TopicSelection(named) if named else TopicSelection(pattern=re.compile(ALL_TOPICS))
    return {key: PartitionLog(data, key, path) for key, path in subscribed.find(data).items()}


def check_formats(goal: Goal, sources: Iterable[Source]) -> None:
    """Raises `InvalidRequest` where the table of a topic is one of another format."""
    for name in sorted({goal.table_of(topic) for topic, _ in sources}):
        check_format(goal.open(name))


def _check_same(table: LakeTable, log: PartitionLog, position: int) -> None:
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
