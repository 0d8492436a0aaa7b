"""A disk in memory that fails at a chosen call, and loses power.

What a power cut leaves of a real disk is modelled strictly: bytes are safe once their file was synced, names once their
directory was. Of everything since, any set of 512-byte sectors may have arrived, in any order, and any first part of
the changes to names.

    disk = FaultDisk(fail_at=17, fault=Fault.CRASH)
    try:
        work(disk)
    except Crash:
        for survivor in disk.survivors(random.Random(1), 100):
            check(survivor)
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

SECTOR_BYTES: Final = 512
_ALL_SUBSETS_MAX: Final = 10


class Crash(BaseException):
    """The power is gone. Not an `Exception`, so that nothing in between handles it."""


class Fault(Enum):
    CRASH = auto()
    """Power is lost during the call."""
    ERROR = auto()
    """The call fails with EIO; later calls work."""
    FULL = auto()
    """The call fails with ENOSPC; later calls work."""
    SHORT = auto()
    """A write takes only half; the rest of it fails with EIO."""


@dataclass
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    dirty: set[int] = field(default_factory=set)
    resized: bool = False

    def settle(self) -> None:
        self.safe = bytes(self.data)
        self.dirty.clear()
        self.resized = False


class FaultDisk:
    """Counts calls that change anything; `fail_at` is the number of the one that fails, from 0."""

    def __init__(self, *, fail_at: int | None = None, fault: Fault = Fault.CRASH, free_bytes: int = 1 << 40) -> None:
        self.calls = 0
        self.fail_at = fail_at
        self.fault = fault
        self.free = free_bytes
        self.unreadable: set[tuple[str, int]] = set()
        """(path, sector) pairs that fail to read with EIO."""
        self._inodes: dict[str, _Inode] = {}
        self._safe_names: dict[str, _Inode] = {}
        self._changes: list[Callable[[dict[str, _Inode]], None]] = []
        self._directories: set[str] = {"/"}
        self.dead = False

    # what the power cut leaves

    def dirty_sectors(self) -> list[tuple[_Inode, int]]:
        inodes = {id(inode): inode for inode in (*self._inodes.values(), *self._safe_names.values())}
        return [(inode, sector) for inode in inodes.values() for sector in sorted(inode.dirty)]

    def survivors(self, chance: random.Random, count: int) -> Iterator[FaultDisk]:
        """Disks as they may be after the power is back: all subsets of few sectors, else `count` random ones."""
        dirty = self.dirty_sectors()
        if len(dirty) <= _ALL_SUBSETS_MAX and 2 ** len(dirty) <= count:
            choices: Iterator[tuple[bool, ...]] = itertools.product((False, True), repeat=len(dirty))
        else:
            choices = (self._choice(chance, len(dirty), number) for number in range(count))
        for kept in choices:
            sectors = {(id(inode), sector) for (inode, sector), keep in zip(dirty, kept, strict=True) if keep}
            yield self._survivor(sectors, chance.randint(0, len(self._changes)))

    @staticmethod
    def _choice(chance: random.Random, size: int, number: int) -> tuple[bool, ...]:
        """Nothing, everything, a first part, or each sector for itself."""
        if number < 2:
            return (bool(number),) * size
        if number % 3 == 0:
            cut = chance.randint(0, size)
            return tuple(place < cut for place in range(size))
        odds = chance.random()
        return tuple(chance.random() < odds for _ in range(size))

    def _survivor(self, sectors: set[tuple[int, int]], changes: int) -> FaultDisk:
        disk = FaultDisk(free_bytes=self.free)
        names = dict(self._safe_names)
        for change in self._changes[:changes]:
            change(names)
        for path, inode in names.items():
            survivor = _Inode(data=_surviving_bytes(inode, sectors))
            survivor.settle()
            disk._inodes[path] = survivor
            disk._safe_names[path] = survivor
        disk._directories = set(self._directories)
        return disk

    def copy(self) -> FaultDisk:
        """The same files, all of them safe, with no fault to come."""
        everything = {(id(inode), sector) for inode, sector in self.dirty_sectors()}
        return self._survivor(everything, len(self._changes))

    # direct access for tests

    def paths(self) -> list[Path]:
        return [Path(path) for path in sorted(self._inodes)]

    def content(self, path: Path) -> bytearray:
        """The bytes themselves: change them to damage a file."""
        return self._inodes[str(path)].data

    # the Disk protocol

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> FaultFile:
        name = str(path)
        if name not in self._inodes:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", name)
            self.change()
            inode = _Inode()
            self._rename_now(lambda names: names.__setitem__(name, inode))
        return FaultFile(self, name, self._inodes[name], writable=write)

    def names(self, path: Path) -> list[str]:
        prefix = f"{path}/"
        below = {
            name[len(prefix) :].split("/")[0] for name in (*self._inodes, *self._directories) if name.startswith(prefix)
        }
        return sorted(below)

    def exists(self, path: Path) -> bool:
        return str(path) in self._inodes or str(path) in self._directories

    def make_directory(self, path: Path) -> None:
        self._directories.update(str(each) for each in (path, *path.parents))

    def rename(self, source: Path, target: Path) -> None:
        self.change()
        if str(source) not in self._inodes:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        inode = self._inodes[str(source)]

        def change(names: dict[str, _Inode]) -> None:
            names.pop(str(source), None)
            names[str(target)] = inode

        self._rename_now(change)

    def remove(self, path: Path) -> None:
        if str(path) in self._inodes:
            self.change()
            self._rename_now(lambda names: names.pop(str(path), None))

    def remove_tree(self, path: Path) -> None:
        for each in self.paths():
            if path in each.parents:
                self.remove(each)
        self._directories = {name for name in self._directories if name != str(path) and path not in Path(name).parents}

    def sync_directory(self, path: Path) -> None:
        self.change()
        if str(path) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        self._safe_names = dict(self._inodes)
        self._changes.clear()

    def free_bytes(self, _path: Path) -> int:
        return self.free

    # faults

    def _rename_now(self, change: Callable[[dict[str, _Inode]], Any]) -> None:
        change(self._inodes)
        self._changes.append(change)

    def change(self) -> Fault | None:
        """Count a call; raise if it is the one that fails, or tell how to fail."""
        if self.dead:
            raise Crash
        call, self.calls = self.calls, self.calls + 1
        if call != self.fail_at:
            return None
        if self.fault is Fault.CRASH:
            self.dead = True
            raise Crash
        if self.fault is Fault.FULL:
            raise OSError(errno.ENOSPC, "no space left on device")
        if self.fault is Fault.ERROR:
            raise OSError(errno.EIO, "input/output error")
        return self.fault


class FaultFile:
    def __init__(self, disk: FaultDisk, name: str, inode: _Inode, *, writable: bool) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode
        self._writable = writable

    def read_into(self, buffer: Any, position: int) -> int:
        view = memoryview(buffer).cast("B")
        data = self._inode.data[position : position + len(view)]
        sectors = range(position // SECTOR_BYTES, (position + len(data) - 1) // SECTOR_BYTES + 1)
        if any((self._name, sector) in self._disk.unreadable for sector in sectors):
            raise OSError(errno.EIO, "input/output error")
        view[: len(data)] = data
        return len(data)

    def write(self, data: Any, position: int) -> int:
        self._check_writable()
        payload = bytes(data)
        alive = not self._disk.dead
        try:
            fault = self._disk.change()
        except Crash:
            if alive:  # some of it may have arrived; nothing does once the power is gone
                self._apply(payload, position)
            raise
        if fault is Fault.SHORT:
            payload = payload[: len(payload) // 2]
            self._disk.fail_at, self._disk.fault = self._disk.calls, Fault.ERROR
        self._apply(payload, position)
        return len(payload)

    def _apply(self, payload: bytes, position: int) -> None:
        data = self._inode.data
        if len(data) < position + len(payload):
            data.extend(bytes(position + len(payload) - len(data)))
            self._inode.resized = True
        data[position : position + len(payload)] = payload
        first, last = position // SECTOR_BYTES, (position + len(payload) - 1) // SECTOR_BYTES
        self._inode.dirty.update(range(first, last + 1))

    def sync(self) -> None:
        self._disk.change()
        self._inode.settle()

    def preallocate(self, size: int) -> None:
        self._check_writable()
        self._disk.change()
        if size > len(self._inode.data):
            self._inode.data.extend(bytes(size - len(self._inode.data)))
            self._inode.resized = True

    def truncate(self, size: int) -> None:
        self._check_writable()
        self._disk.change()
        if size < len(self._inode.data):
            del self._inode.data[size:]
        else:
            self._inode.data.extend(bytes(size - len(self._inode.data)))
        self._inode.resized = True

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None:
        return None

    def _check_writable(self) -> None:
        if not self._writable:
            raise OSError(errno.EBADF, "not open for writing")


def _surviving_bytes(inode: _Inode, sectors: set[tuple[int, int]]) -> bytearray:
    """The safe bytes, overlaid with the sectors that made it."""
    data = bytearray(inode.safe)
    kept = [sector for sector in inode.dirty if (id(inode), sector) in sectors]
    if inode.resized and (kept or not inode.dirty):
        size = len(inode.data)
        data = data[:size] + bytes(max(0, size - len(data)))
    for sector in kept:
        piece = inode.data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]
        stop = min(len(data), sector * SECTOR_BYTES + len(piece))
        data[sector * SECTOR_BYTES : stop] = piece[: max(0, stop - sector * SECTOR_BYTES)]
    return data
