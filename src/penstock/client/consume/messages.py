"""Messages as a consumer returns them: one by one, or in the batches in which they arrived."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic

import msgspec

from penstock.client.serde.values import V
from penstock.core.errors import InvalidRequest
from penstock.core.ids import format_id
from penstock.core.offset_set import OffsetSet
from penstock.record import layout as at
from penstock.record.block import Block
from penstock.record.message import SchemaRef
from penstock.record.rows import RecordRow, attributes_of

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.serde.decoder import BatchDecoder

_ARROW_FACTS: Final = "penstock"


class BatchOrigin:
    """The values that all messages of a batch share: topic, partition, subscription, and the decoder of their
    values."""

    __slots__ = ("decoder", "partition", "subscription", "topic")

    def __init__(self, topic: str, partition: int, subscription: str) -> None:
        self.topic = topic
        self.partition = partition
        self.subscription = subscription
        self.decoder: BatchDecoder | None = None
        """The decoder of values; set before the batch is returned to the caller."""


class StreamMessage(msgspec.Struct, Generic[V], gc=False, eq=False):
    """A message of a durable topic, with all its fields.

    The garbage collector does not track these objects, for speed: there are many, and they form no reference cycles.
    """

    _row: RecordRow
    _origin: BatchOrigin
    _value: V | msgspec.UnsetType = msgspec.UNSET

    @property
    def value(self) -> V:
        """The decoded payload.

        It is decoded by the schema that the message names, and converted to the consumer's own schema if it has one. If
        there is neither, the value is the payload itself. Raises `MalformedMessage` for a payload that cannot be read,
        or for a schema that the registry does not have.
        """
        if self._value is not msgspec.UNSET:
            return self._value
        if self._origin.decoder is None:
            raise InvalidRequest("the value of a message is known when a consumer has handed it out")
        value: V = self._origin.decoder.decode(self)
        self._value = value
        return value

    @property
    def topic(self) -> str:
        return self._origin.topic

    @property
    def partition(self) -> int:
        return self._origin.partition

    @property
    def subscription(self) -> str:
        return self._origin.subscription

    @property
    def id(self) -> str:
        return format_id(self._row[0])

    @property
    def offset(self) -> int:
        return self._row[1]

    @property
    def publish_time_ms(self) -> int:
        return self._row[2]

    @property
    def type(self) -> str:
        return self._row[3]

    @property
    def key(self) -> bytes | None:
        return self._row[4]

    @property
    def payload(self) -> bytes:
        return self._row[5]

    @property
    def producer_name(self) -> str:
        return self._row[6]

    @property
    def producer_id(self) -> int:
        return self._row[7]

    @property
    def request_id(self) -> int:
        """The number that the producer gave the message."""
        return self._row[8]

    @property
    def schema(self) -> SchemaRef | None:
        return self._row[9]

    @property
    def attributes(self) -> Mapping[str, str]:
        return attributes_of(self._row)

    @property
    def text(self) -> str:
        return self.payload.decode()

    def json(self) -> Any:
        return json.loads(self.payload)

    def __repr__(self) -> str:
        return f"StreamMessage({self.topic} {self.partition}:{self.offset} {self.payload[:40]!r})"


class Batch(Generic[V]):
    """Messages of one partition that arrived together, in order."""

    __slots__ = ("_block", "_messages", "origin")

    def __init__(self, block: Block, origin: BatchOrigin) -> None:
        self._block = block
        self._messages: list[StreamMessage[V]] | None = None
        self.origin = origin

    @property
    def topic(self) -> str:
        return self.origin.topic

    @property
    def partition(self) -> int:
        return self.origin.partition

    @property
    def subscription(self) -> str:
        return self.origin.subscription

    def __len__(self) -> int:
        return len(self._block)

    def __iter__(self) -> Iterator[StreamMessage[V]]:
        return iter(self.messages)

    @property
    def messages(self) -> list[StreamMessage[V]]:
        if self._messages is None:
            origin = self.origin
            self._messages = [StreamMessage(row, origin) for row in self._block.rows()]
        return self._messages

    def last(self, count: int) -> Batch[V]:
        """Return the last `count` messages as a batch of the same origin."""
        return Batch(self._block.select(len(self) - count, len(self)), self.origin)

    def schema_ids(self) -> set[int]:
        """Return the ids of all schemas that messages of the batch name; empty if there are none."""
        columns = self._block.columns
        named = columns[:, at.FLAGS] & at.FLAG_SCHEMA != 0
        return set(columns[named, at.SCHEMA_ID].tolist())

    @property
    def offsets(self) -> list[int]:
        offsets: list[int] = self._block.columns[:, at.OFFSET].tolist()
        return offsets

    def spans(self) -> list[tuple[int, int]]:
        """Return the offsets as ranges: pairs of a first offset and the offset after the last one."""
        column = self._block.columns[:, at.OFFSET]
        first, last = int(column[0]), int(column[-1])
        if last - first + 1 == len(self):
            return [(first, last + 1)]
        return list(OffsetSet((offset, offset + 1) for offset in column.tolist()))

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatch:
        """Return the batch as a `pyarrow.RecordBatch` without copying payloads. `columns` selects columns; default:
        all.

        The metadata of its schema say which messages it holds, so that it can be passed to `ack`.
        """
        identity = {"partition": self.partition, "ranges": self.spans()}
        return self._block.to_arrow(columns).replace_schema_metadata({_ARROW_FACTS: json.dumps(identity)})


def offsets_of(done: StreamMessage | Batch | pa.RecordBatch) -> tuple[int, list[tuple[int, int]]]:
    """Return the partition of a message or a batch, and its offsets as ranges (the first, and the one after the last).

    Raises `InvalidRequest` for a `pyarrow.RecordBatch` without the metadata of `Batch.to_arrow`.
    """
    if isinstance(done, StreamMessage):
        return done.partition, [(done.offset, done.offset + 1)]
    if isinstance(done, Batch):
        return done.partition, done.spans()
    identity = json.loads((done.schema.metadata or {}).get(_ARROW_FACTS.encode(), b"{}"))
    if "ranges" not in identity:
        raise InvalidRequest("this batch does not say which messages it holds: acknowledge the one that was received")
    return identity["partition"], [(start, stop) for start, stop in identity["ranges"]]
