"""The index beside a segment: a header and self-checking entries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.log.index import (
    ENTRY_BYTES,
    HEADER_BYTES,
    IndexFile,
    IndexHeader,
    IndexWriter,
    SegmentState,
    decode_entries,
    encode_entries,
    rewrite_index,
)
from penstock.testing import FaultDisk

PATH = Path("/log/00000000000000000007.idx")
HEADER = IndexHeader(
    state=SegmentState.SEALED,
    base=7,
    count=3,
    size=300,
    first_id=bytes(range(16)),
    last_id=bytes(range(1, 17)),
    hash=99,
)


def longs(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_a_header_reads_back_as_it_was_written() -> None:
    assert IndexHeader.decode(HEADER.encode()) == HEADER
    assert len(HEADER.encode()) == HEADER_BYTES


@pytest.mark.parametrize("bit", range(HEADER_BYTES * 8))
def test_no_flipped_bit_of_a_header_is_believed(bit: int) -> None:
    data = bytearray(HEADER.encode())
    data[bit // 8] ^= 1 << bit % 8
    assert IndexHeader.decode(data) is None


@pytest.mark.parametrize("size", [0, 1, 64, HEADER_BYTES - 1])
def test_a_short_header_is_none(size: int) -> None:
    assert IndexHeader.decode(HEADER.encode()[:size]) is None


@given(st.lists(st.integers(0, 2**32 - 1), max_size=50), st.integers(0, 2**63 - 100))
def test_entries_read_back_as_they_were_written(ends: list[int], first_offset: int) -> None:
    assert decode_entries(encode_entries(longs(*ends), first_offset), first_offset).tolist() == ends


@given(st.integers(0, 2**31), st.integers(0, 2**40), st.integers(0, 63))
def test_no_flipped_bit_of_an_entry_is_believed(end: int, offset: int, bit: int) -> None:
    data = bytearray(encode_entries(longs(end), offset))
    data[bit // 8] ^= 1 << bit % 8
    assert decode_entries(data, offset).tolist() == [-1]


def test_zeros_are_no_entry_at_any_offset() -> None:
    assert (decode_entries(bytes(8 * 10_000), 0) == -1).all()


def test_an_entry_at_another_place_is_not_believed() -> None:
    data = encode_entries(longs(100, 200), 5)
    assert decode_entries(data[8:] + data[:8], 5).tolist() == [-1, -1]


def make(disk: FaultDisk, *ends: int) -> IndexWriter:
    disk.make_directory(PATH.parent)
    writer = IndexWriter.create(disk, PATH, 7)
    writer.reserve(len(ends))
    writer.write(longs(*ends), 0)
    return writer


def test_records_are_found_where_they_start_and_end() -> None:
    disk = FaultDisk()
    make(disk, 100, 200, 350)
    index = IndexFile(disk, PATH, 7)
    assert [index.start(ordinal) for ordinal in range(5)] == [0, 100, 200, 350, -1]
    assert index.ends(1, 5).tolist() == [200, 350, -1, -1]
    assert index.all_ends().tolist() == [100, 200, 350]
    assert index.count_from(0, step=2) == index.count_from(3) == 3


def test_a_missing_index_knows_nothing() -> None:
    index = IndexFile(FaultDisk(), PATH, 7)
    assert index.header() is None
    assert index.start(0) == 0
    assert index.start(1) == -1
    assert index.all_ends().size == 0


def test_the_index_of_another_segment_is_not_ours() -> None:
    disk = FaultDisk()
    make(disk, 100)
    assert IndexFile(disk, PATH, 8).header() is None


def test_an_index_cut_in_the_middle_of_an_entry_knows_the_whole_ones() -> None:
    disk = FaultDisk()
    make(disk, 100, 200)
    del disk.content(PATH)[HEADER_BYTES + ENTRY_BYTES + 3 :]
    assert IndexFile(disk, PATH, 7).ends(0, 2).tolist() == [100, -1]


def test_space_is_reserved_ahead_in_steps() -> None:
    disk = FaultDisk()
    writer = make(disk, 100)
    size = len(disk.content(PATH))
    writer.reserve(10)
    assert len(disk.content(PATH)) == size
    writer.reserve(size)
    assert len(disk.content(PATH)) >= HEADER_BYTES + size * ENTRY_BYTES


def test_a_rewritten_index_is_the_new_one_whole() -> None:
    disk = FaultDisk()
    make(disk, 1, 2, 3)
    rewrite_index(disk, PATH, HEADER, longs(10, 20))
    index = IndexFile(disk, PATH, 7)
    assert index.header() == HEADER
    assert index.all_ends().tolist() == [10, 20]
