"""Segment files: names, and reading blocks out of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.ids import IdGenerator
from penstock.core.offsets import OffsetRange
from penstock.record import layout as at
from penstock.record.block import Draft, stamp
from penstock.record.hashing import hash64
from penstock.record.message import Message
from penstock.storage.base.disk import File
from penstock.storage.log.segment import (
    SPARE_NAME,
    Damage,
    base_of,
    hash_file,
    index_path,
    read_block,
    record_bytes,
    segment_name,
)
from penstock.testing import FaultDisk, ManualClock

PATH = Path("/log/00000000000000000000.seg")


def segment(*payloads: bytes, disk: FaultDisk | None = None) -> tuple[File, int]:
    draft = Draft.of(Message(payload=payload) for payload in payloads)
    data = bytearray(draft.data)
    stamp(data, len(draft), IdGenerator(ManualClock(), node=1).take(len(draft)), 0)
    file = (disk or FaultDisk()).open(PATH, write=True, create=True)
    file.write(data, 0)
    return file, len(data)


@pytest.mark.parametrize("base", [0, 1, 2**63 - 1])
def test_a_name_says_its_first_offset(base: int) -> None:
    assert base_of(segment_name(base)) == base
    assert len(segment_name(base)) == 24


@pytest.mark.parametrize(
    "name",
    [SPARE_NAME, "1.seg", "00000000000000000000.idx", "00000000000000000000.seg.tmp", "0000000000000000000x.seg", ""],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert base_of(name) is None


def test_the_index_lies_beside_its_segment() -> None:
    assert index_path(PATH) == Path("/log/00000000000000000000.idx")


def test_small_pieces_read_the_same_records_as_one_large_one() -> None:
    payloads = [b"%d" % number * (number % 50) for number in range(100)]
    file, size = segment(*payloads)
    for bytes_max in (1, 100, 1000, 10**6):
        found, position = [], 0
        while position < size:
            block, stop = read_block(file, position, size, bytes_max=bytes_max)
            found += [record.message.payload for record in block]
            position = stop.position
            assert stop.reason == (at.AT_END if position == size else at.MORE)
        assert found == payloads


def test_a_record_that_does_not_end_by_the_stop_is_cut() -> None:
    file, size = segment(b"a", bytes(5000))
    block, stop = read_block(file, 0, size - 1)
    assert (len(block), stop.reason) == (1, at.CUT)
    block, stop = read_block(file, stop.position, size - 1, bytes_max=10)
    assert (len(block), stop.reason) == (0, at.CUT)


def test_a_length_beyond_all_reason_is_not_read() -> None:
    file, _ = segment(b"a")
    file.write((0xFFFFFFFF).to_bytes(4, "big"), at.HEAD_BYTES - 4)
    block, stop = read_block(file, 0, 2**31, bytes_max=1000)
    assert (len(block), stop.position, stop.reason) == (0, 0, at.CUT)


def test_a_sector_that_cannot_be_read_costs_the_records_in_it() -> None:
    disk = FaultDisk()
    file, size = segment(*[bytes(200)] * 10, disk=disk)
    disk.unreadable.add((str(PATH), 2))
    block, stop = read_block(file, 0, size)
    assert (len(block), stop.reason) == (1024 // 281, at.BAD_CHECKSUM)


def test_a_record_says_how_long_it_is() -> None:
    draft = Draft.of([Message(payload=b"x" * 77, type="order")])
    for known in (0, at.HEAD_BYTES, at.HEAD_BYTES + 5, len(draft.data)):
        assert record_bytes(draft.data[:known]) <= len(draft.data)
    assert record_bytes(draft.data) == len(draft.data)


def test_the_hash_of_a_file_is_the_hash_of_its_bytes() -> None:
    disk = FaultDisk()
    _, size = segment(*[bytes(100)] * 20, disk=disk)
    assert hash_file(disk, PATH, size) == hash64(disk.content(PATH))
    assert hash_file(disk, PATH, 100) == hash64(disk.content(PATH)[:100])


def test_damage_reads_as_a_sentence() -> None:
    one = Damage(0, OffsetRange.of(3, 4), 100, 200, "the checksum does not match")
    assert str(one) == "offset 3 (segment 0, bytes 100 to 200): the checksum does not match"
    assert str(Damage(0, OffsetRange.of(3, 9), 1, 2, "gone")) == "offsets [3, 9) (segment 0, bytes 1 to 2): gone"
