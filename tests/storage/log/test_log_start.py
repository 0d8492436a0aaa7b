"""The truncation marker: believed when it is whole, forgotten when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.record.hashing import hash64
from penstock.storage.log.segment import BEGINNING, Start, read_start, write_start
from penstock.testing import FaultDisk

FOLDER = Path("/log")


@pytest.mark.parametrize("offset", [0, 1, 2**63 - 1])
def test_it_reads_back(offset: int) -> None:
    disk = FaultDisk()
    disk.make_directory(FOLDER)
    write_start(disk, FOLDER, Start(offset, bytes(range(16))))
    assert read_start(disk, FOLDER) == (offset, bytes(range(16)))


def test_without_one_the_log_begins_at_zero() -> None:
    assert read_start(FaultDisk(), FOLDER) == BEGINNING


def test_no_flipped_bit_is_believed() -> None:
    disk = FaultDisk()
    disk.make_directory(FOLDER)
    written = Start(12345, bytes(range(16)))
    write_start(disk, FOLDER, written)
    content = disk.content(FOLDER / "start")
    whole = bytes(content)
    for bit in range(len(whole) * 8):
        content[bit // 8] ^= 1 << bit % 8
        assert read_start(disk, FOLDER) in (BEGINNING, written)
        content[bit // 8] ^= 1 << bit % 8
    assert bytes(content) == whole


@pytest.mark.parametrize("said", [b"", b"no", b"ff" * 24, b"00" * 23, b"00" * 30, b"\xff" * 48, b"0x" * 24])
def test_what_was_never_written_is_not_believed_under_a_right_checksum(said: bytes) -> None:
    disk = FaultDisk()
    disk.make_directory(FOLDER)
    disk.open(FOLDER / "start", write=True, create=True).write(said + b" %016x\n" % hash64(said), 0)
    assert read_start(disk, FOLDER) == BEGINNING
