"""The kernels between the wire and the log against plain Python, and between forbidden pages.

Run as a program (`python -m tests.record.kernels.test_stream_kernels 0 100`) it gives each kernel arrays that begin or
end at a page that nobody may touch, with exactly as much room as is needed: one byte too far ends the process.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record.kernels.guarded import Guarded, some_messages
from tests.record.reference import id_at

from penstock.record import layout as at
from penstock.record.block import Draft, parse_block
from penstock.record.hashing import as_array, as_signed
from penstock.record.kernels import frame_kernels as wire
from penstock.record.kernels import stream_kernels
from penstock.record.message import Message, key_hash

ID = b"00000000-0000-4000-8000-000000000001"
LOW = 0x9A3F_0123_4567_89AB

Fence = Callable[[Any], Any]
"""Gives an array back, where it may have been moved to."""


def unmoved(array: Any) -> Any:
    return array


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def longs(values: list[Any]) -> Any:
    return np.array(values, dtype=np.int64)


# Which ranges are alike


def check_alike(pieces: list[bytes], fence: Fence = unmoved) -> list[int]:
    """The numbers given, after a look at what they promise."""
    sizes = [len(piece) for piece in pieces]
    starts = [sum(sizes[:place]) for place in range(len(pieces))]
    numbers, firsts = fence(np.full(len(pieces), -7, np.int64)), fence(np.full(len(pieces), -7, np.int64))
    data = fence(as_array(b"".join(pieces)))
    count = stream_kernels.alike(data, fence(longs(starts)), fence(longs(sizes)), numbers, firsts)
    found: list[int] = numbers.tolist()
    assert sorted(set(found)) == list(range(count))
    assert firsts[:count].tolist() == [found.index(number) for number in range(count)]
    assert all(piece == pieces[firsts[number]] for piece, number in zip(pieces, found, strict=True))
    return found


@given(st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"x" * 8, b"x" * 7 + b"y", b"x" * 9, b"y" + b"x" * 8])))
def test_few_different_ranges_are_each_numbered_once(pieces: list[bytes]) -> None:
    known: dict[bytes, int] = {}
    assert check_alike(pieces) == [known.setdefault(piece, len(known)) for piece in pieces]


@pytest.mark.parametrize("distinct", [1, 31, 32, 33, 500])
def test_many_different_ranges_may_be_numbered_again(distinct: int) -> None:
    numbers = check_alike([b"%d" % (each % distinct) for each in range(500)])
    assert (max(numbers) < distinct) == (distinct <= 32 or distinct == 500)


# Records that differ little


def check_encoded(pairs: list[tuple[bytes, bytes | None]], common: Message, fence: Fence = unmoved) -> None:
    """Into exactly as much room as is needed, and the same as one by one but for the checksum."""
    whole = [replace(common, payload=payload, key=key) for payload, key in pairs]
    expected = bytes(Draft.of(whole).data)
    record = bytes(Draft.of([common]).data)
    key_at = at.HEAD_BYTES + len(common.type.encode()) + at.NAME_LENGTH_AT + 2
    sizes = longs([len(payload) for payload, _ in pairs])
    keys = longs([-1 if key is None else len(key) for _, key in pairs])
    arrays = (
        *(as_array(record[:key_at]), as_array(record[key_at + 2 : -8])),
        *(as_array(b"".join(payload for payload, _ in pairs)), np.cumsum(sizes) - sizes, sizes),
        *(as_array(b"".join(key or b"" for _, key in pairs)), keys),
    )
    for checksums in (False, True):
        out = fence(np.zeros(len(expected), np.uint8))
        taken = stream_kernels.encode_alike(*map(fence, arrays), 0, checksums, out)
        assert taken == len(expected)
        if checksums:
            assert [record.message for record in parse_block(out.copy())] == whole
        else:
            assert out.tobytes() == expected


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=20)), min_size=1, max_size=6),
    st.text(max_size=20),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_records_are_encoded_as_one_by_one(
    pairs: list[tuple[bytes, bytes | None]], type_: str, attributes: dict[str, str]
) -> None:
    check_encoded(pairs, Message(payload=b"", type=type_, attributes=attributes))


# Receipts

HEADS = [b"response:a.b:1.0.0:", b"", b"response:/shop/orders.created:10.20.30:"]
BEFORE, MIDDLE, AFTER = b'{"partition":3,"offset":', b',"id":"', b'","duplicate":false}'
NUMBERS = [0, 1, 9, 10, 11, 99, 100, 4095, 4096, 10**9, 2**32, 10**18 - 1, 10**18, 2**60 - 20, 2**63 - 20]


def check_receipts(rows: list[tuple[int, int]], offset: int, ticks: int, low: int, fence: Fence = unmoved) -> None:
    """Rows of these heads and kinds, answered into exactly as much room as is needed."""
    data, table, expected = b"", [], b""
    for number, (head, kind) in enumerate(rows):
        start, request_id = len(data) + 4, ID[:-2] + b"%02x" % number
        data += framed(b"publish:a" + (b":" + request_id if kind == wire.WITH_ID else b"") + b"\n")
        table.append((start, len(data) - 1, start + 9, kind, head, len(data)))
        if kind == wire.WITH_ID:
            id_ = str(uuid.UUID(bytes=id_at(ticks + number, low))).encode()
            payload = BEFORE + b"%d" % (offset + number) + MIDDLE + id_ + AFTER
            expected += framed(HEADS[head] + request_id + b"\n" + payload)
    places = longs([(sum(map(len, HEADS[:n])), len(head)) for n, head in enumerate(HEADS)])
    out = fence(np.zeros(len(expected), np.uint8))
    given_ = (as_array(data), longs(table).reshape(-1, wire.COLUMNS), as_array(b"".join(HEADS)))
    texts = (places, as_array(BEFORE), as_array(MIDDLE), as_array(AFTER))
    written = stream_kernels.receipts(*map(fence, (*given_, *texts)), offset, ticks, as_signed(low), out)
    assert (written, out.tobytes()) == (len(expected), expected)


receipt_rows = st.lists(st.tuples(st.sampled_from([0, 2]), st.sampled_from([wire.PLAIN, wire.WITH_ID])), max_size=12)


@given(
    receipt_rows,
    st.sampled_from(NUMBERS) | st.integers(0, 2**63 - 20),
    st.integers(0, 2**60 - 20),
    st.integers(0, 2**64 - 1),
)
def test_receipts_are_written_as_plain_python_writes_them(
    rows: list[tuple[int, int]], offset: int, ticks: int, low: int
) -> None:
    check_receipts(rows, offset, ticks, low)


@pytest.mark.parametrize("offset", NUMBERS)
def test_every_length_of_number_is_written_right(offset: int) -> None:
    check_receipts([(0, wire.WITH_ID)] * 12, offset, 2**60 - 20, LOW)


# Records as frames


def check_published(messages: list[Message], number: int, fence: Fence = unmoved) -> None:
    block = parse_block(Draft.of(messages).data, verify=False)
    head = b"publish:a.b:1.0.0:" + ID
    expected = b"".join(
        framed(head[:-12] + b"%012x" % (number + place) + b"\n" + message.payload)
        for place, message in enumerate(messages)
    )
    out = fence(np.zeros(len(expected), np.uint8))
    written = stream_kernels.publish(*map(fence, (block.data, block.columns, as_array(head))), number, out)
    assert (written, out.tobytes()) == (len(expected), expected)


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=10), st.integers(0, 2**48 - 10))
def test_records_are_framed_as_plain_python_frames_them(given_: list[bytes], number: int) -> None:
    check_published([Message(payload=payload, key=payload, type="t") for payload in given_], number)


# Keys and copies


def check_block(messages: list[Message], chance: random.Random, fence: Fence = unmoved) -> None:
    block = parse_block(Draft.of(messages).data, verify=False)
    hashes = fence(np.full(len(block), 7, np.int64))
    stream_kernels.key_hashes(fence(block.data), fence(block.columns), hashes)
    expected = [0 if each.key is None else key_hash(each.key) for each in messages]
    assert hashes.view(np.uint64).tolist() == expected
    chosen = block.columns[[chance.randrange(len(block)) for _ in range(chance.randrange(len(block)))]]
    copied = b"".join(block.data[row[at.START] : row[at.END]].tobytes() for row in chosen)
    out = fence(np.zeros(len(copied), np.uint8))
    stream_kernels.gather_records(fence(block.data), fence(chosen), out)
    assert out.tobytes() == copied
    lined = b"".join(each.payload + b"\n" for each in messages)
    out, ends = fence(np.zeros(len(lined), np.uint8)), fence(np.zeros(len(block), np.int64))
    within = stream_kernels.lines(fence(block.data), fence(block.columns), out, ends)
    assert (out.tobytes(), within) == (lined, any(b"\n" in each.payload for each in messages))
    assert ends.tolist() == np.cumsum([len(each.payload) + 1 for each in messages]).tolist()


def test_keys_are_hashed_and_records_copied() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        check_block(some_messages(chance), chance)


# Memory


class Fences:
    """Pieces of guarded memory, as many as one kernel takes arrays, used in turn."""

    def __init__(self, *, at_end: bool) -> None:
        self._at_end = at_end
        self._guards = [Guarded() for _ in range(12)]
        self._next = 0

    def __call__(self, array: Any) -> Any:
        self._next = (self._next + 1) % len(self._guards)
        places = self._guards[self._next].holding(array.tobytes())
        held = next(places)
        if self._at_end:
            held = next(places)
        return held.view(array.dtype).reshape(array.shape)


def play(chance: random.Random, fence: Fence) -> None:
    messages = some_messages(chance)
    check_alike([chance.choice((b"", b"a", each.payload[:20])) for each in messages], fence)
    common = Message(payload=b"", type=messages[0].type, attributes=messages[0].attributes, schema=messages[0].schema)
    check_encoded([(each.payload, each.key) for each in messages], common, fence)
    kinds = (wire.PLAIN, wire.WITH_ID)
    rows = [(chance.choice((0, 2)), chance.choice(kinds)) for _ in range(chance.randrange(12))]
    check_receipts(rows, chance.choice(NUMBERS), chance.getrandbits(59), chance.getrandbits(64), fence)
    check_published(messages, chance.getrandbits(40), fence)
    check_block(messages, chance, fence)


def main(first: int, last: int) -> None:
    for fence in (Fences(at_end=False), Fences(at_end=True)):
        for seed in range(first, last):
            play(random.Random(seed), fence)
    print("whole")


def test_no_kernel_touches_a_byte_outside_its_arrays() -> None:
    """Runs in a process of its own, between guard pages; freed memory is overwritten at once."""
    command = [sys.executable, "-m", "tests.record.kernels.test_stream_kernels", "0", "100"]
    environment = os.environ | {"MALLOC_PERTURB_": "165"}
    here = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=here, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
