"""Kernels on whole blocks of records: bytes in, columns out, without a Python object for each message.

With the other modules of this room the only numba code of the project. Every kernel releases the GIL, has one
signature, and is compiled once per machine (see `kernel_cache`). A kernel trusts its caller for array sizes and nothing
else: lengths found in the data are checked against the range it was given before they are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.ids import TICKS_PER_MS, UNIX_EPOCH_TICKS
from penstock.core.limits import ATTRIBUTES_MAX
from penstock.record import layout as at
from penstock.record.kernels import simd
from penstock.record.kernels.kernel_cache import kernel
from penstock.record.kernels.kernel_types import (
    BUFFER,
    BYTES,
    INTS_OUT,
    LONG,
    LONGS,
    LONGS_OUT,
    TABLE,
    TABLE_IN,
    WORDS,
    inlined,
    types,
)
from penstock.record.kernels.utf8 import attributes_are_text, is_text

_EPOCH = UNIX_EPOCH_TICKS
_TICKS = TICKS_PER_MS
_ATTRIBUTES_MAX = ATTRIBUTES_MAX
_INLINE_BYTES = 12  # an Arrow view of at most this many bytes holds them itself


@inlined
def _record_end(data: int, position: int, stop: int) -> int:
    """Return where the record at `position` ends; -1 if it does not end by `stop`."""
    if stop - position < at.RECORD_BYTES_MIN:
        return -1
    message = position + at.HEAD_BYTES + simd.load8(data, position + at.TYPE_LENGTH_AT)
    if message + at.CHECKSUM_BYTES > stop:
        return -1
    end = message + simd.load32(data, message - at.MESSAGE_LENGTH_BYTES) + at.CHECKSUM_BYTES
    return end if end <= stop else -1


@inlined
def _unused(data: int, position: int, stop: int) -> bool:
    """Return True if the next sixteen bytes are zero, or all bytes up to `stop` if there are fewer."""
    if stop - position >= at.ID_BYTES:
        return bool(simd.load64(data, position) | simd.load64(data, position + 8) == 0)
    for place in range(position, stop):  # noqa: SIM110 - numba compiles no generators
        if simd.load8(data, place) != 0:
            return False
    return True


@inlined
def _after_attributes(data: int, position: int, stop: int) -> int:
    """Return where the attributes that begin at `position` end, which is where the payload begins; -1 if they reach
    past `stop`."""
    if position + 2 > stop:
        return -1
    count = simd.load16(data, position)
    position += 2
    for _ in range(count):
        if position + 2 > stop:
            return -1
        position += 2 + simd.load16(data, position)
        if position + 4 > stop:
            return -1
        position += 4 + simd.load32(data, position)
        if position > stop:
            return -1
    return position


@inlined
def _read_envelope(data: int, message: int, stop: int, row: int) -> bool:
    """Write the columns of one record's envelope to `row`; return False if the envelope violates the format."""
    if stop - message < at.ENVELOPE_BYTES_MIN or simd.load8(data, message) != at.VERSION:
        return False
    flags = simd.load8(data, message + at.FLAGS_AT)
    name_bytes = simd.load16(data, message + at.NAME_LENGTH_AT)
    key = message + at.NAME_LENGTH_AT + 2 + name_bytes
    if key + 4 > stop:
        return False
    key_bytes = simd.load16(data, key)
    attributes = key + 2 + key_bytes
    payload = _after_attributes(data, attributes, stop)
    if payload < 0:
        return False
    schema_id = simd.load64(data, message + at.SCHEMA_ID_AT)
    schema_version = simd.load32(data, message + at.SCHEMA_VERSION_AT)
    simd.put(row, at.OFFSET, simd.load64(data, message + at.OFFSET_AT))
    simd.put(row, at.PRODUCER_ID, simd.load64(data, message + at.PRODUCER_ID_AT))
    simd.put(row, at.REQUEST_ID, simd.load64(data, message + at.REQUEST_ID_AT))
    simd.put(row, at.PUBLISH_TIME, simd.load64(data, message + at.PUBLISH_TIME_AT))
    simd.put(row, at.SCHEMA_ID, schema_id)
    simd.put(row, at.SCHEMA_VERSION, schema_version)
    simd.put(row, at.FLAGS, flags)
    simd.put(row, at.NAME_BYTES, name_bytes)
    simd.put(row, at.KEY_BYTES, key_bytes)
    simd.put(row, at.ATTRIBUTES, simd.load16(data, attributes))
    simd.put(row, at.PAYLOAD, payload)
    return _flags_agree(flags, schema_id | schema_version, key_bytes)


@inlined
def _flags_agree(flags: int, schema: int, key_bytes: int) -> bool:
    """Return True if all flags are known, and the fields whose flag is not set are zero."""
    if flags & ~at.FLAGS_KNOWN != 0:
        return False
    if flags & at.FLAG_SCHEMA == 0 and schema != 0:
        return False
    return not (flags & at.FLAG_KEY == 0 and key_bytes != 0)


@inlined
def _is_version_6(high: int, low: int) -> bool:
    return (high >> 12) & 0xF == 6 and (low >> 62) & 3 == 2


@inlined
def _rises(high: int, low: int, after_high: int, after_low: int) -> bool:
    if high != after_high:
        return bool(np.uint64(high) > np.uint64(after_high))
    return bool(np.uint64(low) > np.uint64(after_low))


@inlined
def _raw_columns(message: int, row: int) -> None:
    for field in range(at.OFFSET, at.PAYLOAD):
        simd.put(row, field, 0)
    simd.put(row, at.PAYLOAD, message)


@inlined
def _checksum_holds(data: int, position: int, end: int) -> bool:
    body = end - at.CHECKSUM_BYTES
    return bool(simd.hash64(data, position, body - position) == np.uint64(simd.load64(data, body)))


@inlined
def attributes_start(row: int) -> int:
    """Return where a record's attributes begin, behind their count."""
    message: int = simd.get(row, at.START) + at.HEAD_BYTES + simd.get(row, at.TYPE_BYTES)
    variable: int = simd.get(row, at.NAME_BYTES) + simd.get(row, at.KEY_BYTES)
    return message + at.ENVELOPE_BYTES_MIN + variable


@inlined
def has_text(data: int, row: int) -> bool:
    """Return True if type, producer name and attributes of a record are valid UTF-8."""
    start = simd.get(row, at.START) + at.TYPE_AT
    type_bytes, name_bytes = simd.get(row, at.TYPE_BYTES), simd.get(row, at.NAME_BYTES)
    name = start + type_bytes + at.MESSAGE_LENGTH_BYTES + at.NAME_LENGTH_AT + 2
    if not is_text(data, start, type_bytes) or not is_text(data, name, name_bytes):
        return False
    return bool(attributes_are_text(data, attributes_start(row), simd.get(row, at.ATTRIBUTES)))


@inlined
def _judge(data: int, position: int, end: int, mode: int, row: int) -> int:
    """Check one record by itself, and write its columns to `row`; return the reason why it is bad, or AT_END if it is
    good.

    `mode` says what is checked: checksum, envelope, texts, id.
    """
    if mode & at.VERIFY and not _checksum_holds(data, position, end):
        return at.BAD_CHECKSUM
    message = position + at.HEAD_BYTES + simd.load8(data, position + at.TYPE_LENGTH_AT)
    simd.put(row, at.START, position)
    simd.put(row, at.END, end)
    simd.put(row, at.ID_HIGH, simd.load64(data, position))
    simd.put(row, at.ID_LOW, simd.load64(data, position + 8))
    simd.put(row, at.TYPE_BYTES, simd.load8(data, position + at.TYPE_LENGTH_AT))
    if mode & at.ENVELOPES:
        if not _read_envelope(data, message, end - at.CHECKSUM_BYTES, row):
            return at.BAD_ENVELOPE
        if mode & at.TEXTS and not has_text(data, row):
            return at.BAD_TEXT
    else:
        _raw_columns(message, row)
    if mode & at.STAMPED and not _is_version_6(simd.get(row, at.ID_HIGH), simd.get(row, at.ID_LOW)):
        return at.BAD_ID
    return at.AT_END


@kernel(types.UniTuple(LONG, 3)(BYTES, LONG, LONG, LONG, LONG, LONG, LONG, TABLE))
def scan(
    block: Any, start: int, stop: int, mode: int, after_high: int, after_low: int, next_offset: int, columns: Any
) -> tuple[int, int, int]:
    """Read records from `start` on into `columns`; return how many were read, where the scan stopped, and why.

    With STAMPED, ids must rise above `(after_high, after_low)`. Offsets must count up from `next_offset`, unless that
    is negative.
    """
    data, row = simd.address(block), simd.address(columns)
    count = 0
    while start < stop:
        if count == columns.shape[0]:
            return count, start, at.MORE
        if mode & at.STAMPED and _unused(data, start, stop):
            return count, start, at.UNUSED
        end = _record_end(data, start, stop)
        if end < 0:
            return count, start, at.CUT
        verdict = _judge(data, start, end, mode, row)
        if verdict != at.AT_END:
            return count, start, verdict
        if mode & at.STAMPED:
            if next_offset >= 0 and simd.get(row, at.OFFSET) != next_offset + count:
                return count, start, at.BAD_OFFSET
            if not _rises(simd.get(row, at.ID_HIGH), simd.get(row, at.ID_LOW), after_high, after_low):
                return count, start, at.BAD_ORDER
            after_high, after_low = simd.get(row, at.ID_HIGH), simd.get(row, at.ID_LOW)
        start = end
        count += 1
        row += at.ROW_BYTES
    return count, start, at.AT_END


@inlined
def _plausible(data: int, position: int, after_high: int, after_low: int) -> bool:
    high, low = simd.load64(data, position), simd.load64(data, position + 8)
    return _is_version_6(high, low) and _rises(high, low, after_high, after_low)


@inlined
def _claims(data: int, position: int, end: int, offset_low: int, offset_high: int) -> bool:
    """Return True if version, offset, name, key and number of attributes are plausible. These cheap checks come before
    the costly ones."""
    message = position + at.HEAD_BYTES + simd.load8(data, position + at.TYPE_LENGTH_AT)
    stop = end - at.CHECKSUM_BYTES
    if stop - message < at.ENVELOPE_BYTES_MIN or simd.load8(data, message) != at.VERSION:
        return False
    if not offset_low <= simd.load64(data, message + at.OFFSET_AT) < offset_high:
        return False
    key = message + at.NAME_LENGTH_AT + 2 + simd.load16(data, message + at.NAME_LENGTH_AT)
    if key + 4 > stop:
        return False
    attributes = key + 2 + simd.load16(data, key)
    return bool(attributes + 2 <= stop and simd.load16(data, attributes) <= _ATTRIBUTES_MAX)


@inlined
def _is_followed(data: int, end: int, stop: int, row: int) -> bool:
    """Return True if a record is followed by unused space, or by what looks like the next record."""
    if _unused(data, end, stop):
        return True
    if end + at.MESSAGE_RECORD_BYTES_MIN > stop or not _plausible(
        data, end, simd.get(row, at.ID_HIGH), simd.get(row, at.ID_LOW)
    ):
        return False
    message = end + at.HEAD_BYTES + simd.load8(data, end + at.TYPE_LENGTH_AT)
    if message + at.OFFSET_AT + 8 > stop:
        return False
    return bool(simd.load64(data, message + at.OFFSET_AT) == simd.get(row, at.OFFSET) + 1)


@kernel(types.UniTuple(LONG, 2)(BYTES, LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG))
def find(
    block: Any,
    start: int,
    stop: int,
    after_high: int,
    after_low: int,
    offset_low: int,
    offset_high: int,
    hashed_freely: int,
    hashed_max: int,
) -> tuple[int, int]:
    """Find the first whole, verified record from `start` on; return its position (-1 if there is none) and how many
    bytes were hashed.

    Its id must be above `(after_high, after_low)` and its offset in `[offset_low, offset_high)`. The checksum is
    checked last, because a length found in chance bytes can be that of the whole block. A forged payload can have many
    such places. So once `hashed_freely` bytes are hashed, only records are tried behind which another one seems to
    follow, and at `hashed_max` bytes the search ends.
    """
    data = simd.address(block)
    scratch = np.empty(at.COLUMNS, dtype=np.int64)
    row = simd.address(scratch)
    hashed = 0
    for position in range(start, stop - at.MESSAGE_RECORD_BYTES_MIN + 1):
        if not _plausible(data, position, after_high, after_low):
            continue
        end = _record_end(data, position, stop)
        if end < 0 or not _claims(data, position, end, offset_low, offset_high):
            continue
        if _judge(data, position, end, at.ENVELOPES | at.TEXTS | at.STAMPED, row) != at.AT_END:
            continue
        if hashed >= hashed_freely and not _is_followed(data, end, stop, row):
            continue
        if hashed >= hashed_max:
            return -1, hashed
        hashed += end - position
        if _checksum_holds(data, position, end):
            return position, hashed
    return -1, hashed


@inlined
def id_high(ticks: int) -> int:
    """Return the first eight bytes of an id: `core.ids.high_word`."""
    return (ticks >> 12) << 16 | 0x6000 | ticks & 0xFFF


@kernel(LONG(BUFFER, LONG, LONG, LONG, LONGS_OUT))
def stamp(block: Any, first_ticks: int, id_low: int, first_offset: int, ends: Any) -> int:
    """Write ids, offsets, times and checksums into the records of a checked block; return the number of records.

    `ends` receives where each record ends. Returns -1 if the records do not fill the block exactly, are more than
    `ends` has room for, or one has no room for an envelope.
    """
    data = simd.address(block)
    start, stop, count = 0, block.shape[0], 0
    while start < stop:
        end = _record_end(data, start, stop)
        if end < 0 or count == ends.shape[0]:
            return -1
        ticks = first_ticks + count
        message = start + at.HEAD_BYTES + simd.load8(data, start + at.TYPE_LENGTH_AT)
        if end - message < at.ENVELOPE_BYTES_MIN + at.CHECKSUM_BYTES:
            return -1
        simd.store64(data, start, id_high(ticks))
        simd.store64(data, start + 8, id_low)
        simd.store64(data, message + at.OFFSET_AT, first_offset + count)
        simd.store64(data, message + at.PUBLISH_TIME_AT, (ticks - _EPOCH) // _TICKS)
        body = end - at.CHECKSUM_BYTES
        simd.store64(data, body, np.int64(simd.hash64(data, start, body - start)))
        ends[count] = end
        start = end
        count += 1
    return count


@kernel(LONG(BUFFER))
def write_checksums(block: Any) -> int:
    """Write the checksums of a block's records, in place; return how many there were, -1 if they do not fill it
    exactly."""
    data = simd.address(block)
    start, stop, count = 0, block.shape[0], 0
    while start < stop:
        end = _record_end(data, start, stop)
        if end < 0:
            return -1
        body = end - at.CHECKSUM_BYTES
        simd.store64(data, body, np.int64(simd.hash64(data, start, body - start)))
        start = end
        count += 1
    return count


@inlined
def _put16(out: int, position: int, data: int, start: int, stop: int) -> int:
    """Write the length of a range in two bytes, and then its bytes; return where the next field begins."""
    simd.store16(out, position, stop - start)
    simd.copy(out, position + 2, data, start, stop - start)
    return position + 2 + stop - start


@inlined
def _put_head(out: int, position: int, data: int, start: int, stop: int) -> int:
    """Write sixteen zeros for the id, and the type; return where the message begins."""
    simd.store64(out, position, 0)
    simd.store64(out, position + 8, 0)
    simd.store8(out, position + at.TYPE_LENGTH_AT, stop - start)
    simd.copy(out, position + at.TYPE_AT, data, start, stop - start)
    return position + at.HEAD_BYTES + stop - start


@inlined
def _put_fixed(out: int, message: int, producer_id: int, request_id: int, schema_id: int, version: int) -> None:
    """Write the fixed part of the envelope; the log sets offset and time later."""
    simd.store8(out, message, at.VERSION)
    simd.store64(out, message + at.OFFSET_AT, 0)
    simd.store64(out, message + at.PRODUCER_ID_AT, producer_id)
    simd.store64(out, message + at.REQUEST_ID_AT, request_id)
    simd.store64(out, message + at.PUBLISH_TIME_AT, 0)
    simd.store64(out, message + at.SCHEMA_ID_AT, schema_id)
    simd.store32(out, message + at.SCHEMA_VERSION_AT, version)


@kernel(LONG(TABLE_IN, *(BYTES, LONGS) * 4, LONGS, *(BYTES, LONGS) * 2, BUFFER, types.boolean))
def encode(
    numbers: Any,
    types_: Any,
    type_ends: Any,
    names: Any,
    name_ends: Any,
    keys: Any,
    key_ends: Any,
    payloads: Any,
    payload_ends: Any,
    attribute_ends: Any,
    attribute_names: Any,
    attribute_name_ends: Any,
    attribute_values: Any,
    attribute_value_ends: Any,
    block: Any,
    checksums: bool,
) -> int:
    """Write a block of unstamped records from columns; return the number of bytes written.

    `numbers` has five rows: producer ids, request ids, schema ids, schema versions, flags. A text column is given as
    all its bytes, and the n + 1 boundaries of its values in them. The caller has added up the lengths, so `block` has
    room for all. Checksums are written only with `checksums`.
    """
    out, position = simd.address(block), 0
    type_data, name_data, key_data = simd.address(types_), simd.address(names), simd.address(keys)
    payload_data = simd.address(payloads)
    attribute_name_data, attribute_value_data = simd.address(attribute_names), simd.address(attribute_values)
    for row in range(numbers.shape[1]):
        start = position
        message = _put_head(out, position, type_data, type_ends[row], type_ends[row + 1])
        _put_fixed(out, message, numbers[0, row], numbers[1, row], numbers[2, row], numbers[3, row])
        simd.store8(out, message + at.FLAGS_AT, numbers[4, row])
        position = _put16(out, message + at.NAME_LENGTH_AT, name_data, name_ends[row], name_ends[row + 1])
        position = _put16(out, position, key_data, key_ends[row], key_ends[row + 1])
        simd.store16(out, position, attribute_ends[row + 1] - attribute_ends[row])
        position += 2
        for entry in range(attribute_ends[row], attribute_ends[row + 1]):
            name, name_end = attribute_name_ends[entry], attribute_name_ends[entry + 1]
            position = _put16(out, position, attribute_name_data, name, name_end)
            size = attribute_value_ends[entry + 1] - attribute_value_ends[entry]
            simd.store32(out, position, size)
            simd.copy(out, position + 4, attribute_value_data, attribute_value_ends[entry], size)
            position += 4 + size
        size = payload_ends[row + 1] - payload_ends[row]
        simd.copy(out, position, payload_data, payload_ends[row], size)
        position += size
        simd.store32(out, message - at.MESSAGE_LENGTH_BYTES, position - message)
        checksum = np.int64(simd.hash64(out, start, position - start)) if checksums else np.int64(0)
        simd.store64(out, position, checksum)
        position += at.CHECKSUM_BYTES
    return position


@kernel(types.void(BYTES, LONGS, LONGS, BUFFER))
def views(block: Any, starts: Any, sizes: Any, out: Any) -> None:
    """Write Arrow's sixteen-byte views of ranges of a block, which is not copied."""
    data, view = simd.address(block), simd.address(out)
    for row in range(starts.shape[0]):
        size = sizes[row]
        simd.store64(view, 0, 0)
        simd.store64(view, 8, 0)
        simd.native32(view, 0, size)
        if size <= _INLINE_BYTES:
            simd.copy(view, 4, data, starts[row], size)
        else:
            simd.copy(view, 4, data, starts[row], 4)
            simd.native32(view, 12, starts[row])
        view += 16


@kernel(types.void(BYTES, LONGS, LONGS, INTS_OUT, BUFFER))
def gather(block: Any, starts: Any, sizes: Any, ends: Any, out: Any) -> None:
    """Copy ranges of a block to `out`, one behind the other, and write Arrow's n + 1 boundaries of them to `ends`."""
    data, target, position = simd.address(block), simd.address(out), 0
    ends[0] = 0
    for row in range(starts.shape[0]):
        simd.copy(target, position, data, starts[row], sizes[row])
        position += sizes[row]
        ends[row + 1] = position


@kernel(types.void(BYTES, TABLE_IN, LONGS_OUT))
def attribute_ranges(block: Any, columns: Any, ranges: Any) -> None:
    """Write four numbers for each attribute of all records, in order: start and size of its name, start and size of its
    value."""
    data, row, entry = simd.address(block), simd.address(columns), 0
    for _ in range(columns.shape[0]):
        position = attributes_start(row)
        for _ in range(simd.get(row, at.ATTRIBUTES)):
            size = simd.load16(data, position)
            ranges[entry] = position + 2
            ranges[entry + 1] = size
            position += 2 + size
            size = simd.load32(data, position)
            ranges[entry + 2] = position + 4
            ranges[entry + 3] = size
            position += 4 + size
            entry += 4
        row += at.ROW_BYTES


@kernel(types.uint64(BYTES))
def hash_bytes(data: Any) -> int:
    """Return the HighwayHash-64 of a whole buffer."""
    digest: int = simd.hash64(simd.address(data), 0, data.shape[0])
    return digest


@kernel(types.void(WORDS, BYTES, LONG))
def hash_absorb(state: Any, data: Any, packets: int) -> None:
    """Absorb whole packets from the start of a buffer into a hash in progress."""
    simd.absorb(simd.address(state), simd.address(data), 0, packets)


@kernel(types.uint64(WORDS, BYTES))
def hash_finish(state: Any, data: Any) -> int:
    """Return the hash of all absorbed packets and of a last buffer of less than 32 bytes."""
    digest: int = simd.finish(simd.address(state), simd.address(data), 0, data.shape[0])
    return digest


@kernel(LONG(BYTES))
def first_used(block: Any) -> int:
    """Return the position of the first byte that is not zero; -1 if all are."""
    data, start, stop = simd.address(block), 0, block.shape[0]
    while stop - start >= 8 and simd.load64(data, start) == 0:
        start += 8
    while start < stop:
        if simd.load8(data, start) != 0:
            return start
        start += 1
    return -1
