"""Messages as a consumer gives them: one by one, or those that arrived together."""

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
    """What messages that arrived together have in common."""

    __slots__ = ("decoder", "partition", "subscription", "topic")

    def __init__(self, topic: str, partition: int, subscription: str) -> None:
        self.topic = topic
        self.partition = partition
        self.subscription = subscription
        self.decoder: BatchDecoder | None = None
        """Known before they are handed out."""


class StreamMessage(msgspec.Struct, Generic[V], gc=False, eq=False):
    """One message with everything that is known of it.

    The garbage collector does not look at it: messages are many and refer to nothing that refers to them.
    """

    _row: RecordRow
    _origin: BatchOrigin
    _value: V | msgspec.UnsetType = msgspec.UNSET

    @property
    def value(self) -> V:
        """The payload, decoded by the schema and version that the message names; into what the consumer reads, if it
        was given a schema too. Where there is neither, the payload itself.

        Raises `MalformedMessage` for a payload that cannot be read, or a schema that nobody knows.
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
        """The producer's own number of the message."""
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
        """Its last messages, as a batch."""
        return Batch(self._block.select(len(self) - count, len(self)), self.origin)

    def schema_ids(self) -> set[int]:
        """Of the schemas that its messages name."""
        columns = self._block.columns
        named = columns[:, at.FLAGS] & at.FLAG_SCHEMA != 0
        return set(columns[named, at.SCHEMA_ID].tolist())

    @property
    def offsets(self) -> list[int]:
        found: list[int] = self._block.columns[:, at.OFFSET].tolist()
        return found

    def spans(self) -> list[tuple[int, int]]:
        """The offsets as ranges."""
        column = self._block.columns[:, at.OFFSET]
        first, last = int(column[0]), int(column[-1])
        if last - first + 1 == len(self):
            return [(first, last + 1)]
        return list(OffsetSet((offset, offset + 1) for offset in column.tolist()))

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatch:
        """The same as columns; payloads stay where they are. The schema's metadata say which messages they are."""
        facts = {"partition": self.partition, "ranges": self.spans()}
        return self._block.to_arrow(columns).replace_schema_metadata({_ARROW_FACTS: json.dumps(facts)})


def offsets_of(done: StreamMessage | Batch | pa.RecordBatch) -> tuple[int, list[tuple[int, int]]]:
    """The partition and the offsets of what a consumer has dealt with."""
    if isinstance(done, StreamMessage):
        return done.partition, [(done.offset, done.offset + 1)]
    if isinstance(done, Batch):
        return done.partition, done.spans()
    facts = json.loads((done.schema.metadata or {}).get(_ARROW_FACTS.encode(), b"{}"))
    if "ranges" not in facts:
        raise InvalidRequest("this batch does not say which messages it holds: acknowledge the one that was received")
    return facts["partition"], [(start, stop) for start, stop in facts["ranges"]]
