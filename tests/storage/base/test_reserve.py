"""Room that is held on the disk, and given up where there is no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.limits import MIB, Limits
from penstock.storage.base.reserve import RESERVE_BYTES_MAX, DiskReserve
from penstock.testing import FaultDisk
from penstock.testing.fault_disk import Fault

PATH = Path("/data/reserve")
PLENTY = 1 << 40


def made(disk: FaultDisk, limits: Limits | None = None) -> DiskReserve:
    disk.make_directory(PATH.parent)
    return DiskReserve(disk, PATH, limits or Limits())


def held(reserve: DiskReserve) -> bool:
    """Return True if the reserve is held now."""
    return reserve.is_held


def test_it_is_taken_where_there_is_room_beside_what_is_kept_free() -> None:
    disk = FaultDisk()
    reserve = made(disk)
    disk.free = Limits().disk_reserve_bytes + RESERVE_BYTES_MAX - 1
    reserve.adjust()
    assert not held(reserve)
    disk.free += 1
    reserve.adjust()
    assert held(reserve)
    assert len(disk.content(PATH)) == RESERVE_BYTES_MAX
    assert made(disk).is_held, "the next process finds it"


def test_it_is_given_up_once_there_is_hardly_any_other_and_taken_again() -> None:
    disk = FaultDisk()
    reserve = made(disk)
    reserve.adjust()
    disk.free = MIB
    reserve.adjust()
    assert held(reserve)
    disk.free = MIB - 1
    reserve.adjust()
    assert not held(reserve)
    assert not disk.exists(PATH)
    reserve.adjust()
    assert not held(reserve)
    disk.free = PLENTY
    reserve.adjust()
    assert held(reserve)


def test_it_is_a_quarter_of_a_small_reserve() -> None:
    disk = FaultDisk()
    made(disk, Limits(disk_reserve_bytes=2 * MIB)).adjust()
    assert len(disk.content(PATH)) == MIB // 2


def test_a_disk_that_cannot_give_it_is_no_reason_to_refuse_the_write() -> None:
    for fault in (Fault.FULL, Fault.ERROR):
        disk = FaultDisk()
        reserve = made(disk)
        disk.fail_at, disk.fault = disk.calls + 1, fault
        reserve.adjust()
        assert not held(reserve)


def test_nothing_is_held_of_next_to_nothing() -> None:
    disk = FaultDisk()
    reserve = made(disk, Limits(disk_reserve_bytes=3))
    reserve.adjust()
    assert not held(reserve)
    assert not disk.exists(PATH)


def test_what_fails_for_another_reason_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultDisk()
    reserve = made(disk)
    disk.fail_at, disk.fault = disk.calls + 1, Fault.ERROR
    for _ in range(3):
        reserve.adjust()
    assert len(caplog.records) == 1
