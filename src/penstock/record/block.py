"""Blocks: many records in one buffer. A `Draft` has records without ids and offsets; a `Block` has been scanned.

Every instance of both has been checked, so code that takes one need not check it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.core import limits
from penstock.core.errors import InvalidRequest, MalformedMessage, PayloadTooLarge
from penstock.core.ids import IdRun, ticks_of_id
from penstock.core.limits import Limits
from penstock.core.offsets import Offset, OffsetRange
from penstock.core.schemas import SCHEMA_VERSION_MAX
from penstock.record import layout as at
from penstock.record.hashing import as_array, as_signed
from penstock.record.kernels import block_kernels, stream_kernels, text_kernels
from penstock.record.message import NUMBER_MAX, Message, Record, SchemaRef, draft_bytes
from penstock.record.payloads import encode_payloads
from penstock.record.rows import RecordRow, accepted, matching, record_row, record_rows

if TYPE_CHECKING:
    import pyarrow as pa

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Longs = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

_ROWS_FIRST: Final = 1024
"""Rows that a scan first allocates, when the number of records is unknown; the table doubles from there."""
_ROWS_READ: Final = 1024
"""Records made into objects at a time when a block is iterated."""


@dataclass(frozen=True, slots=True)
class ScanStop:
    """The position in bytes where a scan stopped, and the reason: one of the constants in `layout`."""

    position: int
    reason: int

    def __str__(self) -> str:
        return at.REASONS[self.reason]


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The record before the first one of a scan: its id, and the offset that the next record must have (-1: any)."""

    id_high: int = 0
    id_low: int = 0
    next_offset: int = -1


START_OF_LOG: Final = Predecessor()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Records in a buffer, and a table with a row for each: `columns[record, field]`, with the field numbers of
    `layout`."""

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
        """The range from the first record's offset to the last one's; a block with gaps does not have all offsets in
        it."""
        if not len(self):
            return OffsetRange.of(0, 0)
        return OffsetRange.of(int(self.columns[0, at.OFFSET]), int(self.columns[-1, at.OFFSET]) + 1)

    @property
    def last(self) -> Predecessor:
        """The last record, as the predecessor for a scan that continues after this block."""
        high, low, offset = (int(self.columns[-1, row]) for row in (at.ID_HIGH, at.ID_LOW, at.OFFSET))
        return Predecessor(high, low, offset + 1)

    def id(self, row: int) -> bytes:
        start = int(self.columns[row, at.START])
        return self.data[start : start + at.ID_BYTES].tobytes()

    def type(self, row: int) -> str:
        start = int(self.columns[row, at.START]) + at.TYPE_AT
        return self.data[start : start + int(self.columns[row, at.TYPE_BYTES])].tobytes().decode(errors="replace")

    def payload(self, row: int) -> memoryview:
        stop = int(self.columns[row, at.END]) - at.CHECKSUM_BYTES
        return self.data.data[int(self.columns[row, at.PAYLOAD]) : stop]

    @property
    def payload_sizes(self) -> Longs:
        return self.columns[:, at.END] - self.columns[:, at.PAYLOAD] - at.CHECKSUM_BYTES

    def record(self, row: int) -> Record:
        return _record(record_row(self.data, self.columns[row].tolist()))

    def rows(self) -> list[RecordRow]:
        """Return every record as a plain tuple: the quickest way to many Python objects."""
        return record_rows(self.data, self.columns)

    def __iter__(self) -> Iterator[Record]:
        for start in range(0, len(self), _ROWS_READ):
            yield from map(_record, self.select(start, start + _ROWS_READ).rows())

    def key_hashes(self) -> Words:
        """Return `message.key_hash` of every key; 0 for a record without a key."""
        hashes = np.empty(len(self), dtype=np.int64)
        stream_kernels.key_hashes(self.data, self.columns, hashes)
        return hashes.view(np.uint64)

    def matching(self, types: Sequence[str] = (), keys: Sequence[str] = ()) -> Bools:
        """Return a mask of the records whose type matches one of `types` and whose key matches one of `keys`.

        Both are patterns with `*` and `?`. An empty sequence sets no condition.
        """
        return matching(self.data, self.columns, types, keys)

    def accepted(self, accept: Callable[[str], bool]) -> Bools:
        """Return a mask of the records whose type `accept` accepts."""
        return accepted(self.data, self.columns, accept)

    def select(self, start: int, stop: int) -> Block:
        """Return the records from row `start` to `stop` as a block on the same buffer, not copied."""
        return Block(self.data, self.columns[start:stop])

    def filtered(self, chosen: Bools) -> Block:
        """Return the records for which the mask `chosen` is true, as a block on the same buffer, not copied."""
        return self if chosen.all() else Block(self.data, self.columns[chosen])

    def gather(self, chosen: Longs | Bools) -> Block:
        """Return the chosen records, copied to a new buffer one behind the other. `chosen` is a mask, or row numbers in
        the order wanted."""
        columns = self.columns[chosen]
        out = np.empty(int((columns[:, at.END] - columns[:, at.START]).sum()), dtype=np.uint8)
        stream_kernels.gather_records(self.data, columns, out)
        return Block(out, columns)

    def write_lines(self, out: Bytes, ends: Longs) -> bool:
        """Write every payload and a newline behind it to `out`, and where each line ends to `ends`. Return True if a
        payload itself contains a newline.

        `out` must have the size of all payloads, plus one byte for each.
        """
        within: bool = stream_kernels.lines(self.data, self.columns, out, ends)
        return within

    def attribute(self, name: str, chosen: Bools) -> dict[int, str]:
        """Return the values of one attribute, by row number, for those records of the mask `chosen` that have it."""
        columns, wanted_name = self.columns[chosen], as_array(name.encode())
        ranges = _attribute_ranges(self.data, columns)
        sized = np.flatnonzero(ranges[:, 1] == wanted_name.size)
        same = (self.data[ranges[sized, :1] + np.arange(wanted_name.size)] == wanted_name).all(axis=1)
        entries = sized[same]
        row_numbers = np.repeat(np.flatnonzero(chosen), columns[:, at.ATTRIBUTES])[entries]
        return {
            row: self.data[start : start + size].tobytes().decode()
            for row, (start, size) in zip(row_numbers.tolist(), ranges[entries, 2:].tolist(), strict=True)
        }

    def with_schema(self, chosen: Bools, schema: SchemaRef) -> Block:
        """Return a copy in which the records of the mask have this schema. Their checksums are wrong until they are
        stamped again."""
        return self.with_schemas(chosen, np.array([schema.id]), np.array([schema.version]))

    def with_schemas(self, chosen: Longs | Bools, ids: Longs, versions: Longs) -> Block:
        """Return a copy in which the chosen records have these schemas: one id and version for each, or one of each for
        all.

        Their checksums are wrong until they are stamped again.
        """
        data, columns = self.data.copy(), self.columns.copy()
        messages = columns[chosen, at.START] + at.HEAD_BYTES + columns[chosen, at.TYPE_BYTES]
        fields = np.hstack([_big_endian(ids, ">i8"), _big_endian(versions, ">i4")])
        data[messages[:, None] + at.SCHEMA_ID_AT + np.arange(fields.shape[1])] = fields
        data[messages + at.FLAGS_AT] |= at.FLAG_SCHEMA
        columns[chosen, at.SCHEMA_ID], columns[chosen, at.SCHEMA_VERSION] = ids, versions
        columns[chosen, at.FLAGS] |= at.FLAG_SCHEMA
        return Block(data, columns)

    def to_arrow(self, columns: Iterable[str] | None = None, *, views: bool = True) -> pa.RecordBatch:
        """Return the records as an Arrow batch of the named columns, or of all.

        Payload, key and type are not copied, unless `views` is off. Raises `InvalidRequest` for an unknown column.
        """
        from penstock.record.arrow import to_arrow

        return to_arrow(self, columns, views=views)


def _record(row: RecordRow) -> Record:
    id_, offset, publish_time_ms, type_, key, payload, name, producer_id, request_id, schema, attributes = row
    message = Message(
        payload=payload,
        type=type_,
        key=key,
        attributes=attributes or {},
        producer_name=name,
        producer_id=producer_id,
        request_id=request_id,
        schema=schema,
    )
    return Record(id=id_, offset=Offset(offset), publish_time_ms=publish_time_ms, message=message)


EMPTY_BLOCK: Final = Block(np.empty(0, dtype=np.uint8), np.empty((0, at.COLUMNS), dtype=np.int64))


def scan(
    data: Any,
    *,
    start: int = 0,
    stop: int | None = None,
    after: Predecessor = START_OF_LOG,
    verify: bool = True,
    envelopes: bool = True,
    rows_max: int | None = None,
    table: Longs | None = None,
) -> tuple[Block, ScanStop]:
    """Read stamped records from a buffer, and return them with the reason and place of the stop.

    Stops at `stop` or the end of the buffer, at unused space, after `rows_max` records, or at the first record that is
    not right. Ids must rise above that of `after`, and offsets must follow it without gaps. With `verify`, checksums
    are checked; with `envelopes`, the message must be a Penstock envelope. `table` is an array to be used for the first
    columns, from a caller that knows the number of records.
    """
    mode = at.STAMPED | (at.VERIFY if verify else 0) | (at.ENVELOPES | at.TEXTS if envelopes else 0)
    return _scan(as_array(data), start, stop, mode, after, rows_max, table)


def _scan(
    array: Bytes,
    start: int,
    stop: int | None,
    mode: int,
    after: Predecessor,
    rows_max: int | None,
    room: Longs | None = None,
) -> tuple[Block, ScanStop]:
    stop = array.size if stop is None else stop
    if not 0 <= start <= stop <= array.size:
        raise InvalidRequest(f"a scan from {start} to {stop} does not fit in {array.size} bytes")
    tables: list[Longs] = []
    count_so_far = 0
    while True:
        table = (
            room
            if room is not None and not count_so_far
            else _table(max(_ROWS_FIRST, count_so_far), rows_max, count_so_far)
        )
        expected = after.next_offset + count_so_far if after.next_offset >= 0 and mode & at.ENVELOPES else -1
        count, position, reason = block_kernels.scan(
            array, start, stop, mode, after.id_high, after.id_low, expected, table
        )
        tables.append(table[:count])
        count_so_far += count
        if reason != at.MORE or count_so_far == rows_max:
            break
        start = position
        after = Predecessor(int(table[-1, at.ID_HIGH]), int(table[-1, at.ID_LOW]), after.next_offset)
    columns = tables[0] if len(tables) == 1 else np.concatenate(tables)
    return Block(array, columns), ScanStop(position, reason)


def _table(rows: int, rows_max: int | None, done: int) -> Longs:
    return np.empty((rows if rows_max is None else min(rows, rows_max - done), at.COLUMNS), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Checked records that have no ids, offsets, times and checksums yet; the log stamps them when it appends them."""

    data: Any
    count: int
    unbounded: bool = False
    """True if the log's size limits do not apply: the broker made the block of a message that it had accepted
    before."""

    def __len__(self) -> int:
        return self.count

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Draft:
        """Encode messages as records, in order.

        Raises `InvalidRequest` for an impossible message or for none at all, `PayloadTooLarge` for one that is too
        large.
        """
        records = [draft_bytes(message) for message in messages]
        if not records:
            raise InvalidRequest("a block has at least one message")
        return cls(records[0] if len(records) == 1 else b"".join(records), len(records))

    def with_checksums(self) -> Draft:
        """Return a copy with right checksums, which a block needs on the wire."""
        data = bytearray(self.data)
        if block_kernels.write_checksums(as_array(data)) != self.count:
            raise MalformedMessage(f"a block of {self.count} records expected")
        return Draft(data, self.count)

    @classmethod
    def parse(cls, data: Any, *, verify: bool = True) -> Draft:
        """Check every byte of a block from outside, and return it as a draft; ids, offsets and times in it are ignored.

        Raises `MalformedMessage` with the record's number, its position and the reason; `InvalidRequest` for an empty
        block.
        """
        return cls(data, len(parse_block(data, verify=verify)))

    @classmethod
    def of_block(cls, block: Block, *, unbounded: bool = False) -> Draft:
        """Return the records of a block as a draft. They are copied only if they do not lie one directly behind the
        other.

        Raises `InvalidRequest` for an empty block.
        """
        if not len(block):
            raise InvalidRequest("a block has at least one message")
        if (block.columns[1:, at.START] != block.columns[:-1, at.END]).any():
            block = block.gather(np.arange(len(block)))
        return cls(block.raw, len(block), unbounded)

    @classmethod
    def of_payloads(
        cls,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        type: str = "",  # noqa: A002 - the name of the field
        attributes: Mapping[str, str] | None = None,
        schema: SchemaRef | None = None,
        producer_name: str = "",
        producer_id: int = 0,
        first_request_id: int = 0,
    ) -> Draft:
        """Return a draft with one message for each payload. All other fields but the key are the same in each message.

        `keys` has a key, or None, for each payload. Request ids count up from `first_request_id`; with 0 no message has
        one. Checksums are right, as the wire needs them. Raises `InvalidRequest` or `PayloadTooLarge`.
        """
        common = Message(
            payload=b"",
            type=type,
            attributes=attributes or {},
            schema=schema,
            producer_name=producer_name,
            producer_id=producer_id,
            request_id=first_request_id,
        )
        return cls(encode_payloads(payloads, keys, common), len(payloads))

    @classmethod
    def from_arrow(
        cls,
        batch: pa.RecordBatch,
        *,
        producer_name: str | None = None,
        producer_id: int | None = None,
        first_request_id: int | None = None,
    ) -> Draft:
        """Encode the rows of a batch that has a `value` column and any other columns of `Block.to_arrow`.

        An argument replaces the column of its name. Request ids count up from `first_request_id`; with 0 no message has
        one. Raises `InvalidRequest` or `PayloadTooLarge`, naming the column and the row.
        """
        from penstock.record.arrow import from_arrow

        return from_arrow(
            batch, producer_name=producer_name, producer_id=producer_id, first_request_id=first_request_id
        )

    def check_sizes(self, bounds: Limits) -> None:
        """Raise `PayloadTooLarge` if the block or one of its payloads is larger than `bounds` allow."""
        block_bytes_max = limits.BLOCK_BYTES_CEILING if self.unbounded else bounds.block_bytes_max
        if len(self.data) > block_bytes_max:
            raise PayloadTooLarge(
                f"a block has at most {block_bytes_max} bytes, not {len(self.data)}", limit=block_bytes_max
            )
        if self.unbounded or len(self.data) <= bounds.payload_bytes_max:
            return
        block, _ = _scan(as_array(self.data), 0, None, at.ENVELOPES, START_OF_LOG, None)
        sizes = block.payload_sizes
        if len(block) and int(sizes.max()) > bounds.payload_bytes_max:
            row = int(sizes.argmax())
            raise PayloadTooLarge(
                f"message {row} of the block: a payload has at most {bounds.payload_bytes_max} bytes, not {sizes[row]}",
                record=row,
                limit=bounds.payload_bytes_max,
            )


def parse_block(data: Any, *, verify: bool = True) -> Block:
    """Check a block as `Draft.parse` does, and return it as a `Block`. Its ids, offsets and times are those that the
    sender wrote."""
    mode = at.ENVELOPES | (at.VERIFY if verify else 0)
    block, stop = _scan(as_array(data), 0, None, mode, START_OF_LOG, None)
    if stop.reason != at.AT_END:
        raise _malformed(len(block), stop.position, str(stop))
    if not len(block):
        raise InvalidRequest("a block has at least one message")
    _check_fields(block)
    return block


def read_draft(draft: Draft) -> Block:
    """Return a draft as a `Block`, without checking it again. Its ids, offsets and times have no meaning yet."""
    return _scan(as_array(draft.data), 0, None, at.ENVELOPES, START_OF_LOG, draft.count)[0]


def stamp(data: bytearray, count: int, ids: IdRun, first_offset: int) -> Longs:
    """Write ids, offsets, times and checksums into the `count` drafted records of `data`; return where each record
    ends.

    Record i gets the id `ids[i]`, the offset `first_offset + i` and the time of that id. Raises `InvalidRequest` unless
    there are `count` ids, `MalformedMessage` unless there are `count` records; `data` is of no use then.
    """
    if ids.count != count:
        raise InvalidRequest(f"{count} records take {count} ids, not {ids.count}")
    array = as_array(data)
    ends = np.empty(count, dtype=np.int64)
    stamped = block_kernels.stamp(array, ids.first_ticks, as_signed(ids.low), first_offset, ends)
    if stamped != count:
        raise MalformedMessage(f"a block of {count} records expected, found {max(stamped, 0)}")
    return ends


def stamp_each(data: bytearray, ids: Sequence[bytes], first_offset: int) -> Longs:
    """Stamp records as `stamp` does, with any ids in place of a run of consecutive ones.

    Raises `InvalidRequest` for an id that is no UUIDv6.
    """
    columns = _scan(as_array(data), 0, None, at.ENVELOPES, START_OF_LOG, None)[0].columns
    if len(columns) != len(ids):
        raise InvalidRequest(f"{len(columns)} records take {len(columns)} ids, not {len(ids)}")
    array = as_array(data)
    for row, id_ in enumerate(ids):
        low = int.from_bytes(id_[8:], "big")
        run = IdRun(ticks_of_id(id_), 1, low)
        if run[0] != id_ or low >> 62 != 2:
            raise InvalidRequest(f"{id_.hex()} is not a UUIDv6")
        start, end = int(columns[row, at.START]), int(columns[row, at.END])
        one = np.empty(1, dtype=np.int64)
        block_kernels.stamp(array[start:end], run.first_ticks, as_signed(low), first_offset + row, one)
    return columns[:, at.END].copy()


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
    """Raise `MalformedMessage` if a record breaks a rule that `draft_bytes` has for one message."""
    _check_text(block, text_kernels.first_bad_text, at.REASONS[at.BAD_TEXT])
    for row, what, maximum in _NUMBERS:
        values = block.columns[:, row]
        wrong = np.flatnonzero((values < 0) | (values > maximum))
        if wrong.size:
            first = int(wrong[0])
            start = int(block.columns[first, at.START])
            raise _malformed(first, start, f"{what} must be from 0 to {maximum}, not {int(values[first])}")
    _check_attributes(block)
    # Last, because it compares each name with all before it, and only now are they known to be few.
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


def _attribute_ranges(data: Bytes, columns: Longs) -> Longs:
    """Return start and size of the name, and start and size of the value, of every attribute."""
    ranges = np.empty((int(columns[:, at.ATTRIBUTES].sum()), 4), dtype=np.int64)
    block_kernels.attribute_ranges(data, columns, ranges.reshape(-1))
    return ranges


def _big_endian(numbers: Longs, kind: str) -> Bytes:
    """Return an array with a row for each number: its bytes in big-endian order. `kind` is the numpy type."""
    return numbers.astype(kind).view(np.uint8).reshape(len(numbers), -1)


def _check_attribute_names(block: Block, suspects: Longs) -> None:
    """Raise `MalformedMessage` for the first attribute name that is too long. `suspects` are the records whose
    attributes are large enough to have one."""
    columns = block.columns[suspects]
    ranges = _attribute_ranges(block.data, columns)
    wrong = np.flatnonzero(ranges[:, 1] > limits.ATTRIBUTE_NAME_BYTES_MAX)
    if wrong.size:
        entry = int(wrong[0])
        first = int(suspects[np.searchsorted(np.cumsum(columns[:, at.ATTRIBUTES]), entry, side="right")])
        what = f"an attribute name takes at most {limits.ATTRIBUTE_NAME_BYTES_MAX} bytes, not {int(ranges[entry, 1])}"
        raise _malformed(first, int(block.columns[first, at.START]), what)
