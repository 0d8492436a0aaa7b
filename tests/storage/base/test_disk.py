"""The real disk, and the few helpers over any disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from penstock.core.errors import DiskFull, NotOwner, StorageFailed
from penstock.storage.base.disk import OsDisk, OwnerLock, opened, read_all, replace_file, storage_error, write_all
from penstock.testing import Fault, FaultDisk


@pytest.fixture(params=["os", "fault"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[OsDisk | FaultDisk, Path]:
    disk = OsDisk() if request.param == "os" else FaultDisk()
    disk.make_directory(tmp_path / "a" / "b")
    return disk, tmp_path / "a" / "b"


Place = tuple[OsDisk | FaultDisk, Path]


def test_both_disks_do_the_same(place: Place) -> None:
    disk, folder = place
    with opened(disk, folder / "one", write=True, create=True) as file:
        file.preallocate(1000)
        assert file.size() == 1000
        write_all(file, b"hello", 500)
        file.sync()
        assert bytes(read_all(file, 498, 9)) == b"\0\0hello\0\0"
        assert len(read_all(file, 990, 100)) == 10
        file.truncate(502)
        assert bytes(read_all(file, 500, 10)) == b"he"
    disk.rename(folder / "one", folder / "two")
    disk.sync_directory(folder)
    assert disk.names(folder) == ["two"]
    assert disk.names(folder.parent) == ["b"]
    assert disk.exists(folder / "two")
    disk.remove(folder / "two")
    disk.remove(folder / "two")
    assert disk.names(folder) == disk.names(folder / "nowhere") == []
    assert disk.free_bytes(folder) > 0
    disk.remove_tree(folder)
    assert not disk.exists(folder)


def test_what_is_not_there_is_file_not_found(place: Place) -> None:
    disk, folder = place
    with pytest.raises(FileNotFoundError):
        disk.open(folder / "nowhere")
    with pytest.raises(FileNotFoundError):
        disk.rename(folder / "nowhere", folder / "else")


def test_a_file_opened_to_read_cannot_be_written(place: Place) -> None:
    disk, folder = place
    replace_file(disk, folder / "one", b"data")
    with opened(disk, folder / "one") as file, pytest.raises(OSError, match=r".*"):
        file.write(b"x", 0)


def test_a_small_file_is_replaced_whole(place: Place) -> None:
    disk, folder = place
    replace_file(disk, folder / "one", b"long content")
    replace_file(disk, folder / "one", b"short")
    with opened(disk, folder / "one") as file:
        assert bytes(read_all(file, 0, 100)) == b"short"
    assert disk.names(folder) == ["one"]


def test_a_short_write_is_continued_and_an_empty_one_is_an_error() -> None:
    class Stubborn:
        def __init__(self, *takes: int) -> None:
            self.takes, self.taken = list(takes), b""

        def write(self, data: memoryview, position: int) -> int:
            assert position == len(self.taken)
            count = self.takes.pop(0)
            self.taken += bytes(data[:count])
            return count

    patient = Stubborn(1, 2, 3)
    write_all(patient, b"abcdef", 0)  # type: ignore[arg-type]
    assert patient.taken == b"abcdef"
    with pytest.raises(OSError, match="took no bytes"):
        write_all(Stubborn(1, 0), b"abcdef", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, StorageFailed)]
)
def test_errors_of_the_disk_are_named(number: int, kind: type[Exception]) -> None:
    error = storage_error(OSError(number, "because"), "it cannot be done")
    assert type(error) is kind
    assert "it cannot be done" in str(error)
    assert "because" in str(error)


def test_a_lock_is_held_by_one_and_let_go(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path / "lock")
    with pytest.raises(NotOwner, match="running process"):
        OwnerLock(tmp_path / "lock")
    lock.release()
    lock.release()
    OwnerLock(tmp_path / "lock").release()


def test_a_fault_disk_loses_what_was_not_synced() -> None:
    import random

    disk, folder = FaultDisk(), Path("/d")
    disk.make_directory(folder)
    with opened(disk, folder / "f", write=True, create=True) as file:
        write_all(file, b"a" * 512, 0)
        file.sync()
        disk.sync_directory(folder)
        write_all(file, b"b" * 1024, 0)
    disk.rename(folder / "f", folder / "g")
    seen = set()
    for survivor in disk.survivors(random.Random(1), 64):
        (name,) = survivor.names(folder)
        seen.add((name, bytes(survivor.content(folder / name))))
    contents = {b"a" * 512, b"b" * 512, b"b" * 1024, b"a" * 512 + b"b" * 512, b"b" * 512 + bytes(512)}
    assert {content for _, content in seen} <= contents
    assert len({content for _, content in seen}) >= 4
    assert {name for name, _ in seen} == {"f", "g"}


def test_a_fault_disk_fails_at_the_call_it_was_told_to() -> None:
    for fault in (Fault.ERROR, Fault.FULL):
        disk = FaultDisk(fail_at=1, fault=fault)
        file = disk.open(Path("/f"), write=True, create=True)
        with pytest.raises(OSError, match=r"error|space"):
            file.write(b"x", 0)
        assert file.write(b"x", 0) == 1
        assert disk.calls == 3
