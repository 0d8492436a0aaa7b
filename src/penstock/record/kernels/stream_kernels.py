"""Kernels between the wire and the log: published messages become records, and records become frames.

Their input has been checked before: messages by `frame_kernels.split`, blocks by `block_kernels.scan`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.record import layout as at
from penstock.record.kernels import frame_kernels as wire
from penstock.record.kernels import simd
from penstock.record.kernels.block_kernels import attributes_start, id_high
from penstock.record.kernels.kernel_cache import kernel
from penstock.record.kernels.kernel_types import BUFFER, BYTES, LONG, LONGS, LONGS_OUT, TABLE, TABLE_IN, inlined, types

# FNV-1a, 64 bits, as signed numbers: `message.key_hash` is the same in plain Python.
_FNV_BASIS: Final = 0xCBF29CE484222325 - 2**64
_FNV_PRIME: Final = 0x100000001B3

_DIGIT: Final = 48
_RECENT: Final = 32  # different texts remembered: the types of a topic, the keys of a small one


@kernel(types.void(BYTES, TABLE_IN, LONGS_OUT))
def key_hashes(block: Any, columns: Any, hashes: Any) -> None:
    """Write the 64-bit FNV-1a hash of every record's key; 0 for a record without a key."""
    data, row = simd.address(block), simd.address(columns)
    for record in range(columns.shape[0]):
        mixed = 0
        if simd.get(row, at.FLAGS) & at.FLAG_KEY:
            mixed = _FNV_BASIS
            end = attributes_start(row) - 2
            for place in range(end - simd.get(row, at.KEY_BYTES), end):
                mixed = (mixed ^ simd.load8(data, place)) * _FNV_PRIME
        hashes[record] = mixed
        row += at.ROW_BYTES


@kernel(LONG(BYTES, LONGS, LONGS, LONGS_OUT, LONGS_OUT))
def alike(block: Any, starts: Any, sizes: Any, numbers: Any, firsts: Any) -> int:
    """Number the ranges of a block so that ranges with the same number are equal; return how many numbers there are.

    `firsts` receives the first range with each number. To bound the time, each range is compared only with the last few
    distinct ones. So where many differ, equal ranges may get different numbers.
    """
    data, count = simd.address(block), 0
    for row in range(starts.shape[0]):
        number = count - 1
        lowest = max(0, count - _RECENT)
        while number >= lowest:
            first = firsts[number]
            if sizes[first] == sizes[row] and wire.equal(data, starts[first], starts[row], sizes[row]):
                break
            number -= 1
        if number < lowest:
            number = count
            firsts[count] = row
            count += 1
        numbers[row] = number
    return count


@kernel(types.void(BYTES, TABLE, BUFFER))
def gather_records(block: Any, columns: Any, target: Any) -> None:
    """Copy the records of `columns` to `target`, one behind the other, and change the positions in `columns`
    accordingly."""
    data, row, out = simd.address(block), simd.address(columns), simd.address(target)
    position = 0
    for _ in range(columns.shape[0]):
        start = simd.get(row, at.START)
        size = simd.get(row, at.END) - start
        simd.copy(out, position, data, start, size)
        simd.put(row, at.START, position)
        simd.put(row, at.END, position + size)
        simd.put(row, at.PAYLOAD, simd.get(row, at.PAYLOAD) + position - start)
        position += size
        row += at.ROW_BYTES


@kernel(LONG(BYTES, BYTES, BYTES, LONGS, LONGS, BYTES, LONGS, LONG, types.boolean, BUFFER))
def encode_alike(
    head: Any,
    tail: Any,
    payloads: Any,
    starts: Any,
    sizes: Any,
    keys: Any,
    key_sizes: Any,
    first_request_id: int,
    checksums: bool,
    block: Any,
) -> int:
    """Write records that differ only in key, request id and payload; return the bytes written.

    `head` is a record up to its producer name, `tail` its attributes. `starts` and `sizes` are where in `payloads` each
    payload lies. `keys` has all keys one behind the other; a size of -1 means no key. Request ids count up from the
    first; with 0 no record has one.
    """
    out, position, key = simd.address(block), 0, 0
    heading, ending = simd.address(head), simd.address(tail)
    payload_data, key_data = simd.address(payloads), simd.address(keys)
    head_bytes, tail_bytes = head.shape[0], tail.shape[0]
    message_at = at.HEAD_BYTES + simd.load8(heading, at.TYPE_LENGTH_AT)
    step = 1 if first_request_id != 0 else 0
    for row in range(starts.shape[0]):
        start, message = position, position + message_at
        simd.copy(out, position, heading, 0, head_bytes)
        simd.store64(out, message + at.REQUEST_ID_AT, first_request_id + step * row)
        position += head_bytes
        key_bytes = key_sizes[row]
        if key_bytes >= 0:
            simd.store8(out, message + at.FLAGS_AT, simd.load8(out, message + at.FLAGS_AT) | at.FLAG_KEY)
            simd.copy(out, position + 2, key_data, key, key_bytes)
        key_bytes = max(key_bytes, 0)
        simd.store16(out, position, key_bytes)
        key += key_bytes
        position += 2 + key_bytes
        simd.copy(out, position, ending, 0, tail_bytes)
        position += tail_bytes
        simd.copy(out, position, payload_data, starts[row], sizes[row])
        position += sizes[row]
        simd.store32(out, message - at.MESSAGE_LENGTH_BYTES, position - message)
        checksum = np.int64(simd.hash64(out, start, position - start)) if checksums else np.int64(0)
        simd.store64(out, position, checksum)
        position += at.CHECKSUM_BYTES
    return position


@inlined
def _write_decimal(out: int, place: int, number: int) -> int:
    """Write a number that is not negative; return where it ends."""
    end, rest = place + 1, number // 10
    while rest > 0:
        end += 1
        rest //= 10
    for digit in range(end - 1, place - 1, -1):
        simd.store8(out, digit, _DIGIT + number % 10)
        number //= 10
    return end


@inlined
def _write_uuid(out: int, place: int, high: int, low: int) -> None:
    wire.write_hex(out, place, high >> 32, 8)
    simd.store8(out, place + 8, wire.DASH)
    wire.write_hex(out, place + 9, high >> 16, 4)
    simd.store8(out, place + 13, wire.DASH)
    wire.write_hex(out, place + 14, high, 4)
    simd.store8(out, place + 18, wire.DASH)
    wire.write_hex(out, place + 19, low >> 48, 4)
    simd.store8(out, place + 23, wire.DASH)
    wire.write_hex(out, place + 24, low, 12)


@inlined
def _write_piece(out: int, place: int, piece: int, size: int) -> int:
    simd.copy(out, place, piece, 0, size)
    return place + size


@kernel(LONG(BYTES, TABLE_IN, BYTES, TABLE_IN, BYTES, BYTES, BYTES, LONG, LONG, LONG, BUFFER))
def receipts(
    buffer: Any,
    rows: Any,
    heads: Any,
    places: Any,
    before_offset: Any,
    before_id: Any,
    after_id: Any,
    first_offset: int,
    first_ticks: int,
    id_low: int,
    target: Any,
) -> int:
    """Write an answer, with offset and id, for each row that has a request id; return the bytes written.

    A frame is the row's head with its request id, a newline, and the three texts with offset and id between them. A row
    without a request id gets no answer, but has an offset and an id too. A row of `places` is where in `heads` a head
    lies and how long it is.
    """
    data, row, out = simd.address(buffer), simd.address(rows), simd.address(target)
    heading, place = simd.address(heads), simd.address(places)
    position = 0
    for number in range(rows.shape[0]):
        if simd.get(row, wire.KIND) == wire.WITH_ID:
            start = position + wire.LENGTH_BYTES
            head = simd.get(row, wire.HEAD)
            head_bytes = simd.get(place, 2 * head + 1)
            simd.copy(out, start, heading, simd.get(place, 2 * head), head_bytes)
            position = start + head_bytes
            simd.copy(out, position, data, simd.get(row, wire.HEAD_END) + 1, wire.ID_CHARS)
            position += wire.ID_CHARS
            simd.store8(out, position, wire.LINE_END)
            position = _write_piece(out, position + 1, simd.address(before_offset), before_offset.shape[0])
            position = _write_decimal(out, position, first_offset + number)
            position = _write_piece(out, position, simd.address(before_id), before_id.shape[0])
            _write_uuid(out, position, id_high(first_ticks + number), id_low)
            position = _write_piece(out, position + wire.ID_CHARS, simd.address(after_id), after_id.shape[0])
            simd.store32(out, start - wire.LENGTH_BYTES, position - start)
        row += wire.ROW_BYTES
    return position


@kernel(LONG(BYTES, TABLE_IN, BYTES, LONG, BUFFER))
def publish(block: Any, columns: Any, head: Any, first_id: int, target: Any) -> int:
    """Write a frame for each record: the head, a newline, the record's payload; return the bytes written.

    The head ends with an id. Its last group is replaced by `first_id` plus the number of the record.
    """
    data, row, out = simd.address(block), simd.address(columns), simd.address(target)
    heading, head_bytes = simd.address(head), head.shape[0]
    position = 0
    for number in range(columns.shape[0]):
        payload = simd.get(row, at.PAYLOAD)
        size = simd.get(row, at.END) - at.CHECKSUM_BYTES - payload
        simd.store32(out, position, head_bytes + 1 + size)
        position += wire.LENGTH_BYTES
        simd.copy(out, position, heading, 0, head_bytes)
        position += head_bytes
        wire.write_hex(out, position - wire.ID_TAIL_CHARS, first_id + number, wire.ID_TAIL_CHARS)
        simd.store8(out, position, wire.LINE_END)
        simd.copy(out, position + 1, data, payload, size)
        position += 1 + size
        row += at.ROW_BYTES
    return position


@kernel(types.boolean(BYTES, TABLE_IN, BUFFER, LONGS_OUT))
def lines(block: Any, columns: Any, target: Any, ends: Any) -> bool:
    """Copy every payload and a newline behind it to `target`; return True if a payload itself contains a newline.

    `ends` receives the position behind each line.
    """
    data, row, out = simd.address(block), simd.address(columns), simd.address(target)
    position, within = 0, False
    for number in range(columns.shape[0]):
        payload = simd.get(row, at.PAYLOAD)
        size = simd.get(row, at.END) - at.CHECKSUM_BYTES - payload
        simd.copy(out, position, data, payload, size)
        for place in range(position, position + size):
            within |= simd.load8(out, place) == wire.LINE_END
        position += size + 1
        simd.store8(out, position - 1, wire.LINE_END)
        ends[number] = position
        row += at.ROW_BYTES
    return within
