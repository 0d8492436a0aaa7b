"""The archive, `penstock archive`: topics into tables, continuously or up to the messages that exist now.

The driver plans: it chooses where a batch ends, logs that, lets an engine run the batch's tasks, commits, and marks the
batch as done. All of this is the same for every engine, so one engine can continue what another began. The checkpoint
knows which offsets a batch has; the tables know which batches they have.
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
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.lake.archive.batch_commit import BatchReport, BatchRunner, Destination, TableReport
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.engines import LOCAL_ENGINE, Backlog, Engine, SparkEngine
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.names import bad_table_of
from penstock.spark.lake.tables.table import LakeTable, TopicPartition, wrong_owner
from penstock.spark.lake.tables.table_factory import check_no_other_format, check_reachable, check_table_format
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
"""Most log bytes in one batch. The limit bounds the work that is lost if the process is killed, and the number of files
in one commit."""
SLICE_BYTES: Final = 64 << 20
EVERY_SECONDS: Final = 10.0
"""Default time in seconds from the start of a batch to the start of the next. With a longer time files are larger, and
tables are further behind the topics."""
_LOG: Final = logging.getLogger("penstock.lake")

ALL_TOPICS: Final = "/.*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRequest:
    """A request to archive: the topics, the destination and the pace; see `archive`."""

    location: Location
    topics: tuple[str, ...] = ()
    destination: Destination
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
    """The totals of one archive run."""

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
        for name, report in batch.tables.items():
            self.tables.setdefault(name, TableReport()).add(report)

    @property
    def rows(self) -> int:
        return sum(report.rows for report in self.tables.values())

    def as_dict(self) -> dict[str, Any]:
        described = asdict(self) | {"rows": self.rows, "seconds": round(self.seconds, 3)}
        described["tables"] = {name: _described(name, report) for name, report in self.tables.items()}
        return described | {"rows_per_second": round(self.rows / self.seconds) if self.seconds else None}


def _described(name: str, table: TableReport) -> dict[str, Any]:
    """Return the report of one table; if it has bad rows, also their table and the reasons."""
    described = {key: value for key, value in asdict(table).items() if key != "why"}
    return described | ({"bad_table": bad_table_of(name), "bad_rows": table.why.as_dict()} if table.bad else {})


def archive(
    spark: SparkSession | None,
    location: Location,
    topics: Sequence[str] = (),
    *,
    warehouse: str,
    table_format: str = "delta",
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
    on_batch: Callable[[BatchReport], None] | None = None,
    stop: threading.Event | None = None,
) -> ArchiveReport:
    """Archive topics, or all topics if none is named, into tables of a warehouse, each message exactly once. Return the
    totals.

    Workers of `spark` read and write; with None this process does. Each continues what the other has done. With `once`
    the archive ends when all current messages are archived; otherwise it runs until `stop` is set, and a batch in
    progress is finished first. `on_batch` is called after every batch. Raises `NotOwner` if another archive extends one
    of the tables, `StorageFailed` for lost messages or a topic that was deleted and created again, `InvalidRequest` for
    invalid arguments.
    """
    request = ArchiveRequest(
        location=location,
        topics=tuple(topics),
        destination=destination_of(
            location,
            warehouse=warehouse,
            table_format=table_format,
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
    with open_archive(request, on_batch) as ready:
        return ready.run(LOCAL_ENGINE if spark is None else SparkEngine(spark), stop or threading.Event())


@contextmanager
def open_archive(
    request: ArchiveRequest, on_batch: Callable[[BatchReport], None] | None = None
) -> Iterator[ArchiveRun]:
    """Lock the checkpoint, prepare an archive run and yield it. Raises what `ArchiveRun.prepare` does, `NotOwner` if
    another process holds the checkpoint, and `InvalidRequest` if a table has another format."""
    check_formats(request.destination, find_logs(request.location, request.topics))
    with Checkpoint(request.checkpoint) as checkpoint:
        ready = ArchiveRun(request, checkpoint, on_batch)
        ready.prepare()
        yield ready


def destination_of(
    location: Location,
    *,
    warehouse: str,
    table_format: str = "delta",
    one_table: bool = False,
    registry: str | None = None,
    decode: bool = True,
    keep_values: bool = True,
    fail_on_data_loss: bool = True,
    storage_options: Mapping[str, str] | None = None,
    catalog: Mapping[str, str] | None = None,
) -> Destination:
    check_table_format(table_format)
    root = Folder.parse(warehouse, storage_options)
    check_reachable(table_format, root, catalog)
    return Destination(
        warehouse=root.uri,
        table_format=table_format,
        one_table=one_table,
        registry=_registry(location, registry) if decode and not one_table else None,
        keep_values=keep_values,
        storage_options=root.options,
        catalog=tuple(sorted((catalog or {}).items())),
        fail_on_data_loss=fail_on_data_loss,
    )


def _registry(location: Location, uri: str | None) -> RegistryLocation | None:
    """Return the location of the schema registry: the one at `uri`, or with None the one of the data itself.

    If `uri` is None and the data's own registry cannot be opened, log a warning and return None. Raises
    `InvalidRequest` if the one at `uri` cannot be opened.
    """
    registry = RegistryLocation(location, uri)
    try:
        registry.open()
    except InvalidRequest as error:
        if uri is not None:
            raise
        _LOG.warning("payloads are archived as they are, without columns of their own: %s", error.message)
        return None
    return registry


def checkpoint_of(warehouse: str, name: str, given: str | None) -> Path:
    """Return the checkpoint directory of an archive: `given`, or else `_checkpoints/NAME` in a local warehouse.

    Raises `InvalidRequest` if `given` is a URL, or if it is None and the warehouse is not local or the name has other
    characters than letters, digits, '_' and '-'.
    """
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


class ArchiveRun:
    """A run of an archive. The caller holds the lock of the checkpoint."""

    def __init__(
        self, request: ArchiveRequest, checkpoint: Checkpoint, on_batch: Callable[[BatchReport], None] | None = None
    ) -> None:
        self._request = request
        self._checkpoint = checkpoint
        self._on_batch = on_batch
        self._progress: ProgressReporter | None = None

    # before the first batch

    def prepare(self) -> None:
        """Do all that comes before the first batch and needs no engine: check or take the ownership of the tables,
        delete files that a killed process left, and find the starting position.

        Raises `NotOwner` if another archive extends one of the tables, `TopicNotSupported` for a topic that does not
        exist, `StorageFailed` for a topic that was created again, `InvalidRequest` if the checkpoint belongs to another
        archive.
        """
        request, destination = self._request, self._request.destination
        self._checkpoint.check_settings(
            {
                "location": request.location.uri,
                "warehouse": destination.warehouse,
                "kind": destination.table_format,
                "one_table": destination.one_table,
            }
        )
        self._logs = find_logs(request.location, request.topics)
        names = sorted({destination.table_of(topic) for topic, _ in self._logs})
        if request.take_over and not self._is_own_and_current(names):
            self._checkpoint.start_new_query()
        self._query_id = self._checkpoint.query_id()
        self.report = ArchiveReport(self._query_id)
        self._batch_runner = BatchRunner(destination, self._checkpoint, self._query_id)
        for table in self._existing_tables(names):
            self._take_or_check_owner(table)
        if self._checkpoint.log.in_flight:
            self.report.swept = self._batch_runner.sweep(self._tables_in_flight(names))
        self._open_follower()

    def _existing_tables(self, names: Sequence[str]) -> Iterator[LakeTable]:
        """Yield those of the tables that exist, each bad-rows table before its main table.

        Commits go in that order too. So another archive, whose tables are being taken over, is stopped at the bad-rows
        table, before it commits to the main one.
        """
        for name in (table_name for main in names for table_name in (bad_table_of(main), main)):
            table = self._request.destination.open(name)
            if table.exists():
                yield table

    def _is_own_and_current(self, names: Sequence[str]) -> bool:
        """Return True if this checkpoint owns all existing tables and is not behind them, so that there is nothing to
        take over. False if no table exists.

        So a command that always passes --take-over does not begin a new query each time. With a batch in flight the
        result is False: that batch may be the reason for --take-over.
        """
        query_id, log = self._checkpoint.known_query(), self._checkpoint.log
        if query_id is None or log.in_flight:
            return False
        states = [table.table_state(query_id, []) for table in self._existing_tables(names)]
        return bool(states) and all(
            state.owner == query_id and (-1 if state.batch is None else state.batch) <= log.last_begun
            for state in states
        )

    def _take_or_check_owner(self, table: LakeTable) -> None:
        owner = table.owner()
        if owner in (None, self._query_id):
            return
        if not self._request.take_over:
            raise wrong_owner(table.name, owner, self._query_id)
        table.claim(self._query_id, seen=owner)
        _LOG.warning("took over table %s from the query %s", table.name, owner)

    def _tables_in_flight(self, names: Sequence[str]) -> list[str]:
        """Return the names of the tables for which the batch in flight may have written files, bad-rows tables
        included. Tables of topics that this run no longer archives are among them."""
        log = self._checkpoint.log
        begun = {self._request.destination.table_of(topic) for topic, _ in log.end_of(log.last_begun).positions}
        return [name for main in sorted(begun.union(names)) for name in (main, bad_table_of(main))]

    def _open_follower(self) -> None:
        """Create the follower, which finds new messages, and set the starting position: the end of the last batch that
        is done, or for a new query its first position."""
        log = self._checkpoint.log
        self._follower = TopicFollower(ReadOptions.of(self._source_options(), streaming=True))
        if self._request.once:
            self._follower.freeze()
        if log.last_begun < 0:
            self._done = self._follower.initial()
        else:
            self._done = log.end_of(log.last_begun - log.in_flight)

    def _source_options(self) -> dict[str, str]:
        request = self._request
        where = "url" if request.location.is_broker else "path"
        chosen = {
            where: request.location.uri,
            "failOnDataLoss": str(request.destination.fail_on_data_loss).lower(),
            "startingOffsets": self._starting_offsets(),
        }
        chosen |= {"subscribe": ",".join(request.topics)} if request.topics else {"subscribePattern": ALL_TOPICS}
        return chosen | {f"storage.{name}": value for name, value in request.location.storage_options}

    def _starting_offsets(self) -> str:
        """Return the source's option `startingOffsets`. A new query starts behind what the tables have. For a query
        that has begun already the value is `earliest`: it continues from its checkpoint.

        Bad-rows tables do not count: they may end earlier, at the last batch that had a bad row.
        """
        if self._checkpoint.log.last_begun >= 0:
            return "earliest"
        starting: dict[str, dict[str, int]] = defaultdict(dict)
        names = sorted({self._request.destination.table_of(topic) for topic, _ in self._logs})
        tables = [self._batch_runner.table(name) for name in names]
        positions = {source: (table, at) for table in tables for source, at in table.positions().items()}
        for (topic, partition), log in self._logs.items():
            table, position = positions.get((topic, partition), (None, None))
            if table is not None and position is not None:
                _check_same_log(table, log, position)
                starting[topic][str(partition)] = position
        return json.dumps(starting) if starting else "earliest"

    def backlog(self) -> Backlog | None:
        """Return how much there is to archive now, a batch in flight included. Return None without `once`: then the
        archive has no end."""
        if not self._request.once:
            return None
        log = self._checkpoint.log
        end = self._follower.latest(log.end_of(log.last_begun) if log.in_flight else self._done)
        slices = self._slices(end)
        return Backlog(sum(slice_.stop - slice_.start for slice_ in slices), sum(slice_.bytes for slice_ in slices))

    # batches

    def run(self, engine: Engine, stop: threading.Event) -> ArchiveReport:
        """Run batch after batch, and return the totals. If `stop` is set, the run ends after the current batch."""
        begun = time.monotonic()
        self.report.engine = engine.name
        self._batch_runner.use_engine(engine)
        try:
            self._repeat_in_flight()
            while not stop.is_set() and self._run_next(stop):
                pass
        finally:
            if self._progress is not None:
                self._progress.close()
            self.report.seconds = time.monotonic() - begun
        return self.report

    def _repeat_in_flight(self) -> None:
        """Repeat the batch that began and did not end, with the same offsets."""
        log = self._checkpoint.log
        if log.in_flight:
            self._batch(log.last_begun, log.end_of(log.last_begun))

    def _run_next(self, stop: threading.Event) -> bool:
        """Run the next batch if there are new messages, then wait for the rest of the pause unless `once` is set.
        Return False if the run is at its end: with `once`, and no new messages."""
        begun = time.monotonic()
        end = self._follower.latest(self._done, bytes_max=self._request.batch_bytes)
        is_new = end != self._done
        if is_new:
            number = self._checkpoint.log.last_begun + 1
            self._checkpoint.log.begin(number, end)
            self._batch(number, end)
        if not self._request.once:
            stop.wait(max(0.0, self._request.every_seconds - (time.monotonic() - begun)))
        return is_new or not self._request.once

    def _batch(self, number: int, end: Offsets) -> None:
        slices = self._slices(end)
        report = self._batch_runner.batch(number, slices)
        self._report_progress(slices)
        reach("progress-reported")
        self._checkpoint.log.finish(number)
        reach("batch-noted")
        self._done = end
        self.report.add(report)
        if self._on_batch is not None:
            self._on_batch(report)

    def _slices(self, end: Offsets) -> list[Slice]:
        """Return slices of the messages from the end of the last finished batch up to `end`."""
        ranges = self._follower.ranges(self._done, end)
        return plan_slices(self._request.location, ranges, slice_bytes=self._request.batch_bytes)

    def _report_progress(self, slices: Sequence[Slice]) -> None:
        """Report the archived offsets to the broker as the position of a subscription, if one is named. The broker uses
        them for monitoring and for retention."""
        if self._request.subscription is None or self._request.broker is None:
            return
        if self._progress is None:
            from penstock.spark.source.progress import ProgressReporter

            tls = dict(self._request.location.storage_options)
            self._progress = ProgressReporter(self._request.broker, self._request.subscription, tls, archive=True)
        ends: dict[TopicPartition, int] = {}
        for slice_ in slices:
            source = (slice_.topic, slice_.partition)
            ends[source] = max(slice_.stop, ends.get(source, 0))
        self._progress.report(ends)


def find_logs(location: Location, topics: Sequence[str]) -> dict[TopicPartition, PartitionLog]:
    """Return the log of each partition of these topics, or of all topics if none is named. Raises `TopicNotSupported`
    for a named topic that does not exist."""
    data = location.open()
    named = tuple(TopicName.parse(topic) for topic in topics)
    selection = TopicSelection(named) if named else TopicSelection(pattern=re.compile(ALL_TOPICS))
    return {key: PartitionLog(data, key, path) for key, path in selection.find_logs(data).items()}


def check_formats(destination: Destination, sources: Iterable[TopicPartition]) -> None:
    """Raise `InvalidRequest` if the table of one of the topics exists in another format than the destination's."""
    for name in sorted({destination.table_of(topic) for topic, _ in sources}):
        check_no_other_format(destination.open(name))


def _check_same_log(table: LakeTable, log: PartitionLog, position: int) -> None:
    """Raise `StorageFailed` if the topic was deleted and created again, so that its log is not the archived one.

    It is another log if it ends before `position`, the next offset to archive, or if the last archived message has
    another id there. If retention has dropped that message, the log is taken for the same.
    """
    topic, partition = log.key
    _, following = log.offset_range()
    log_id = log.id_at(position - 1)
    if position <= following and log_id is None:
        return
    where = [("_topic", "=", topic), ("_partition", "=", partition), ("_offset", "=", position - 1)]
    archived_ids = [value.as_py().hex() for batch in table.read(["_id"], where) for value in batch.column(0)]
    if position > following or (archived_ids and archived_ids[0] != log_id):
        raise StorageFailed(
            f"table {table.name} holds {topic}[{partition}] up to offset {position}, and the log there now is another"
            " one: the topic was deleted and made again. Archive it into another warehouse, or move the old table away",
            table=table.name,
            topic=topic,
            partition=partition,
        )
