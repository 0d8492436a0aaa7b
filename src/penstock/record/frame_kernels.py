"""The kernels under the wire: many framed messages in one buffer, split, answered and passed on.

A frame is a 4-byte big-endian length and a message; a message is a header, one newline and a payload. What a header
says is decided in `protocol`; here it is only seen whether the next one begins like the last.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.record import simd
from penstock.record.kernel_cache import kernel
from penstock.record.kernel_types import BUFFER, BYTES, LONG, LONGS_OUT, TABLE, TABLE_IN, inlined
from penstock.record.text_kernels import is_utf8

LENGTH_BYTES: Final = 4
ID_CHARS: Final = 36

# The columns of a row: where in the buffer a message lies, and what can be seen of its header.
START: Final = 0  # first byte of the message
NEWLINE: Final = 1  # the newline after the header; -1 where there is none in reach
HEAD_END: Final = 2  # after action, topic and version: the third colon, or the newline
KIND: Final = 3
SAME: Final = 4  # 1 where kind and head are those of the row before
END: Final = 5  # after the last byte of the message
COLUMNS: Final = 6
_ROW_BYTES: Final = 8 * COLUMNS

PLAIN: Final = 0  # nothing after the version
WITH_ID: Final = 1  # a request id after the version, and nothing else
OTHER: Final = 2  # anything else: whoever reads it looks at the header itself

# What ended a split.
NEED_MORE: Final = 0
ROWS_FULL: Final = 1
TOO_LARGE: Final = 2

_COLON: Final = 58
_DASH: Final = 45
_LINE_END: Final = 10
_ID_TAIL_CHARS: Final = 12  # the last group of a UUID: 48 bits that count up within a block


@inlined
def _is_hex(byte: int) -> bool:
    return 48 <= byte <= 57 or 97 <= byte | 32 <= 102


@inlined
def _is_uuid4(data: int, start: int) -> bool:
    for place in range(ID_CHARS):
        byte = simd.load8(data, start + place)
        if place in (8, 13, 18, 23):
            if byte != _DASH:
                return False
        elif not _is_hex(byte):
            return False
    variant = simd.load8(data, start + 19) | 32
    return bool(simd.load8(data, start + 14) == 52 and (56 <= variant <= 57 or 97 <= variant <= 98))


@inlined
def _find(data: int, byte: int, start: int, stop: int) -> int:
    for place in range(start, stop):
        if simd.load8(data, place) == byte:
            return place
    return -1


@inlined
def _head_end(data: int, start: int, newline: int) -> int:
    place = start
    for _ in range(3):
        colon = _find(data, _COLON, place, newline)
        if colon < 0:
            return newline
        place = colon + 1
    return place - 1


@inlined
def _kind(data: int, head_end: int, newline: int) -> int:
    if head_end == newline:
        return PLAIN
    if newline - head_end == 1 + ID_CHARS and _is_uuid4(data, head_end + 1):
        return WITH_ID
    return OTHER


@inlined
def _equal(data: int, one: int, other: int, size: int) -> bool:
    while size >= 8:
        if simd.load64(data, one) != simd.load64(data, other):
            return False
        one += 8
        other += 8
        size -= 8
    for place in range(size):  # noqa: SIM110 - numba compiles no generators
        if simd.load8(data, one + place) != simd.load8(data, other + place):
            return False
    return True


@inlined
def _repeats_head(data: int, start: int, end: int, head: int, head_bytes: int) -> bool:
    """Does this message begin with that head, and does the head end there?"""
    if head_bytes == 0 or start + head_bytes >= end or not _equal(data, start, head, head_bytes):
        return False
    after = simd.load8(data, start + head_bytes)
    return after in (_COLON, _LINE_END)


@kernel(LONG(BYTES, LONG, LONG, LONG, LONG, TABLE, LONGS_OUT))
def split(buffer: Any, frame_max: int, header_max: int, payload_max: int, begin: int, rows: Any, state: Any) -> int:
    """Fill `rows` with the whole frames from `begin` on; how many. `state` says where it stopped, and why."""
    data, row, stop = simd.address(buffer), simd.address(rows), buffer.shape[0]
    position, count, head, head_bytes, last_kind, why = begin, 0, 0, 0, -1, NEED_MORE
    while position + LENGTH_BYTES <= stop:
        size = simd.load32(data, position)
        if size > frame_max:
            why = TOO_LARGE
            break
        start = position + LENGTH_BYTES
        end = start + size
        if end > stop:
            break
        if count == rows.shape[0]:
            why = ROWS_FULL
            break
        same = _repeats_head(data, start, end, head, head_bytes)
        if same:
            head_end = start + head_bytes
            newline = _find(data, _LINE_END, head_end, min(end, start + header_max + 1))
        else:
            newline = _find(data, _LINE_END, start, min(end, start + header_max + 1))
            head_end = _head_end(data, start, newline) if newline >= 0 else start
        kind = OTHER
        if newline >= 0 and end - newline - 1 <= payload_max:
            kind = _kind(data, head_end, newline)
        simd.put(row, START, start)
        simd.put(row, NEWLINE, newline)
        simd.put(row, HEAD_END, head_end)
        simd.put(row, KIND, kind)
        simd.put(row, SAME, 1 if same and newline >= 0 and kind == last_kind else 0)
        simd.put(row, END, end)
        head, head_bytes, last_kind = start, head_end - start, kind
        row += _ROW_BYTES
        count += 1
        position = end
    state[0] = position
    state[1] = why
    return count


@inlined
def _write_id_tail(out: int, place: int, number: int) -> None:
    for digit in range(_ID_TAIL_CHARS):
        nibble = number >> 4 * (_ID_TAIL_CHARS - 1 - digit) & 15
        simd.store8(out, place + digit, nibble + (48 if nibble < 10 else 87))


@kernel(LONG(BYTES, TABLE_IN, BYTES, BYTES, LONG, LONG, LONG, BUFFER))
def compose(
    buffer: Any, rows: Any, head: Any, tail: Any, first_id: int, own_ids: int, with_payload: int, target: Any
) -> int:
    """One frame for each row: `head`, an id, a newline, `tail`, and the row's payload if wanted; the bytes written.

    `head` ends with a whole id. Its last group is replaced by `first_id` and the numbers after it, or the whole of it
    by the row's own id where `own_ids` is set and there is one.
    """
    data, row, out = simd.address(buffer), simd.address(rows), simd.address(target)
    heading, ending = simd.address(head), simd.address(tail)
    head_bytes, tail_bytes = head.shape[0], tail.shape[0]
    position = 0
    for number in range(rows.shape[0]):
        newline, end = simd.get(row, NEWLINE), simd.get(row, END)
        payload = end - newline - 1 if with_payload else 0
        simd.store32(out, position, head_bytes + 1 + tail_bytes + payload)
        position += LENGTH_BYTES
        simd.copy(out, position, heading, 0, head_bytes)
        position += head_bytes
        if own_ids and simd.get(row, KIND) == WITH_ID:
            simd.copy(out, position - ID_CHARS, data, simd.get(row, HEAD_END) + 1, ID_CHARS)
        else:
            _write_id_tail(out, position - _ID_TAIL_CHARS, first_id + number)
        simd.store8(out, position, _LINE_END)
        simd.copy(out, position + 1, ending, 0, tail_bytes)
        position += 1 + tail_bytes
        simd.copy(out, position, data, newline + 1, payload)
        position += payload
        row += _ROW_BYTES
    return position


@inlined
def _websocket_head(out: int, position: int, size: int) -> int:
    if size < 126:
        simd.store8(out, position, size)
        return position + 1
    if size < 65536:
        simd.store8(out, position, 126)
        simd.store16(out, position + 1, size)
        return position + 3
    simd.store8(out, position, 127)
    simd.store64(out, position + 1, size)
    return position + 9


@kernel(LONG(BYTES, BUFFER))
def to_websocket(frames: Any, target: Any) -> int:
    """The same messages, each as an unmasked WebSocket frame, text where it is UTF-8; the bytes written.

    `target` has room for six bytes more a frame than `frames` has.
    """
    data, out, stop = simd.address(frames), simd.address(target), frames.shape[0]
    position = place = 0
    while position + LENGTH_BYTES <= stop:
        size = simd.load32(data, position)
        start = position + LENGTH_BYTES
        simd.store8(out, place, 0x81 if is_utf8(data, start, start + size) else 0x82)
        place = _websocket_head(out, place + 1, size)
        simd.copy(out, place, data, start, size)
        place += size
        position = start + size
    return place
