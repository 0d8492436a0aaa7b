"""The kernels by themselves: the search for a record, text, unused space, and bytes they must never touch."""

from __future__ import annotations

import itertools
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record.reference import Entry, id_at, record, write
from tests.record.samples import FIRST_TICKS, LOW, unhurried

from penstock.core.offsets import OFFSET_MAX
from penstock.record import layout as at
from penstock.record.block import scan
from penstock.record.kernels import block_kernels, text_kernels

NOISE = random.Random(3).randbytes(1 << 16)


def array_of(data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.uint8)


# Finding a record


def entry_at(place: int, payload: bytes = b"payload", **more: Any) -> Entry:
    return Entry(id=id_at(FIRST_TICKS + place, LOW), offset=place, payload=payload, **more)


def find(
    data: bytes,
    start: int = 0,
    *,
    after: bytes = bytes(16),
    low: int = 0,
    high: int = OFFSET_MAX,
    stop: int | None = None,
) -> int:
    id_high, id_low = struct.unpack(">qq", after)
    stop = len(data) if stop is None else stop
    return int(block_kernels.find(array_of(data), start, stop, id_high, id_low, low, high, 2**62, 2**62)[0])


RECORD = write(entry_at(5))


@pytest.mark.parametrize(
    "garbage",
    [bytes, lambda size: b"\xff" * size, lambda size: b"\x66\x88" * (size // 2), lambda size: NOISE[:size]],
    ids=["zeros", "ones", "almost ids", "noise"],
)
def test_the_first_whole_record_behind_garbage_is_found(garbage: Any) -> None:
    for size in [*range(60), 1_000, 10_000]:
        before = garbage(size)
        assert find(before + RECORD) == len(before)
        assert find(before + RECORD + RECORD) == len(before)
        assert find(before) == -1


def test_a_cut_record_before_it_does_not_hide_it() -> None:
    for size in range(len(RECORD)):
        assert find(RECORD[:size] + write(entry_at(6))) == size


def test_a_record_that_is_itself_cut_is_not_found() -> None:
    for size in range(len(RECORD)):
        assert find(RECORD[:size]) == -1
        assert block_kernels.find(array_of(RECORD), 0, size, 0, 0, 0, OFFSET_MAX, 2**62, 2**62)[0] == -1
    assert block_kernels.find(array_of(RECORD), 0, len(RECORD), 0, 0, 0, OFFSET_MAX, 2**62, 2**62)[0] == 0


def test_a_search_hashes_no_more_than_it_may_and_says_how_much() -> None:
    data = bytearray(RECORD * 10)
    for number in range(10):
        data[(number + 1) * len(RECORD) - 1] ^= 1  # every head is plausible, and no checksum holds
    for allowed, hashed in ((0, 0), (1, 1), (len(RECORD), 1), (len(RECORD) + 1, 2), (2**62, 10)):
        found = block_kernels.find(array_of(bytes(data)), 0, len(data), 0, 0, 0, OFFSET_MAX, allowed, allowed)
        assert found == (-1, hashed * len(RECORD))


def test_past_what_may_be_hashed_freely_only_what_another_record_follows_is_tried() -> None:
    whole, last = write(entry_at(6)), write(entry_at(7))
    alone = RECORD[:-1] + bytes([RECORD[-1] ^ 1])
    for data in (alone + whole + last, alone + whole + bytes(20)):
        place, hashed = block_kernels.find(array_of(data + alone), 0, len(data), 0, 0, 0, OFFSET_MAX, 0, 2**62)
        assert place == len(alone)
        assert hashed <= 2 * max(len(alone), len(whole))
    data = whole + b"anything else" * 20
    assert block_kernels.find(array_of(data), 0, len(data), 0, 0, 0, OFFSET_MAX, 0, 2**62) == (-1, 0)
    assert block_kernels.find(array_of(data), 0, len(data), 0, 0, 0, OFFSET_MAX, 1, 2**62) == (0, len(whole))


def test_the_search_begins_where_it_is_told() -> None:
    data = RECORD * 3
    assert [find(data, start) for start in (0, 1, len(RECORD), len(RECORD) + 1)] == [
        *(0, len(RECORD), len(RECORD), 2 * len(RECORD)),
    ]
    assert find(data, 2 * len(RECORD) + 1) == -1
    assert find(data, len(data)) == -1


def test_a_record_with_one_wrong_bit_is_passed_over() -> None:
    following = write(entry_at(6))
    data = bytearray(RECORD + following)
    for place, bit in itertools.product(range(len(RECORD)), range(8)):
        data[place] ^= 1 << bit
        assert find(bytes(data)) == len(RECORD)
        data[place] ^= 1 << bit


@pytest.mark.parametrize(
    "other",
    [
        record(id_at(FIRST_TICKS, LOW), b"", b"not an envelope"),
        record(id_at(FIRST_TICKS, LOW), b"", b"\2" + bytes(60)),
        write(replace(entry_at(5), id=bytes.fromhex("1f0c2a4e7b1d4c009a3f0123456789ab"))),
        write(replace(entry_at(5), id=bytes(16))),
    ],
    ids=["short", "version 2", "a UUID of version 4", "no id"],
)
def test_a_record_that_is_not_a_stamped_message_is_passed_over(other: bytes) -> None:
    assert find(other + RECORD) == len(other)


def test_a_record_in_a_payload_is_found_and_the_caller_decides() -> None:
    inner = write(entry_at(3))
    outer = write(entry_at(9, payload=b"before" + inner + b"after"))
    assert find(outer) == 0
    assert find(outer, 1) == outer.index(inner)
    assert find(outer, 1, low=4) == -1
    assert find(outer, 1, after=id_at(FIRST_TICKS + 3, LOW)) == -1
    assert find(outer, 0, low=4) == 0


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [(0, OFFSET_MAX, True), (5, 6, True), (5, 5, False), (0, 5, False), (6, OFFSET_MAX, False)],
)
def test_the_offset_lies_in_the_range(low: int, high: int, found: bool) -> None:
    assert find(RECORD, low=low, high=high) == (0 if found else -1)


def test_an_offset_past_the_greatest_is_none() -> None:
    assert find(write(replace(entry_at(5), offset=2**64 - 1))) == -1


@pytest.mark.parametrize(
    ("ticks", "low", "found"),
    [
        *((4, LOW, True), (5, LOW - 1, True), (5, LOW, False), (5, LOW + 1, False), (6, 0x8000_0000_0000_0000, False)),
    ],
)
def test_the_id_is_greater_than_the_one_before(ticks: int, low: int, found: bool) -> None:
    assert find(RECORD, after=id_at(FIRST_TICKS + ticks, low)) == (0 if found else -1)


def test_lengths_that_claim_all_that_follows_do_not_cost_a_hash_each() -> None:
    claim = id_at(FIRST_TICKS, LOW) + b"\0" + (1 << 20).to_bytes(4, "big") + bytes(11)
    data = claim * (1 << 17)  # 4 MiB: hashing a MiB at each of them would be 100 GiB
    find(RECORD)  # once it is loaded, what others do meanwhile is not counted
    began = time.thread_time()
    assert find(data + RECORD) == len(data)
    assert time.thread_time() - began < 5


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 2**32))
@unhurried
def test_every_record_between_garbage_is_found_in_turn(gaps: list[int], seed: int) -> None:
    chance = random.Random(seed)
    data, places = b"", []
    for place, gap in enumerate(gaps):
        data += chance.randbytes(gap)
        places.append(len(data))
        data += write(entry_at(place, payload=chance.randbytes(gap)))
    found, start = [], 0
    while (start := find(data, start)) >= 0:
        found.append(start)
        start += 1
    assert found == places


# Text


def is_text(pieces: Iterable[bytes]) -> list[bool]:
    """Return the kernel's verdict on each piece, as the type of a record."""
    given_ = list(pieces)
    data = array_of(bytes(at.TYPE_AT) + b"".join(given_) + bytes(at.MESSAGE_RECORD_BYTES_MIN))
    columns = np.zeros((len(given_), at.COLUMNS), dtype=np.int64)
    columns[:, at.TYPE_BYTES] = [len(piece) for piece in given_]
    columns[1:, at.START] = np.cumsum(columns[:-1, at.TYPE_BYTES])
    verdicts: list[bool] = []
    while len(verdicts) < len(given_):
        bad = int(text_kernels.first_bad_text(data, columns[len(verdicts) :]))
        verdicts += [True] * (len(given_) - len(verdicts) if bad < 0 else bad)
        if bad >= 0:
            verdicts.append(False)
    return verdicts


def is_python_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


EDGES = (0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xFF)


@pytest.mark.parametrize(
    "pieces",
    [
        [bytes(each) for each in itertools.product(range(256))],
        [bytes(each) for each in itertools.product(range(256), repeat=2)],
        [bytes(each) for each in itertools.product(range(0x7E, 256), range(0x7E, 0xC2), EDGES)],
        [bytes(each) for each in itertools.product(range(0xEF, 0xF7), range(0x7E, 0xC2), EDGES, EDGES)],
        [b"12345678"[:before] + bytes(each) for before in range(9) for each in itertools.product(EDGES, repeat=3)],
    ],
    ids=["one byte", "two bytes", "three bytes", "four bytes", "behind plain letters"],
)
def test_text_is_what_python_calls_text(pieces: list[bytes]) -> None:
    assert is_text(pieces) == [is_python_text(piece) for piece in pieces]


def test_every_character_is_text() -> None:
    characters = [chr(code).encode() for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    assert all(is_text(characters))


def test_no_surrogate_is_text() -> None:
    surrogates = [chr(code).encode("utf-8", "surrogatepass") for code in range(0xD800, 0xE000)]
    assert not any(is_text(surrogates))


@given(st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode)), min_size=1, max_size=8))
@unhurried
def test_the_first_record_with_text_that_is_none_is_named(pieces: list[bytes]) -> None:
    entries = [
        Entry(id=id_at(place + 1), type=piece, producer_name=other, attributes=((piece, other), (other, piece)))
        for place, (piece, other) in enumerate(zip(pieces, reversed(pieces), strict=True))
    ]
    data, columns = array_of(write(*entries)), np.empty((len(entries), at.COLUMNS), dtype=np.int64)
    mode = at.VERIFY | at.ENVELOPES | at.STAMPED
    count, _, reason = block_kernels.scan(data, 0, data.size, mode, 0, 0, -1, columns)
    assert (count, reason) == (len(entries), at.AT_END)
    good = [is_python_text(entry.type) and is_python_text(entry.producer_name) for entry in entries]
    assert text_kernels.first_bad_text(data, columns) == (-1 if all(good) else good.index(False))
    block, stop = scan(data)
    assert len(block) == (len(entries) if all(good) else good.index(False))
    assert stop.reason == (at.AT_END if all(good) else at.BAD_TEXT)


# Unused space


def test_the_first_used_byte_is_found_wherever_it_is() -> None:
    for size in range(40):
        assert block_kernels.first_used(array_of(bytes(size))) == -1
        for place in range(size):
            data = bytearray(size)
            data[place:] = b"\x80" * (size - place)
            assert block_kernels.first_used(array_of(bytes(data))) == place
            data[place + 1 :] = bytes(size - place - 1)
            assert block_kernels.first_used(array_of(bytes(data))) == place


# Memory


@pytest.mark.slow
def test_no_hostile_block_makes_a_kernel_touch_a_byte_outside_it() -> None:
    """Runs in a process of its own, between guard pages; freed memory is overwritten at once."""
    command = [sys.executable, str(Path(__file__).with_name("guarded.py")), "0", "150"]
    environment = os.environ | {"MALLOC_PERTURB_": "165"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
