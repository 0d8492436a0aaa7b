"""The kernels under the wire against plain Python, and between forbidden pages.

Run as a program (`python -m tests.record.kernels.test_frame_kernels 0 300`) it plays hostile buffers between two pages
that nobody may touch: a kernel that reads or writes one byte too far ends the process.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.record.kernels.guarded import PAGE, PAGES, Guarded

from penstock.record.hashing import as_array
from penstock.record.kernels import frame_kernels as at

ID = b"00000000-0000-4000-8000-000000000001"
HEADER_MAX = 100
PAYLOAD_MAX = 50
FRAME_MAX = HEADER_MAX + 1 + PAYLOAD_MAX
SIZES = (FRAME_MAX, HEADER_MAX, PAYLOAD_MAX)
ROWS_MAX = 64


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


Row = tuple[int, int, int, int, int, int]


def split(data: bytes, rows_max: int = ROWS_MAX, begin: int = 0) -> tuple[list[Row], int, int]:
    rows = np.full((rows_max, at.COLUMNS), -7, np.int64)
    heads_table = np.full((at.HEADS_MAX, at.HEAD_COLUMNS), -7, np.int64)
    state = np.full(at.STATE, -7, np.int64)
    slots = np.full(at.SLOTS, -7, np.int64)
    count = at.split(as_array(data), *SIZES, begin, rows, heads_table, slots, state)
    assert (rows[count:] == -7).all()
    found = [tuple(row) for row in rows[:count].tolist()]
    check_totals(data, found, heads_table.tolist(), state.tolist())
    return found, int(state[0]), int(state[1])


def check_totals(data: bytes, rows: list[Row], table: list[list[int]], state: list[int]) -> None:
    """Check that the heads and the state agree with the rows."""
    distinct, others, with_ids, payload_bytes, largest = state[2:]
    read = [data[start : start + size] for start, size, _ in table[:distinct]]
    assert len(set(read)) == distinct
    right = [row for row in rows if row[at.NEWLINE] >= 0]
    for row in right:
        assert read[row[at.HEAD]] == data[row[at.START] : row[at.HEAD_END]]
    fitting = [row for row in right if row[at.END] - row[at.NEWLINE] - 1 <= PAYLOAD_MAX]
    assert [count for _, _, count in table[:distinct]] == [
        sum(row[at.HEAD] == number for row in fitting) for number in range(distinct)
    ]
    sizes = [row[at.END] - row[at.NEWLINE] - 1 for row in fitting]
    assert (payload_bytes, largest) == (sum(sizes), max(sizes, default=0))
    kinds = [row[at.KIND] for row in rows]
    assert (others, with_ids) == (kinds.count(at.OTHER), kinds.count(at.WITH_ID))


# Split


def is_uuid4(text: bytes) -> bool:
    digits = b"0123456789abcdefABCDEF"
    if len(text) != 36 or text[14:15] != b"4" or text[19:20] not in [bytes((each,)) for each in b"89abAB"]:
        return False
    return all((byte == 45) if place in (8, 13, 18, 23) else byte in digits for place, byte in enumerate(text))


def expected_row(message: bytes, start: int) -> tuple[int, int, int, int]:
    """Start, newline, end, and the kind, as plain Python sees them."""
    newline = message.find(b"\n", 0, HEADER_MAX + 1)
    end = start + len(message)
    if newline < 0 or len(message) - newline - 1 > PAYLOAD_MAX:
        return start, start + newline if newline >= 0 else -1, end, at.OTHER
    fields = message[:newline].split(b":", 3)
    if len(fields) <= 3:
        return start, start + newline, end, at.PLAIN
    return start, start + newline, end, at.WITH_ID if is_uuid4(fields[3]) else at.OTHER


heads = st.sampled_from([b"publish:a:1.0.0", b"publish:a:1.0.1", b"PUBLISH:a:1.0.0", b"publish:aa:1.0.0", b"publish:a"])
tails = st.sampled_from(
    [b"", b"", b":" + ID, b":" + ID, b":" + ID.replace(b"1", b"A"), b":x", b":" + ID[:-1] + b"g", b"::"]
)
ids = st.binary(min_size=36, max_size=36) | st.text("0123456789abcdefABCDEF-4", min_size=36, max_size=36).map(
    str.encode
)
payloads = st.binary(max_size=10) | st.sampled_from([b"x" * (PAYLOAD_MAX + extra) for extra in (-1, 0, 1)])
messages = st.one_of(
    st.builds(lambda head, tail, payload: head + tail + b"\n" + payload, heads, tails, payloads),
    st.builds(lambda head, tail, payload: head + tail + b"\n" + payload, heads, tails, payloads),
    st.builds(lambda head, each, payload: head + b":" + each + b"\n" + payload, heads, ids, payloads),
    st.binary(max_size=40),
    st.builds(lambda head, extra: head.ljust(HEADER_MAX + extra, b"x") + b"\n", heads, st.integers(-1, 1)),
    st.builds(lambda head, extra: (head + b":").ljust(HEADER_MAX + extra, b"x") + b"\n", heads, st.integers(-1, 1)),
)
lists = st.lists(messages.filter(lambda message: len(message) <= FRAME_MAX), max_size=12)


@given(lists, st.binary(max_size=3))
@settings(max_examples=400)
def test_messages_are_split_where_plain_python_splits_them(given_messages: list[bytes], rest: bytes) -> None:
    rows, position, why = split(b"".join(map(framed, given_messages)) + rest)
    assert why == at.NEED_MORE
    assert position == sum(4 + len(message) for message in given_messages)
    start = 4
    for message, row in zip(given_messages, rows, strict=True):
        expected = expected_row(message, start)
        assert (row[at.START], row[at.NEWLINE], row[at.END], row[at.KIND]) == expected
        start += 4 + len(message)


@pytest.mark.parametrize("distinct", [1, 2, at.HEADS_MAX - 1, at.HEADS_MAX, at.HEADS_MAX + 1])
def test_heads_are_told_apart_and_what_does_not_fit_is_left(distinct: int) -> None:
    data = b"".join(framed(b"publish:a%d:1.0.0\n" % (n % distinct)) for n in range(600))
    rows, position, why = split(data, 600)
    if distinct <= at.HEADS_MAX:
        assert (len(rows), position, why) == (600, len(data), at.NEED_MORE)
        assert [row[at.HEAD] for row in rows] == [n % distinct for n in range(600)]
    else:
        assert (len(rows), why) == (at.HEADS_MAX, at.ROWS_FULL)
        assert split(data, 600, position)[0][0][at.START] == rows[-1][at.END] + 4


@given(ids | st.just(ID), st.data())
@settings(max_examples=300)
def test_an_id_is_a_uuid4_and_nothing_else(text: bytes, data: st.DataObject) -> None:
    changed = bytearray(text if data.draw(st.booleans()) else ID)
    changed[data.draw(st.integers(0, 35))] = data.draw(st.integers(0, 255).filter(lambda byte: byte not in b"\n:"))
    changed = bytearray(bytes(changed).replace(b"\n", b"x").replace(b":", b"x"))
    ((*_, kind, _, _),) = split(framed(b"publish:a:1.0.0:" + bytes(changed) + b"\n"))[0]
    assert kind == (at.WITH_ID if is_uuid4(bytes(changed)) else at.OTHER)


def test_every_byte_at_every_place_of_an_id_is_judged_right() -> None:
    for place in range(36):
        for byte in range(256):
            text = bytearray(ID)
            text[place] = byte
            if byte in b"\n:":
                continue
            ((*_, kind, _, _),) = split(framed(b"publish:a:1.0.0:" + bytes(text) + b"\n"))[0]
            assert kind == (at.WITH_ID if is_uuid4(bytes(text)) else at.OTHER)


def test_a_split_goes_on_where_it_stopped_for_want_of_rows() -> None:
    made = [b"publish:a:1.0.0\n%d" % n for n in range(10)]
    data = b"".join(map(framed, made))
    found: list[bytes] = []
    position, why = 0, at.ROWS_FULL
    while why == at.ROWS_FULL:
        rows, position, why = split(data, 3, position)
        found += [data[row[at.START] : row[at.END]] for row in rows]
    assert (found, position, why) == (made, len(data), at.NEED_MORE)


def test_exactly_as_many_messages_as_rows_are_not_too_many() -> None:
    data = framed(b"publish:a:1.0.0\n") * 3
    assert split(data, 3)[1:] == (len(data), at.NEED_MORE)
    assert split(data + b"\0\0", 3)[1:] == (len(data), at.NEED_MORE)
    assert split(data + framed(b""), 3)[1:] == (len(data), at.ROWS_FULL)


@pytest.mark.parametrize("size", [FRAME_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_length_past_the_limit_stops_the_split_there(size: int) -> None:
    good = framed(b"publish:a:1.0.0\n")
    rows, position, why = split(good * 2 + size.to_bytes(4, "big") + bytes(1000))
    assert (len(rows), position, why) == (2, 2 * len(good), at.TOO_LARGE)


def test_a_length_at_the_limit_does_not() -> None:
    rows, position, why = split(framed(b"x" * FRAME_MAX))
    assert (len(rows), position, why) == (1, 4 + FRAME_MAX, at.NEED_MORE)


def test_half_a_frame_is_left_for_later() -> None:
    good = framed(b"publish:a:1.0.0\nx")
    for size in range(len(good)):
        assert split(good + good[:size])[1:] == (len(good), at.NEED_MORE)


# Compose


def places_of(lines: list[bytes]) -> Any:
    """Where each of them lies in all of them together, and how long it is."""
    return np.array([(sum(map(len, lines[:n])), len(line)) for n, line in enumerate(lines)], np.int64)


@given(lists, st.binary(max_size=20), st.integers(0, 2**48 - 10_000), st.booleans(), st.booleans())
def test_frames_are_composed_as_plain_python_composes_them(
    given_messages: list[bytes], tail: bytes, number: int, own_ids: bool, with_payload: bool
) -> None:
    data = b"".join(map(framed, given_messages))
    rows, _, _ = split(data)
    rows = [row for row in rows if row[at.NEWLINE] >= 0]
    lines = [b"response:a%d:1.0.0:" % n * (1 + n % 2) + ID for n in range(ROWS_MAX)]
    expected = b""
    for row in rows:
        each = ID[:-12] + b"%012x" % (number + row[at.START])
        if own_ids and row[at.KIND] == at.WITH_ID:
            each = data[row[at.HEAD_END] + 1 : row[at.NEWLINE]]
        payload = data[row[at.NEWLINE] + 1 : row[at.END]] if with_payload else b""
        expected += framed(lines[row[at.HEAD]][:-36] + each + b"\n" + tail + payload)
    out = np.zeros(len(expected), np.uint8)
    table = np.array(rows, np.int64).reshape(-1, at.COLUMNS)
    composed = (as_array(b"".join(lines)), places_of(lines), as_array(tail), number, own_ids, with_payload, out)
    written = at.compose(as_array(data), table, *composed)
    assert (written, out.tobytes()) == (len(expected), expected)


# To WebSocket


def websocket_frame(message: bytes) -> bytes:
    try:
        message.decode()
        kind = 0x81
    except UnicodeDecodeError:
        kind = 0x82
    size = len(message)
    if size < 126:
        return bytes((kind, size)) + message
    if size < 65_536:
        return bytes((kind, 126)) + size.to_bytes(2, "big") + message
    return bytes((kind, 127)) + size.to_bytes(8, "big") + message


def to_websocket(given_messages: list[bytes]) -> bytes:
    frames = b"".join(map(framed, given_messages))
    target = np.zeros(len(frames) + 6 * len(given_messages), np.uint8)
    written = at.to_websocket(as_array(frames), target)
    assert not target[written:].any()
    return target[:written].tobytes()


EDGES = (0, 1, 7, 8, 9, 124, 125, 126, 127, 128, 65_534, 65_535, 65_536, 65_537, 200_000)
TEXTS = (b"x", "é".encode(), "漢".encode(), "🜁".encode())
NO_TEXTS = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe6\xbc", b"\x80")


@pytest.mark.parametrize("size", EDGES)
def test_every_size_of_websocket_frame_is_written_right(size: int) -> None:
    for piece in (*TEXTS, *NO_TEXTS):
        for message in ((piece * size)[:size], b"x" * (size - len(piece)) + piece, piece + b"x" * (size - len(piece))):
            assert to_websocket([message]) == websocket_frame(message)


@given(st.lists(st.binary(max_size=200) | st.text(max_size=200).map(str.encode), max_size=10))
@example([])
@example([b""])
@settings(max_examples=300)
def test_messages_become_websocket_frames_one_for_one(given_messages: list[bytes]) -> None:
    assert to_websocket(given_messages) == b"".join(map(websocket_frame, given_messages))


def test_the_room_that_is_asked_for_is_enough_and_needed() -> None:
    message = b"x" * 65_536
    assert len(to_websocket([message] * 3)) == 3 * (4 + len(message) + 6)


# Memory


class Forbidden:
    """Several pieces of guarded memory, one for each array a kernel takes."""

    def __init__(self) -> None:
        self.data, self.table, self.head, self.tail, self.out = (Guarded() for _ in range(5))
        self.heads, self.slots, self.places = (Guarded() for _ in range(3))


def hostile(chance: random.Random) -> bytes:
    """Frames, and bytes changed, lengths made extreme, the end cut."""
    pool = [b"publish:a:1.0.0", b"publish:a:1.0.0:" + ID, b"publish:a", b"", b":::", chance.randbytes(5)]
    data = bytearray()
    for _ in range(chance.randrange(12)):
        head = chance.choice(pool)
        data += framed(head + chance.choice((b"\n", b"\n", b"")) + chance.randbytes(chance.choice((0, 1, 8, 60))))
    for _ in range(chance.choice((0, 0, 1, 3))):
        if data:
            place = chance.randrange(len(data))
            piece = chance.choice((b"\xff\xff\xff\xff", b"\0", b"\n", b":", b"\0\0\0", chance.randbytes(4)))
            data[place : place + len(piece)] = piece
    if data and chance.random() < 0.6:
        del data[chance.randrange(len(data)) :]
    return bytes(data)


def table_at(memory: Guarded, count: int, columns: int = at.COLUMNS) -> Iterator[Any]:
    for array in memory.holding(bytes(8 * columns * count)):
        yield array.view(np.int64).reshape(count, columns)


def play_split(chance: random.Random, memory: Forbidden) -> None:
    state = np.zeros(at.STATE, np.int64)
    raw = hostile(chance)
    table = chance.choice(list(table_at(memory.heads, at.HEADS_MAX, at.HEAD_COLUMNS)))
    slots = chance.choice(list(table_at(memory.slots, at.SLOTS, 1))).reshape(-1)
    for data in memory.data.holding(raw):
        for count in (1, 3, 12):
            for rows in table_at(memory.table, count):
                found = at.split(data, *SIZES, 0, rows, table, slots, state)
                assert 0 <= found <= count
                assert 0 <= state[0] <= len(raw)
                kept = rows[:found].copy()
                compose(data, kept[kept[:, at.NEWLINE] >= 0], chance, memory)
        at.split(data, *SIZES, len(raw), rows, table, slots, state)


def compose(data: Any, rows: Any, chance: random.Random, memory: Forbidden) -> None:
    """Into exactly as much room as is needed."""
    lines = [b"response:a:1.0.0:" + ID] * 12
    tail = chance.randbytes(chance.choice((0, 1, 20)))
    with_payload = chance.random() < 0.5
    room = len(rows) * (4 + len(lines[0]) + 1 + len(tail))
    if with_payload:
        room += int((rows[:, at.END] - rows[:, at.NEWLINE] - 1).sum())
    for head in memory.head.holding(b"".join(lines)):
        for places in memory.places.holding(places_of(lines).tobytes()):
            table = places.view(np.int64).reshape(-1, 2)
            for ending in memory.tail.holding(tail):
                for out in memory.out.holding(bytes(room)):
                    own = chance.random() < 0.5
                    assert at.compose(data, rows, head, table, ending, 5, own, with_payload, out) == room


def play_websocket(chance: random.Random, memory: Forbidden) -> None:
    """Whole frames, as the broker makes them, into exactly as much room as is needed."""
    sizes = [chance.choice((0, 1, 7, 8, 9, 125, 126, 300)) for _ in range(chance.randrange(5))]
    made = [chance.choice((b"x", "é".encode(), b"\xc3", b"\xf0\x9f")) * size for size in sizes]
    for frames in memory.data.holding(b"".join(map(framed, made))):
        for out in memory.out.holding(bytes(sum(len(websocket_frame(each)) for each in made))):
            assert at.to_websocket(frames, out) == out.size


def masked(payload: bytes, first: int, mask: bytes) -> bytes:
    size = len(payload)
    head = bytes((first, 0x80 | size)) if size < 126 else bytes((first, 0xFE)) + size.to_bytes(2, "big")
    return head + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


def play_masked(chance: random.Random, memory: Forbidden) -> None:
    """Whole messages, other frames among them, bytes changed, the end cut; into no more room than they may take."""
    raw = bytearray()
    for _ in range(chance.randrange(6)):
        first = chance.choice((0x81, 0x82, 0x82, 0x01, 0x89, 0xC2))
        payload = chance.choice((b"x", "é".encode(), b"\xc3")) * chance.choice((0, 1, 7, 8, 9, 60, 125, 126, 200))
        raw += masked(payload, first, chance.randbytes(4))
    for _ in range(chance.choice((0, 0, 1, 3))):
        if raw:
            place = chance.randrange(len(raw))
            raw[place] = chance.choice((0x7E, 0x7F, 0xFE, 0xFF, 0x81, 0, chance.randrange(256)))
    if raw and chance.random() < 0.6:
        del raw[chance.randrange(len(raw)) :]
    state = np.zeros(1, np.int64)
    for data in memory.data.holding(bytes(raw)):
        for start in (0, chance.randrange(len(raw) + 1)):
            for out in memory.out.holding(bytes(len(raw) - start)):
                assert 0 <= at.from_websocket(data, start, 150, out, state) <= out.size
                assert start <= state[0] <= len(raw)


def play_unmask(chance: random.Random, memory: Forbidden) -> None:
    payload, mask = chance.randbytes(chance.randrange(40)), chance.randbytes(4)
    whole = masked(payload, 0x82, mask)
    for data in memory.data.holding(whole):
        for out in memory.out.holding(bytes(len(payload))):
            at.unmask(data, len(whole) - len(payload), len(payload), out)
            assert out.tobytes() == payload


def play_large(memory: Forbidden) -> None:
    for size in (65_535, 65_536):
        frames = framed(b"x" * (min(size, PAGES * PAGE - 14)))
        for array in memory.data.holding(frames):
            for out in memory.out.holding(bytes(len(websocket_frame(frames[4:])))):
                assert at.to_websocket(array, out) == out.size


def main(first: int, last: int) -> None:
    memory = Forbidden()
    play_large(memory)
    for seed in range(first, last):
        play_split(random.Random(seed), memory)
        play_websocket(random.Random(seed), memory)
        play_masked(random.Random(seed), memory)
        play_unmask(random.Random(seed), memory)
    print("whole")


@pytest.mark.slow
def test_no_hostile_buffer_makes_a_kernel_touch_a_byte_outside_it() -> None:
    """Runs in a process of its own, between guard pages; freed memory is overwritten at once."""
    command = [sys.executable, "-m", "tests.record.kernels.test_frame_kernels", "0", "300"]
    environment = os.environ | {"MALLOC_PERTURB_": "165"}
    here = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=here, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
