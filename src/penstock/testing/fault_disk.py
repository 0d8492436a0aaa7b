"""A disk in memory that fails at a chosen call, and can lose power.

What a power cut leaves of a real disk is modelled strictly: bytes are safe once their file was synced, names once their
directory was. Of everything since, each 512-byte sector may have arrived or not, as it was after any one of the writes
to it; any first part of the changes to a file's size; and any first part of the changes to names. What a failed sync
was to write is lost for good, although it can still be read: the kernel keeps the pages and calls them clean.

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
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, NamedTuple

SECTOR_BYTES: Final = 512


class Crash(BaseException):
    """The loss of power. It is no `Exception`, so that no handler on the way catches it."""


class Fault(Enum):
    """The way a call fails."""

    CRASH = auto()
    """Power is lost during the call."""
    ERROR = auto()
    """The call fails with EIO; later calls work."""
    FULL = auto()
    """The call fails with ENOSPC; later calls work."""
    SHORT = auto()
    """The call writes half of its bytes; the next call that changes anything fails with EIO."""


Names = dict[str, "_Inode"]


@dataclass
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    """Bytes that a read returns."""
    safe: bytearray = field(default_factory=bytearray)
    """Bytes that survive a power cut for certain."""
    dirty: dict[int, list[bytes]] = field(default_factory=dict)
    """By sector number: what the sector held after each write since the last sync."""
    sizes: list[int] = field(default_factory=list)
    """Sizes set since the last sync by `truncate` and `preallocate`, in order."""

    def resize(self, size: int) -> None:
        _resize(self.data, size)
        self.sizes.append(size)
        for sector in [sector for sector in self.dirty if sector * SECTOR_BYTES >= size]:
            del self.dirty[sector]

    def write(self, payload: bytes, position: int) -> None:
        _resize(self.data, max(len(self.data), position + len(payload)))
        self.data[position : position + len(payload)] = payload
        for sector in range(position // SECTOR_BYTES, -(-(position + len(payload)) // SECTOR_BYTES)):
            piece = bytes(self.data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
            self.dirty.setdefault(sector, []).append(piece)

    def surviving(self, versions: dict[int, int], sizes: int) -> bytearray:
        """Return the content that is left after a power cut.

        It is the safe bytes after the first `sizes` changes of size, with the sectors of `versions` replaced. A version
        is the number of a write to that sector since the last sync, from 1.
        """
        data = bytearray(self.safe)
        for size in self.sizes[:sizes]:
            _resize(data, size)
        for sector, version in versions.items():
            start = sector * SECTOR_BYTES
            piece = self.dirty[sector][version - 1]
            _resize(data, max(len(data), start + len(piece)))
            data[start : start + len(piece)] = piece
        return data

    def settle(self) -> None:
        """Make everything written so far safe, as a sync does."""
        newest = {sector: len(versions) for sector, versions in self.dirty.items()}
        self.safe = self.surviving(newest, len(self.sizes))
        self.dirty.clear()
        self.sizes.clear()


class _Change(NamedTuple):
    """A change to the name of one file."""

    directory: Path
    inode: _Inode
    apply: Callable[[Names], Any]


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


class FaultDisk:
    """A disk in memory that counts the calls that change anything. The call with the number `fail_at`, from 0, fails
    with `fault`."""

    def __init__(self, *, fail_at: int | None = None, fault: Fault = Fault.CRASH, free_bytes: int = 1 << 40) -> None:
        self.calls = 0
        self.fail_at = fail_at
        self.fault = fault
        self.free = free_bytes
        self.unreadable: set[tuple[str, int]] = set()
        """Bad sectors, as (path, sector number): reading one fails with EIO, and so does writing a part of one. A write
        of the whole sector heals it."""
        self._inodes: Names = {}
        self._safe_names: Names = {}
        self._changes: list[_Change] = []
        """Changes of names that are not durable yet: their directory was not synced since."""
        self._directories: set[str] = {"/"}
        self.dead = False

    # survivors of a crash

    def restart(self) -> None:
        """Continue as after a crash of the process alone: all writes can be read, and nothing more of them is safe. No
        further call fails."""
        self.dead, self.fail_at = False, None

    def dirty_sectors(self) -> list[tuple[_Inode, int]]:
        """Return the sectors written since the last sync of their files."""
        return [(inode, sector) for inode in self._all_inodes() for sector in sorted(inode.dirty)]

    def _all_inodes(self) -> list[_Inode]:
        changed = [change.inode for change in self._changes]
        everyone = (*self._inodes.values(), *self._safe_names.values(), *changed)
        return list({id(inode): inode for inode in everyone}.values())

    def survivors(self, chance: random.Random, count: int) -> Iterator[FaultDisk]:
        """Yield disks as they may be after a power cut: all possible ones if they are at most `count`, otherwise
        `count` of them.

        If all possible sets of sectors are at most `count`, though, yields one disk for each set, with the other
        choices made by chance.
        """
        sectors = [1 + len(inode.dirty[sector]) for inode, sector in self.dirty_sectors()]
        others = [1 + len(inode.sizes) for inode in self._all_inodes()] + [1 + len(self._changes)]
        choices: Iterable[tuple[int, ...]]
        if math.prod(sectors) * math.prod(others) <= count:
            choices = itertools.product(*map(range, (*sectors, *others)))
        elif math.prod(sectors) <= count:
            choices = ((*kept, *_any(chance, others)) for kept in itertools.product(*map(range, sectors)))
        else:
            choices = (
                (*_some(chance, sectors, number), *_some(chance, others, number, whole=True)) for number in range(count)
            )
        return map(self._survivor, choices)

    def _survivor(self, choice: tuple[int, ...]) -> FaultDisk:
        """Return the disk that a choice describes: a version of each dirty sector (0: the safe one), then for each file
        how many changes of size survive, then how many changes of names."""
        dirty, inodes = self.dirty_sectors(), self._all_inodes()
        kept: dict[int, dict[int, int]] = {}
        for (inode, sector), version in zip(dirty, choice, strict=False):
            if version:
                kept.setdefault(id(inode), {})[sector] = version
        sizes = {id(inode): size for inode, size in zip(inodes, choice[len(dirty) :], strict=False)}
        disk = FaultDisk(free_bytes=self.free)
        names = dict(self._safe_names)
        for change in self._changes[: choice[-1]]:
            change.apply(names)
        for path, inode in names.items():
            disk._put(path, inode.surviving(kept.get(id(inode), {}), sizes[id(inode)]))
        disk._directories = set(self._directories)
        return disk

    def copy(self) -> FaultDisk:
        """Return an independent disk with the same readable files, all of them safe. No call of it fails, except at
        unreadable sectors."""
        disk = FaultDisk(free_bytes=self.free)
        for path, inode in self._inodes.items():
            disk._put(path, bytearray(inode.data))
        disk._directories = set(self._directories)
        disk.unreadable = set(self.unreadable)
        return disk

    def _put(self, path: str, data: bytearray) -> None:
        self._inodes[path] = self._safe_names[path] = _Inode(data=data, safe=bytearray(data))

    # direct access for tests

    def paths(self) -> list[Path]:
        return [Path(path) for path in sorted(self._inodes)]

    def content(self, path: Path) -> bytearray:
        """Return the bytes of a file as they are stored, not a copy: a test may change them to damage the file."""
        return self._inodes[str(path)].data

    # the Disk protocol

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> FaultFile:
        name = str(path)
        if name not in self._inodes:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", name)
            self.change()
            inode = _Inode()
            self._change_names(path.parent, inode, lambda names: names.__setitem__(name, inode))
        return FaultFile(self, name, self._inodes[name], writable=write)

    def names(self, path: Path) -> list[str]:
        prefix = f"{path}/"
        below = {
            name[len(prefix) :].split("/")[0] for name in (*self._inodes, *self._directories) if name.startswith(prefix)
        }
        return sorted(below)

    def folders(self, path: Path) -> list[str]:
        return [name for name in self.names(path) if str(path / name) not in self._inodes]

    def exists(self, path: Path) -> bool:
        return str(path) in self._inodes or str(path) in self._directories

    def make_directory(self, path: Path) -> None:
        if str(path) not in self._directories:
            self.change()
            self._directories.update(str(folder) for folder in (path, *path.parents))

    def rename(self, source: Path, target: Path) -> None:
        self.change()
        if str(source) not in self._inodes:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        inode = self._inodes[str(source)]

        def change(names: Names) -> None:
            names.pop(str(source), None)
            names[str(target)] = inode

        self._change_names(target.parent, inode, change)

    def remove(self, path: Path) -> None:
        if str(path) in self._inodes:
            self.change()
            inode = self._inodes[str(path)]
            self._change_names(path.parent, inode, lambda names: names.pop(str(path), None))

    def remove_tree(self, path: Path) -> None:
        for file in self.paths():
            if path in file.parents:
                self.remove(file)
        self._directories = {name for name in self._directories if name != str(path) and path not in Path(name).parents}

    def sync_directory(self, path: Path) -> None:
        self.change()
        if str(path) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        for change in self._changes:
            if change.directory == path:
                change.apply(self._safe_names)
        self._changes = [change for change in self._changes if change.directory != path]

    def free_bytes(self, _path: Path) -> int:
        return self.free

    # faults

    def _change_names(self, directory: Path, inode: _Inode, apply: Callable[[Names], Any]) -> None:
        apply(self._inodes)
        self._changes.append(_Change(directory, inode, apply))

    def change(self) -> Fault | None:
        """Count a call that changes something, and fail if its turn has come.

        Raises `Crash` or `OSError`; returns `Fault.SHORT` for the caller to carry out; returns None if the call
        succeeds.
        """
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
    """An open file of a `FaultDisk`."""

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
            if alive:  # a part of this write may have arrived; later ones do not
                self._inode.write(payload, position)
            raise
        self._overwrite_unreadable(position, position + len(payload))
        if fault is Fault.SHORT:
            payload = payload[: len(payload) // 2]
            self._disk.fail_at, self._disk.fault = self._disk.calls, Fault.ERROR
        self._inode.write(payload, position)
        return len(payload)

    def _overwrite_unreadable(self, start: int, stop: int) -> None:
        for sector in range(start // SECTOR_BYTES, -(-stop // SECTOR_BYTES)):
            if (self._name, sector) in self._disk.unreadable:
                if not start <= sector * SECTOR_BYTES <= stop - SECTOR_BYTES:
                    raise OSError(errno.EIO, "input/output error")
                self._disk.unreadable.remove((self._name, sector))

    def sync(self) -> None:
        try:
            self._disk.change()
        except OSError:
            self._inode.dirty.clear()
            raise
        self._inode.settle()

    def preallocate(self, size: int) -> None:
        self._check_writable()
        self._disk.change()
        if size > len(self._inode.data):
            self._inode.resize(size)

    def truncate(self, size: int) -> None:
        self._check_writable()
        self._disk.change()
        self._inode.resize(size)

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None:
        return None

    def _check_writable(self) -> None:
        if not self._writable:
            raise OSError(errno.EBADF, "not open for writing")


def _any(chance: random.Random, options: list[int]) -> tuple[int, ...]:
    return tuple(chance.randrange(versions) for versions in options)


def _some(chance: random.Random, options: list[int], number: int, *, whole: bool = False) -> tuple[int, ...]:
    """Return choice `number`: for each option a number below it.

    The first choice has the lowest for each option, the second the highest. Later ones are made by chance: the highest
    for a first part of the options, or a random number for some. With `whole`, each is a random number.
    """
    if number < 2:
        return tuple(number * (each - 1) for each in options)
    if whole:
        return _any(chance, options)
    if number % 3 == 0:
        cut = chance.randint(0, len(options))
        return tuple((each - 1) * (place < cut) for place, each in enumerate(options))
    odds = chance.random()
    return tuple(chance.randrange(1, each) if chance.random() < odds else 0 for each in options)
