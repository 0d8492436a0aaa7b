"""The line reader, however the bytes of its input arrive."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import line_reader
from penstock.cli.line_reader import MessageLimits
from penstock.core.errors import PayloadTooLarge

ROOM = MessageLimits(block_bytes=1000, record_bytes=80, payload_bytes=100)


class Pieces(io.BytesIO):
    """A stream that returns its content piece by piece, and counts the reads."""

    def __init__(self, backfill_ranges: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = backfill_ranges
        self.given = 0

    def read1(self, _size: int | None = -1, /) -> bytes:
        piece = next(self._pieces, b"")
        self.given += len(piece)
        return piece


def lines(data: bytes, room: MessageLimits = ROOM, *, count_max: int = 1000) -> list[list[bytes]]:
    return list(line_reader.line_groups(io.BytesIO(data), room, count_max=count_max))


@pytest.mark.parametrize(
    ("data", "payloads"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\nb\r", [b"a\r", b"b\r"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b"\0\xff\n", [b"\0\xff"]),
    ],
)
def test_a_line_is_what_lies_before_its_end(data: bytes, payloads: list[bytes]) -> None:
    assert lines(data) == [payloads]


def test_nothing_has_no_lines() -> None:
    assert lines(b"") == []


@given(st.lists(st.binary(max_size=8), max_size=12), st.integers(1, 5))
def test_the_lines_are_the_same_in_whatever_pieces_they_arrive(backfill_ranges: list[bytes], count_max: int) -> None:
    source = Pieces(piece for piece in backfill_ranges if piece)
    split = [line for group in line_reader.line_groups(source, ROOM, count_max=count_max) for line in group]
    assert split == [line for group in lines(b"".join(backfill_ranges)) for line in group]


@given(st.lists(st.integers(0, 100), max_size=60), st.integers(1, 9))
def test_a_group_fits_into_a_block_and_has_no_more_lines_than_it_may(sizes: list[int], count_max: int) -> None:
    line_groups = lines(b"".join(b"x" * size + b"\n" for size in sizes), count_max=count_max)
    assert [len(line) for group in line_groups for line in group] == sizes
    for group in line_groups:
        assert 1 <= len(group) <= count_max
        assert sum(ROOM.record_bytes + len(line) for line in group) <= ROOM.block_bytes


def test_a_line_of_the_largest_size_is_taken_and_one_more_byte_is_not() -> None:
    assert lines(b"x" * 100 + b"\r\n") == [[b"x" * 100]]
    with pytest.raises(PayloadTooLarge, match="line 1 is too large: a message has at most 100 bytes"):
        lines(b"x" * 101 + b"\n")


def test_a_line_that_is_too_large_is_named_after_those_before_it_are_given() -> None:
    line_groups = line_reader.line_groups(io.BytesIO(b"a\nb\n" + b"x" * 101 + b"\nc\n"), ROOM, count_max=1000)
    assert next(line_groups) == [b"a", b"b"]
    with pytest.raises(PayloadTooLarge, match="line 3 is too large"):
        next(line_groups)


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    endless = Pieces(iter(lambda: b"x" * 64, b""))
    with pytest.raises(PayloadTooLarge, match="line 1"):
        list(line_reader.line_groups(endless, ROOM, count_max=1000))
    assert endless.given < 300


def test_what_a_slow_stream_has_given_is_not_held_back() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as source, os.fdopen(write_end, "wb", buffering=0) as sink:
        line_groups = line_reader.line_groups(source, ROOM, count_max=1000)
        sink.write(b"a\nb\nunfin")
        assert next(line_groups) == [b"a", b"b"]
        sink.write(b"ished\nc\n")
        assert next(line_groups) == [b"unfinished", b"c"]
        sink.write(b"end")
        sink.close()
        assert list(line_groups) == [[b"end"]]


@pytest.mark.parametrize("data", [b"", b"a\nb\n", b"x" * 100])
def test_the_whole_input_is_one_message(data: bytes) -> None:
    assert list(line_reader.whole_input(io.BytesIO(data), ROOM)) == [[data]]


def test_a_whole_input_that_is_too_large_is_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="the input is too large: a message has at most 100 bytes"):
        list(line_reader.whole_input(io.BytesIO(b"x" * 101), ROOM))


def test_a_block_bounds_its_messages_too() -> None:
    small = MessageLimits(block_bytes=120, record_bytes=80, payload_bytes=100)
    assert small.line_bytes == 40
    with pytest.raises(PayloadTooLarge, match="at most 40 bytes"):
        lines(b"x" * 41, small)


def test_a_block_without_room_for_any_message_is_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="take 200 bytes"):
        MessageLimits(block_bytes=120, record_bytes=200, payload_bytes=100)
