"""Blocks: many records in one buffer. A `Draft` waits to be stamped; a `Block` has been stamped and scanned.

To hold either is to know that its bytes have been checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.core import limits
from penstock.core.errors import InvalidRequest, MalformedMessage, PayloadTooLarge
from penstock.core.ids import IdRun
from penstock.core.limits import Limits
from penstock.core.offsets import Offset, OffsetRange
from penstock.record import kernels, text_kernels
from penstock.record import layout as at
from penstock.record.hashing import as_array
from penstock.record.message import NUMBER_MAX, SCHEMA_VERSION_MAX, Message, Record, SchemaRef, draft_bytes

if TYPE_CHECKING:
    import pyarrow as pa

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Longs = np.ndarray[Any, np.dtype[np.int64]]

_ROWS_FIRST: Final = 1024
"""Rows a scan makes room for before it knows how many there are; the table doubles from there."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a scan stopped and why: one of the reasons of `layout`."""

    position: int
    reason: int

    def __str__(self) -> str:
        return at.REASONS[self.reason]


@dataclass(frozen=True, slots=True)
class After:
    """What came before the place where a scan starts: the last id, and the offset that must be next (-1: any)."""

    id_high: int = 0
    id_low: int = 0
    next_offset: int = -1


START_OF_LOG: Final = After()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Stamped records and their columns; `columns[record, field of layout]`."""

    data: Bytes
    columns: Longs

    def __len__(self) -> int:
        return int(self.columns.shape[0])

    @property
    def raw(self) -> memoryview:
        """The records as they lie on disk."""
        if not len(self):
            return memoryview(b"")
        return self.data.data[int(self.columns[0, at.START]) : int(self.columns[-1, at.END])]

    @property
    def offsets(self) -> OffsetRange:
        """From the first offset to the one after the last; for a block without gaps, its offsets."""
        if not len(self):
            return OffsetRange.of(0, 0)
        return OffsetRange.of(int(self.columns[0, at.OFFSET]), int(self.columns[-1, at.OFFSET]) + 1)

    @property
    def last(self) -> After:
        """What the scan after this block must know."""
        high, low, offset = (int(self.columns[-1, row]) for row in (at.ID_HIGH, at.ID_LOW, at.OFFSET))
        return After(high, low, offset + 1)

    def id(self, row: int) -> bytes:
        start = int(self.columns[row, at.START])
        return self.data[start : start + at.ID_BYTES].tobytes()

    def type(self, row: int) -> str:
        start = int(self.columns[row, at.START]) + at.TYPE_AT
        return self.data[start : start + int(self.columns[row, at.TYPE_BYTES])].tobytes().decode(errors="replace")

    def payload(self, row: int) -> memoryview:
        stop = int(self.columns[row, at.END]) - at.CHECKSUM_BYTES
        return self.data.data[int(self.columns[row, at.PAYLOAD]) : stop]

    def record(self, row: int) -> Record:
        column = self.columns[row].tolist()
        return Record(
            id=self.id(row),
            offset=Offset(column[at.OFFSET]),
            publish_time_ms=column[at.PUBLISH_TIME],
            message=self._message(row, column),
        )

    def _message(self, row: int, column: list[int]) -> Message:
        name = column[at.START] + at.HEAD_BYTES + column[at.TYPE_BYTES] + at.NAME_LENGTH_AT + 2
        key = name + column[at.NAME_BYTES] + 2
        flags = column[at.FLAGS]
        schema = SchemaRef(column[at.SCHEMA_ID], column[at.SCHEMA_VERSION]) if flags & at.FLAG_SCHEMA else None
        return Message(
            payload=bytes(self.payload(row)),
            type=self.type(row),
            key=self._slice(key, column[at.KEY_BYTES]) if flags & at.FLAG_KEY else None,
            attributes=self._attributes(key + column[at.KEY_BYTES] + 2, column[at.ATTRIBUTES]),
            producer_name=self._slice(name, column[at.NAME_BYTES]).decode(errors="replace"),
            producer_id=column[at.PRODUCER_ID],
            request_id=column[at.REQUEST_ID],
            schema=schema,
        )

    def _slice(self, start: int, size: int) -> bytes:
        return self.data[start : start + size].tobytes()

    def _attributes(self, position: int, count: int) -> dict[str, str]:
        found = {}
        for _ in range(count):
            size = int.from_bytes(self._slice(position, 2))
            name = self._slice(position + 2, size).decode(errors="replace")
            position += 2 + size
            size = int.from_bytes(self._slice(position, 4))
            found[name] = self._slice(position + 4, size).decode(errors="replace")
            position += 4 + size
        return found

    def __iter__(self) -> Iterator[Record]:
        return (self.record(row) for row in range(len(self)))

    def select(self, start: int, stop: int) -> Block:
        """Rows `start` to `stop` of the same buffer."""
        return Block(self.data, self.columns[start:stop])

    def to_arrow(self, columns: Iterable[str] | None = None, *, views: bool = True) -> pa.RecordBatch:
        """The records as columns; payload, key and type stay where they are unless `views` is off."""
        from penstock.record.arrow import to_arrow

        return to_arrow(self, columns, views=views)


EMPTY: Final = Block(np.empty(0, dtype=np.uint8), np.empty((0, at.COLUMNS), dtype=np.int64))


def scan(
    data: Any,
    *,
    start: int = 0,
    stop: int | None = None,
    after: After = START_OF_LOG,
    verify: bool = True,
    envelopes: bool = True,
    rows_max: int | None = None,
) -> tuple[Block, Stop]:
    """Read stamped records from a buffer up to its end, unused space, or the first record that is not right."""
    mode = at.STAMPED | (at.VERIFY if verify else 0) | (at.ENVELOPES if envelopes else 0)
    return _scan(as_array(data), start, stop, mode, after, rows_max)


def _scan(
    array: Bytes, start: int, stop: int | None, mode: int, after: After, rows_max: int | None
) -> tuple[Block, Stop]:
    stop = array.size if stop is None else stop
    if not 0 <= start <= stop <= array.size:
        raise InvalidRequest(f"a scan from {start} to {stop} does not fit in {array.size} bytes")
    tables: list[Longs] = []
    done = 0
    while True:
        rows = max(_ROWS_FIRST, done)
        table = np.empty((rows if rows_max is None else min(rows, rows_max - done), at.COLUMNS), dtype=np.int64)
        expected = after.next_offset + done if after.next_offset >= 0 and mode & at.ENVELOPES else -1
        count, position, reason = kernels.scan(array, start, stop, mode, after.id_high, after.id_low, expected, table)
        tables.append(table[:count])
        done += count
        if reason != at.MORE or done == rows_max:
            break
        start = position
        after = After(int(table[-1, at.ID_HIGH]), int(table[-1, at.ID_LOW]), after.next_offset)
    columns = tables[0] if len(tables) == 1 else np.concatenate(tables)
    return Block(array, columns), Stop(position, reason)


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Checked records that wait for their ids, offsets, times and checksums."""

    data: Any
    count: int

    def __len__(self) -> int:
        return self.count

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Draft:
        """The messages as records, in order. Raises `InvalidRequest` or `PayloadTooLarge` before anything is stored."""
        records = [draft_bytes(message) for message in messages]
        if not records:
            raise InvalidRequest("a block has at least one message")
        return cls(records[0] if len(records) == 1 else b"".join(records), len(records))

    @classmethod
    def parse(cls, data: Any, *, verify: bool = True) -> Draft:
        """A block from outside. Every byte is checked; ids, offsets and times in it are ignored.

        Raises `MalformedMessage` with the record's number, its position and what is wrong with it.
        """
        array = as_array(data)
        mode = at.ENVELOPES | (at.VERIFY if verify else 0)
        block, stop = _scan(array, 0, None, mode, START_OF_LOG, None)
        if stop.reason != at.AT_END:
            raise _malformed(len(block), stop.position, str(stop))
        if not len(block):
            raise InvalidRequest("a block has at least one message")
        _check_fields(block)
        return cls(data, len(block))

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch) -> Draft:
        """The rows of a batch with a `value` column and any of the others that `Block.to_arrow` gives."""
        from penstock.record.arrow import from_arrow

        return from_arrow(batch)

    def check_sizes(self, bounds: Limits) -> None:
        """Raise `PayloadTooLarge` if the block or one of its payloads is larger than `bounds` allow."""
        if len(self.data) > bounds.block_bytes_max:
            raise PayloadTooLarge(
                f"a block has at most {bounds.block_bytes_max} bytes, not {len(self.data)}",
                limit=bounds.block_bytes_max,
            )
        if len(self.data) <= bounds.payload_bytes_max:
            return
        block, _ = _scan(as_array(self.data), 0, None, at.ENVELOPES, START_OF_LOG, None)
        sizes = block.columns[:, at.END] - block.columns[:, at.PAYLOAD] - at.CHECKSUM_BYTES
        if len(block) and int(sizes.max()) > bounds.payload_bytes_max:
            row = int(sizes.argmax())
            raise PayloadTooLarge(
                f"message {row} of the block: a payload has at most {bounds.payload_bytes_max} bytes, not {sizes[row]}",
                record=row,
                limit=bounds.payload_bytes_max,
            )


def stamp(data: bytearray, count: int, ids: IdRun, first_offset: int) -> Longs:
    """Stamp the `count` drafted records in `data`, in place; where each of them ends.

    Id, offset and time of record i are `ids[i]`, `first_offset + i` and the time of the id. Raises if there are not
    exactly `count` records and ids; the bytes are then of no use.
    """
    if ids.count != count:
        raise InvalidRequest(f"{count} records take {count} ids, not {ids.count}")
    array = as_array(data)
    ends = np.empty(count, dtype=np.int64)
    low = ids.low - 2**64 if ids.low >= 2**63 else ids.low
    stamped = kernels.stamp(array, ids.first_ticks, low, first_offset, ends)
    if stamped != count:
        raise MalformedMessage(f"a block of {count} records expected, found {max(stamped, 0)}")
    return ends


def _malformed(record: int, position: int, what: str) -> MalformedMessage:
    return MalformedMessage(f"record {record} at byte {position}: {what}", record=record, position=position)


_NUMBERS: Final = (
    (at.PRODUCER_ID, "producer_id", NUMBER_MAX),
    (at.REQUEST_ID, "request_id", NUMBER_MAX),
    (at.SCHEMA_ID, "schema_id", NUMBER_MAX),
    (at.SCHEMA_VERSION, "schema_version", SCHEMA_VERSION_MAX),
    (at.NAME_BYTES, "producer_name", limits.PRODUCER_NAME_BYTES_MAX),
    (at.ATTRIBUTES, "number of attributes", limits.ATTRIBUTES_MAX),
)


def _check_fields(block: Block) -> None:
    """The same rules that `draft_bytes` has for one message, for a whole block."""
    _check_text(block, text_kernels.first_bad_text, "type, producer name or an attribute is not UTF-8")
    for row, what, maximum in _NUMBERS:
        values = block.columns[:, row]
        wrong = np.flatnonzero((values < 0) | (values > maximum))
        if wrong.size:
            first = int(wrong[0])
            start = int(block.columns[first, at.START])
            raise _malformed(first, start, f"{what} must be from 0 to {maximum}, not {int(values[first])}")
    _check_attributes(block)
    # Last: it compares each name with all before it, and only now are they known to be few.
    _check_text(block, text_kernels.first_repeated_attribute, "an attribute is named twice")


def _check_text(block: Block, first_bad: Callable[[Bytes, Longs], int], what: str) -> None:
    bad = first_bad(block.data, block.columns)
    if bad >= 0:
        raise _malformed(bad, int(block.columns[bad, at.START]), what)


def _check_attributes(block: Block) -> None:
    columns = block.columns
    head = columns[:, at.START] + at.HEAD_BYTES + columns[:, at.TYPE_BYTES] + at.ENVELOPE_BYTES_MIN
    sizes = columns[:, at.PAYLOAD] - head - columns[:, at.NAME_BYTES] - columns[:, at.KEY_BYTES]
    wrong = np.flatnonzero(sizes > limits.ATTRIBUTE_BYTES_MAX)
    if wrong.size:
        first = int(wrong[0])
        what = f"attributes take at most {limits.ATTRIBUTE_BYTES_MAX} bytes, not {int(sizes[first])}"
        raise _malformed(first, int(columns[first, at.START]), what)
    suspects = np.flatnonzero(sizes > limits.ATTRIBUTE_NAME_BYTES_MAX)
    if suspects.size:
        _check_attribute_names(block, suspects)


def _check_attribute_names(block: Block, suspects: Longs) -> None:
    """Of the records whose attributes are long enough to hold too long a name, the first that does."""
    columns = block.columns[suspects]
    counts = columns[:, at.ATTRIBUTES]
    ranges = np.empty((int(counts.sum()), 4), dtype=np.int64)
    kernels.attribute_ranges(block.data, columns, ranges.reshape(-1))
    wrong = np.flatnonzero(ranges[:, 1] > limits.ATTRIBUTE_NAME_BYTES_MAX)
    if wrong.size:
        entry = int(wrong[0])
        first = int(suspects[np.searchsorted(np.cumsum(counts), entry, side="right")])
        what = f"an attribute name takes at most {limits.ATTRIBUTE_NAME_BYTES_MAX} bytes, not {int(ranges[entry, 1])}"
        raise _malformed(first, int(block.columns[first, at.START]), what)
