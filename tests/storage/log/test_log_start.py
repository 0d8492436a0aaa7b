"""The truncation marker: believed when it is whole, forgotten when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.record.hashing import hash64
from penstock.storage.log.segment import START_OF_EMPTY_LOG, LogStart, read_log_start, write_log_start
from penstock.testing import FaultDisk

FOLDER = Path("/log")


@pytest.mark.parametrize("offset", [0, 1, 2**63 - 1])
def test_it_reads_back(offset: int) -> None:
    disk = FaultDisk()
    disk.make_directory(FOLDER)
    write_log_start(disk, FOLDER, LogStart(offset, bytes(range(16))))
    assert read_log_start(disk, FOLDER) == (offset, bytes(range(16)))


def test_without_one_the_log_begins_at_zero() -> None:
    assert read_log_start(FaultDisk(), FOLDER) == START_OF_EMPTY_LOG


def test_no_flipped_bit_is_believed() -> None:
    disk = FaultDisk()
    disk.make_directory(FOLDER)
    written = LogStart(12345, bytes(range(16)))
    write_log_start(disk, FOLDER, written)
    content = disk.content(FOLDER / "start")
    whole = bytes(content)
    for bit in range(len(whole) * 8):
        content[bit // 8] ^= 1 << bit % 8
        assert read_log_start(disk, FOLDER) in (START_OF_EMPTY_LOG, written)
        content[bit // 8] ^= 1 << bit % 8
    assert bytes(content) == whole


@pytest.mark.parametrize("said", [b"", b"no", b"ff" * 24, b"00" * 23, b"00" * 30, b"\xff" * 48, b"0x" * 24])
def test_what_was_never_written_is_not_believed_under_a_right_checksum(said: bytes) -> None:
    disk = FaultDisk()
    disk.make_directory(FOLDER)
    disk.open(FOLDER / "start", write=True, create=True).write(said + b" %016x\n" % hash64(said), 0)
    assert read_log_start(disk, FOLDER) == START_OF_EMPTY_LOG
