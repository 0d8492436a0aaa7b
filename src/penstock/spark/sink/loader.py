"""The loader: writes rows straight into the logs of a data directory without a broker, locked by the caller's open
`Store`.

Every row has a producer and a number, as if it had come through a broker. The logs themselves show what is stored
already: in each partition the numbers of a producer rise, so a row is stored if its number is not above the highest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import InvalidRequest, PayloadTooLarge, TopicNotSupported
from penstock.core.names import TopicName
from penstock.record import layout as at
from penstock.record.block import Block, Draft, Longs, parse_block
from penstock.spark.sink.columns import without
from penstock.spark.sink.identity import WriteCounts
from penstock.spark.sink.routing import ProducerRows
from penstock.storage.catalog.schemas import topic_place
from penstock.storage.catalog.topics import Dispatch, ProducerCheckpoint, SchemaPolicy, Topic
from penstock.storage.log.group_commit import PendingAppend
from penstock.storage.log.log import Log
from penstock.storage.producer_windows import derive_checkpoint
from penstock.storage.store import Store

_TOGETHER: Final = 1024
"""Rows without a key go to the partitions in turn, this many consecutive numbers to each. The number alone decides, so
a repeated row goes to the same partition again."""

_TICKETS_MAX: Final = 256
"""The most blocks that wait for the disk at once. The log's writer limits their bytes."""


@dataclass(slots=True)
class _LoadingTopic:
    """A topic that is being loaded."""

    topic: Topic
    logs: list[Log]
    known: dict[int, ProducerCheckpoint]
    """The last writes of each producer, by partition."""

    producers: dict[str, int] = field(default_factory=dict)
    schemas: set[int] = field(default_factory=set)

    def highest(self, producer_id: int, partition: int) -> int:
        """Return the last number of a producer in a partition; 0 if it has none."""
        runs = self.known[partition].runs.get(producer_id, ())
        return max((run.request_id + run.count - 1 for run in runs), default=0)


class Loader:
    """An appender of rows to the logs of a data directory. It leaves out rows that are stored already. Appended rows
    are durable when `finish` returns."""

    def __init__(self, store: Store, *, create_partitions: int | None = None) -> None:
        self._store = store
        self._create_partitions = create_partitions
        """The number of partitions for topics that do not exist yet; with None a missing topic is an error."""

        self.tally = WriteCounts()
        self._topics: dict[str, _LoadingTopic] = {}
        self._tickets: deque[PendingAppend] = deque()

    def check(self, topic: str, batch: pa.RecordBatch) -> None:
        """Check rows of a topic before any of them is appended.

        Raises `PayloadTooLarge` for a payload above the topic's limit, `TopicNotSupported` for a missing topic, and
        `InvalidRequest` for a partition that does not exist, a live topic, or a topic that enforces its schema. Creates
        a missing topic if the loader was made with `create_partitions`.
        """
        opened = self._open_topic(topic)
        sizes = np.diff(_offsets(batch.column("value")))
        limit = opened.logs[0].limits.payload_bytes_max
        if sizes.size and int(sizes.max()) > limit:
            raise PayloadTooLarge(
                f"a payload of {topic} has at most {limit} bytes, not {int(sizes.max())}", topic=topic, limit=limit
            )
        if "partition" in batch.schema.names:
            _check_partitions(topic, batch.column("partition"), len(opened.logs))

    def last(self, topic: str, producer: str) -> int:
        """Return the highest number that a producer had in any partition before this load; 0 if it had none."""
        opened = self._open_topic(topic)
        producer_id = self._producer_id(opened, producer)
        return max(opened.highest(producer_id, partition) for partition in opened.known)

    def append(self, group: ProducerRows) -> None:
        """Queue rows of one producer to be written, except those that are stored already. Their numbers have to
        rise."""
        opened, producer, batch = self._open_topic(group.topic), group.producer, group.rows
        producer_id = self._producer_id(opened, producer)
        chosen = batch.column("partition") if "partition" in batch.schema.names else None
        draft = Draft.from_arrow(without(batch, "partition"), producer_name=producer, producer_id=producer_id)
        block = parse_block(draft.data, verify=False)
        self._note_schemas(opened, block)
        stored = 0
        for partition, rows in _rows_by_partition(block, chosen, len(opened.logs)):
            fresh = rows[block.columns[rows, at.REQUEST_ID] > opened.highest(producer_id, partition)]
            stored += len(rows) - len(fresh)
            self._submit(opened.logs[partition], block, fresh)
        self.tally += WriteCounts(batch.num_rows, stored)

    def finish(self) -> None:
        """Wait until all queued rows are on disk. Then save what the logs hold of each producer, so that the next
        opening need not scan them."""
        while self._tickets:
            self._tickets.popleft().result()
        for opened in self._topics.values():
            for partition, log in enumerate(opened.logs):
                checkpoint = derive_checkpoint(log, opened.known[partition])
                self._store.catalog.save_checkpoint(opened.topic, partition, checkpoint)

    def _open_topic(self, name: str) -> _LoadingTopic:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = self._load_topic(TopicName.parse(name))
        return found

    def _load_topic(self, name: TopicName) -> _LoadingTopic:
        topic = self._topic(name)
        _check_topic(topic)
        logs = [self._store.log(name, partition) for partition in range(topic.partitions)]
        load = self._store.catalog.load_checkpoint
        return _LoadingTopic(
            topic, logs, {each: derive_checkpoint(log, load(topic, each)) for each, log in enumerate(logs)}
        )

    def _topic(self, name: TopicName) -> Topic:
        try:
            return self._store.catalog.get_topic(name)
        except TopicNotSupported:
            if self._create_partitions is None:
                raise
            return self._store.create_topic(name, partitions=self._create_partitions)

    def _producer_id(self, opened: _LoadingTopic, name: str) -> int:
        if name not in opened.producers:
            opened.producers[name] = self._store.catalog.producer_id(opened.topic, name)
        return opened.producers[name]

    def _note_schemas(self, opened: _LoadingTopic, block: Block) -> None:
        """Record in the catalog that the topic uses the schemas of these messages, before the messages are stored: a
        schema in use cannot be deleted permanently."""
        named = set(np.unique(block.columns[:, at.SCHEMA_ID]).tolist()) - {0}
        for schema_id in named - opened.schemas:
            self._store.catalog.schemas.note_use(schema_id, topic_place(opened.topic.topic_uid))
        opened.schemas |= named

    def _submit(self, log: Log, block: Block, rows: Longs) -> None:
        for start, stop in _block_ranges(block, rows, log.limits.block_bytes_max):
            while len(self._tickets) >= _TICKETS_MAX:
                self._tickets.popleft().result()
            self._tickets.append(self._store.writer.submit(log, Draft.of_block(block.gather(rows[start:stop]))))


def _check_topic(topic: Topic) -> None:
    if topic.dispatch is Dispatch.LIVE:
        raise InvalidRequest(f"{topic.name} is live: it keeps no messages", topic=str(topic.name))
    if topic.settings.schema_policy is SchemaPolicy.ENFORCE:
        raise InvalidRequest(
            f"{topic.name} enforces its schema, and it is the broker that judges messages: start one and give"
            " broker=HOST:PORT in place of path",
            topic=str(topic.name),
        )


def _check_partitions(topic: str, column: pa.Array, count: int) -> None:
    numbers = column.drop_null().to_numpy()
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if wrong.size:
        raise InvalidRequest(
            f"column 'partition' is {int(wrong[0])}, and {topic} has partitions 0 to {count - 1}", topic=topic
        )


def _offsets(column: pa.Array) -> Any:
    kind = np.int64 if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type) else np.int32
    found = np.frombuffer(column.buffers()[1], dtype=kind)
    return found[column.offset : column.offset + len(column) + 1]


def _rows_by_partition(block: Block, chosen: pa.Array | None, count: int) -> Iterator[tuple[int, Longs]]:
    """Yield each partition with its rows: chosen by the column `partition`, else by the key, else in turn."""
    if count == 1:
        yield 0, np.arange(len(block))
        return
    keyed = (block.columns[:, at.FLAGS] & at.FLAG_KEY) != 0
    by_key = (block.key_hashes() % np.uint64(count)).astype(np.int64)
    in_turn = block.columns[:, at.REQUEST_ID] // _TOGETHER % count
    partitions = np.where(keyed, by_key, in_turn)
    if chosen is not None:
        named = chosen.is_valid().to_numpy(zero_copy_only=False)
        partitions = np.where(named, chosen.fill_null(0).to_numpy(zero_copy_only=False), partitions)
    for partition in np.unique(partitions).tolist():
        yield partition, np.flatnonzero(partitions == partition)


def _block_ranges(block: Block, rows: Longs, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of `rows`, as `(start, stop)`: each has one row, or at most half of `bytes_max`
    bytes."""
    ends = np.cumsum(block.columns[rows, at.END] - block.columns[rows, at.START])
    start, before = 0, 0
    while start < len(rows):
        stop = max(start + 1, int(np.searchsorted(ends, before + bytes_max // 2, side="right")))
        yield start, stop
        start, before = stop, int(ends[stop - 1])
