"""Kernels of the wire: many framed messages in one buffer, split, answered and passed on.

A frame is a 4-byte big-endian length and a message; a message is a header, one newline and a payload. `protocol`
decides what a header means; these kernels only group messages whose headers begin alike.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.record.kernels import simd
from penstock.record.kernels.kernel_cache import kernel
from penstock.record.kernels.kernel_types import BUFFER, BYTES, LONG, LONGS_OUT, TABLE, TABLE_IN, inlined
from penstock.record.kernels.utf8 import is_utf8

LENGTH_BYTES: Final = 4
ID_CHARS: Final = 36

# The columns of a row: where in the buffer a message lies, and what can be seen of its header.
START: Final = 0  # first byte of the message
NEWLINE: Final = 1  # the newline after the header; -1 where there is none in reach
HEAD_END: Final = 2  # after action, topic and version: the third colon, or the newline
KIND: Final = 3
HEAD: Final = 4  # which of the distinct heads it has; 0 where there is no newline
END: Final = 5  # after the last byte of the message
COLUMNS: Final = 6
ROW_BYTES: Final = 8 * COLUMNS

PLAIN: Final = 0  # nothing after the version
WITH_ID: Final = 1  # a request id after the version, and nothing else
OTHER: Final = 2  # anything else: the reader parses the header itself

HEAD_COLUMNS: Final = 3
STATE: Final = 7
HEADS_MAX: Final = 256  # distinct heads in one split; messages behind the last are split next
SLOTS: Final = 1024  # of the table that finds them: four times as many, so that a search is short

# What ended a split.
NEED_MORE: Final = 0
ROWS_FULL: Final = 1
TOO_LARGE: Final = 2

MASK_BYTES: Final = 4
_WHOLE_TEXT: Final = 0x81
_WHOLE_BINARY: Final = 0x82
_COLON: Final = 58
DASH: Final = 45
LINE_END: Final = 10
_MIX: Final = -0x61C8864680B583EB  # 2**64 divided by the golden ratio, as a signed number
ID_TAIL_CHARS: Final = 12  # the last group of a UUID: 48 bits that count up within a block


@inlined
def _is_hex(byte: int) -> bool:
    return 48 <= byte <= 57 or 97 <= byte | 32 <= 102


@inlined
def _is_uuid4(data: int, start: int) -> bool:
    for place in range(ID_CHARS):
        byte = simd.load8(data, start + place)
        if place in (8, 13, 18, 23):
            if byte != DASH:
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
def _is_whole(data: int, start: int, head_end: int) -> bool:
    """Return True if a head has all three fields, which means two colons. A shorter, wrong one can be the beginning of
    others, so it must not be compared by its first bytes."""
    colons = 0
    for place in range(start, head_end):
        colons += simd.load8(data, place) == _COLON
    return colons == 2


@inlined
def _kind(data: int, head_end: int, newline: int) -> int:
    if head_end == newline:
        return PLAIN
    if newline - head_end == 1 + ID_CHARS and _is_uuid4(data, head_end + 1):
        return WITH_ID
    return OTHER


@inlined
def equal(data: int, one: int, other: int, size: int) -> bool:
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
def _begins_with(data: int, start: int, end: int, head: int, head_bytes: int) -> bool:
    """Return True if the head of the message is exactly the `head_bytes` bytes at `head`."""
    if head_bytes == 0 or start + head_bytes >= end or not equal(data, start, head, head_bytes):
        return False
    after = simd.load8(data, start + head_bytes)
    return after in (_COLON, LINE_END)


@inlined
def _slot_of(data: int, start: int, size: int) -> int:
    """Return the slot of the hash table where the search for a head begins."""
    mixed = size
    while size >= 8:
        mixed = (mixed ^ simd.load64(data, start)) * _MIX
        mixed ^= mixed >> 29
        start += 8
        size -= 8
    for place in range(size):
        mixed = (mixed ^ simd.load8(data, start + place)) * _MIX
    return int((mixed ^ mixed >> 32) & (SLOTS - 1))


@inlined
def _number_of(data: int, start: int, size: int, heads: int, count: int, slots: int) -> int:
    """Return the number of a head, and add it if it is new; -1 if it is new and there is no room.

    `count` heads are known so far, so a new one gets that number. A slot holds the number of a head plus one, or 0 if
    it is free.
    """
    slot = _slot_of(data, start, size)
    while True:
        number = simd.get(slots, slot) - 1
        if number < 0:
            if count == HEADS_MAX:
                return -1
            simd.put(slots, slot, count + 1)
            simd.put(heads, HEAD_COLUMNS * count, start)
            simd.put(heads, HEAD_COLUMNS * count + 1, size)
            simd.put(heads, HEAD_COLUMNS * count + 2, 0)
            return count
        seen = HEAD_COLUMNS * number
        if simd.get(heads, seen + 1) == size and equal(data, simd.get(heads, seen), start, size):
            return int(number)
        slot = (slot + 1) & (SLOTS - 1)


@kernel(LONG(BYTES, LONG, LONG, LONG, LONG, TABLE, TABLE, LONGS_OUT, LONGS_OUT))
def split(
    buffer: Any,
    frame_max: int,
    header_max: int,
    payload_max: int,
    begin: int,
    rows: Any,
    heads: Any,
    slots: Any,
    state: Any,
) -> int:
    """Write a row for each whole frame from `begin` on, and each distinct head to `heads`; return the number of rows.

    A row of `heads` has where a head lies, how long it is, and how many messages have it. `state` receives where the
    split stopped, why, the number of heads, the numbers of rows of kind OTHER and of kind WITH_ID, and the bytes of all
    payloads and of the largest one.
    """
    data, row, stop = simd.address(buffer), simd.address(rows), buffer.shape[0]
    known, table = simd.address(heads), simd.address(slots)
    for slot in range(SLOTS):
        simd.put(table, slot, 0)
    position, count, distinct, number, why = begin, 0, 0, -1, NEED_MORE
    repeated = -1  # the head that the next message may have again
    others = ids = payloads = largest = 0
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
        reach = min(end, start + header_max + 1)
        last = HEAD_COLUMNS * repeated
        if repeated >= 0 and _begins_with(data, start, end, simd.get(known, last), simd.get(known, last + 1)):
            head_end = start + simd.get(known, last + 1)
            newline = _find(data, LINE_END, head_end, reach)
        else:
            newline = _find(data, LINE_END, start, reach)
            head_end = start
            if newline >= 0:
                head_end = _head_end(data, start, newline)
                number = _number_of(data, start, head_end - start, known, distinct, table)
                if number < 0:
                    why = ROWS_FULL
                    break
                distinct = max(distinct, number + 1)
                repeated = number if _is_whole(data, start, head_end) else -1
        kind = OTHER
        if newline >= 0 and end - newline - 1 <= payload_max:
            kind = _kind(data, head_end, newline)
            payloads += end - newline - 1
            largest = max(largest, end - newline - 1)
            last = HEAD_COLUMNS * number + 2
            simd.put(known, last, simd.get(known, last) + 1)
        others += kind == OTHER
        ids += kind == WITH_ID
        simd.put(row, START, start)
        simd.put(row, NEWLINE, newline)
        simd.put(row, HEAD_END, head_end)
        simd.put(row, KIND, kind)
        simd.put(row, HEAD, max(number, 0))
        simd.put(row, END, end)
        row += ROW_BYTES
        count += 1
        position = end
    state[0] = position
    state[1] = why
    state[2] = distinct
    state[3] = others
    state[4] = ids
    state[5] = payloads
    state[6] = largest
    return count


@inlined
def write_hex(out: int, place: int, number: int, digits: int) -> None:
    """Write the last `digits` hexadecimal digits of a number."""
    for digit in range(digits):
        nibble = number >> 4 * (digits - 1 - digit) & 15
        simd.store8(out, place + digit, nibble + (48 if nibble < 10 else 87))


@kernel(LONG(BYTES, TABLE_IN, BYTES, TABLE_IN, BYTES, LONG, LONG, LONG, BUFFER))
def compose(
    buffer: Any,
    rows: Any,
    heads: Any,
    places: Any,
    tail: Any,
    first_id: int,
    own_ids: int,
    with_payload: int,
    target: Any,
) -> int:
    """Write one frame for each row: its head, a newline, `tail`, and with `with_payload` its payload; return the bytes
    written.

    A row of `places` is where in `heads` a head lies and how long it is. Each head there ends with an id. With
    `own_ids`, that is replaced by the id of the row's message if it has one. Otherwise its last group becomes
    `first_id` plus the position of the message in the buffer, so that the id is the same for every receiver.
    """
    data, row, out = simd.address(buffer), simd.address(rows), simd.address(target)
    heading, place, ending = simd.address(heads), simd.address(places), simd.address(tail)
    tail_bytes = tail.shape[0]
    position = 0
    for _ in range(rows.shape[0]):
        newline, end = simd.get(row, NEWLINE), simd.get(row, END)
        payload = end - newline - 1 if with_payload else 0
        number = simd.get(row, HEAD)
        head_bytes = simd.get(place, 2 * number + 1)
        simd.store32(out, position, head_bytes + 1 + tail_bytes + payload)
        position += LENGTH_BYTES
        simd.copy(out, position, heading, simd.get(place, 2 * number), head_bytes)
        position += head_bytes
        if own_ids and simd.get(row, KIND) == WITH_ID:
            simd.copy(out, position - ID_CHARS, data, simd.get(row, HEAD_END) + 1, ID_CHARS)
        else:
            write_hex(out, position - ID_TAIL_CHARS, first_id + simd.get(row, START), ID_TAIL_CHARS)
        simd.store8(out, position, LINE_END)
        simd.copy(out, position + 1, ending, 0, tail_bytes)
        position += 1 + tail_bytes
        simd.copy(out, position, data, newline + 1, payload)
        position += payload
        row += ROW_BYTES
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
    """Write messages framed as on TCP as unmasked WebSocket frames: text if they are UTF-8, else binary; return the
    bytes written.

    `frames` come from the broker itself, so their lengths are right. `target` must have room for six more bytes per
    frame.
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


@inlined
def _unmask(data: int, start: int, size: int, mask: int, out: int, place: int) -> None:
    """Unmask bytes, eight at a time as far as possible. `mask` is the four bytes of the mask, as a big-endian
    number."""
    wide = mask << 32 | mask
    whole = size - size % 8
    for step in range(0, whole, 8):
        simd.store64(out, place + step, simd.load64(data, start + step) ^ wide)
    for step in range(whole, size):
        simd.store8(out, place + step, simd.load8(data, start + step) ^ mask >> (24 - 8 * (step % 4)) & 0xFF)


@kernel(LONG(BYTES, LONG, LONG, BUFFER))
def unmask(frames: Any, start: int, size: int, target: Any) -> int:
    """Write the payload that begins at `start`, unmasked, to `target`; return its size. The mask lies directly before
    `start`."""
    data = simd.address(frames)
    _unmask(data, start, size, simd.load32(data, start - MASK_BYTES), simd.address(target), 0)
    return size


@inlined
def _websocket_payload(data: int, position: int, stop: int) -> int:
    """Return where the payload of a masked frame begins; -1 if the head is incomplete."""
    flag = simd.load8(data, position + 1) & 0x7F
    start = position + 2 + MASK_BYTES + (8 if flag == 127 else 2 if flag == 126 else 0)
    return start if start <= stop else -1


@inlined
def _websocket_size(data: int, position: int) -> int:
    """Return the payload size that the head of a frame gives; -1 if it is not encoded in the fewest bytes."""
    size = simd.load8(data, position + 1) & 0x7F
    if size == 126:
        size = simd.load16(data, position + 2)
        return size if size > 125 else -1
    if size == 127:
        size = simd.load64(data, position + 2)
        return size if size > 65535 else -1
    return int(size)


@kernel(LONG(BYTES, LONG, LONG, BUFFER, LONGS_OUT))
def from_websocket(frames: Any, position: int, size_max: int, target: Any, state: Any) -> int:
    """Turn WebSocket messages of one masked frame each, from `position` on, into frames as on TCP; return the bytes
    written.

    Stops before the first frame that is incomplete or must be handled otherwise: a fragment, a control frame, one over
    `size_max`, a text that is not UTF-8, a violation. `state` receives the position of that frame. `target` needs as
    much room as there are bytes from `position` on: a WebSocket head has at least six bytes, a TCP length four.
    """
    data, out, stop = simd.address(frames), simd.address(target), frames.shape[0]
    place = 0
    while position + 2 <= stop:
        first = simd.load8(data, position)
        if first not in (_WHOLE_TEXT, _WHOLE_BINARY) or simd.load8(data, position + 1) < 0x80:
            break
        start = _websocket_payload(data, position, stop)
        if start < 0:
            break
        size = _websocket_size(data, position)
        if size < 0 or size > size_max or start + size > stop:
            break
        _unmask(data, start, size, simd.load32(data, start - MASK_BYTES), out, place + LENGTH_BYTES)
        if first == _WHOLE_TEXT and not is_utf8(out, place + LENGTH_BYTES, place + LENGTH_BYTES + size):
            break
        simd.store32(out, place, size)
        place += LENGTH_BYTES + size
        position = start + size
    state[0] = position
    return place
