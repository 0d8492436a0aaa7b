"""Files that are elsewhere: read in ranges, ahead of who reads, and kept for a while. One disk for all such places.

A place answers three questions (`RemoteFiles`). What a listing of a directory said holds until the next listing of it;
bytes are kept within that time alone, but for segments with another behind them, whose bytes do not change. Who follows
a log lists its directory first, and so never sees old bytes for new.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from penstock.core.errors import InvalidRequest
from penstock.storage.base.disk import File
from penstock.storage.log.segment import base_of

KIB: Final = 1 << 10
MIB: Final = 1 << 20

FIRST_BYTES: Final = 64 * KIB
"""What is fetched at least: a search looks at single records all over a log."""
AHEAD_BYTES_MAX: Final = 8 * MIB
"""What is fetched at most where somebody reads on and on: a request's cost no longer shows."""
KEPT_BYTES_MAX: Final = 48 * MIB
"""Of one disk: what is being read of some segments and their indexes."""


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """A file, as a listing has it. `tag` is another when its bytes are."""

    size: int
    tag: str


@dataclass(frozen=True, slots=True)
class Listing:
    files: Mapping[str, RemoteEntry]
    folders: tuple[str, ...]


class RemoteFiles(Protocol):
    """Where files are. Paths are relative, with slashes. Raises `FileNotFoundError` for a file that is not there."""

    name: str

    def list(self, path: str) -> Listing:
        """Empty where there is nothing."""
        ...

    def find(self, path: str) -> RemoteEntry: ...

    def fetch(self, path: str, start: int, stop: int) -> bytes:
        """These bytes; fewer only where the file ends."""
        ...


class RemoteDisk:
    """The read side of a disk. Not for several threads at once."""

    def __init__(self, place: RemoteFiles) -> None:
        self._source = place
        self._found: dict[Path, RemoteEntry] = {}
        self._listed: dict[Path, set[Path]] = {}
        self._cache = RangeCache(KEPT_BYTES_MAX)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if write or create:
            self._refuse()
        entry = self._found.get(path)
        if entry is None:
            self._cache.drop(path)
            entry = self._source.find(str(path))
        return RemoteFile(self, path, entry.size)

    def names(self, path: Path) -> list[str]:
        listing = self._list(path)
        return sorted({*listing.files, *listing.folders})

    def folders(self, path: Path) -> list[str]:
        return sorted(self._list(path).folders)

    def exists(self, path: Path) -> bool:
        try:
            self._source.find(str(path))
        except FileNotFoundError:
            return bool(self.names(path))
        return True

    def read(self, path: Path, start: int, stop: int) -> bytes | memoryview:
        """Bytes of a file that has some at `start`, from there on and none past `stop`; at least one, unless it has
        become shorter."""
        kept = self._cache.get(path, start, stop)
        if kept is not None:
            return kept
        size = self._cache.window(path, start, stop - start)
        try:
            data = self._source.fetch(str(path), start, start + size)
        except FileNotFoundError:
            self._found.pop(path, None)
            raise
        self._cache.put(path, start, data)
        return memoryview(data)[: stop - start]

    def _list(self, path: Path) -> Listing:
        listing = self._source.list("" if path == Path() else str(path))
        found = {path / name: entry for name, entry in listing.files.items()}
        steady = _sealed_files(found)
        for known in self._listed.get(path, set()):
            if known not in steady or found[known] != self._found.get(known):
                self._cache.drop(known)
            self._found.pop(known, None)
        self._found |= found
        self._listed[path] = set(found)
        return listing

    def _refuse(self) -> NoReturn:
        raise InvalidRequest(f"{self._source.name} is only read here")

    def make_directory(self, path: Path) -> None:  # noqa: ARG002
        self._refuse()

    def rename(self, source: Path, target: Path) -> None:  # noqa: ARG002
        self._refuse()

    def remove(self, path: Path) -> None:  # noqa: ARG002
        self._refuse()

    def remove_tree(self, path: Path) -> None:  # noqa: ARG002
        self._refuse()

    def sync_directory(self, path: Path) -> None:  # noqa: ARG002
        self._refuse()

    def free_bytes(self, path: Path) -> int:  # noqa: ARG002
        self._refuse()


def _sealed_files(found: Mapping[Path, RemoteEntry]) -> set[Path]:
    """The segments that have another behind them, and their indexes."""
    segments = sorted(path for path in found if base_of(path.name) is not None)
    stems = {path.stem for path in segments[:-1]}
    return {path for path in found if path.stem in stems}


class RemoteFile:
    """One file of a remote disk; its size is what the last listing said."""

    def __init__(self, disk: RemoteDisk, path: Path, size: int) -> None:
        self._disk = disk
        self._path = path
        self._size = size

    def read_into(self, buffer: Any, position: int) -> int:
        view = memoryview(buffer).cast("B")
        view = view[: max(0, self._size - position)]
        done = 0
        while done < len(view):
            data = self._disk.read(self._path, position + done, position + len(view))
            if not len(data):
                break  # it has become shorter since
            view[done : done + len(data)] = data
            done += len(data)
        return done

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        """Nothing is held."""

    def write(self, data: Any, position: int) -> int:  # noqa: ARG002
        self._refuse()

    def sync(self) -> None:
        self._refuse()

    def preallocate(self, size: int) -> None:  # noqa: ARG002
        self._refuse()

    def truncate(self, size: int) -> None:  # noqa: ARG002
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidRequest(f"{self._path} is only read here")


class RangeCache:
    """Pieces of files that were fetched lately, and how far ahead each file is being read."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._pieces: OrderedDict[tuple[Path, int], bytes] = OrderedDict()
        self._starts: dict[Path, list[int]] = {}
        self._windows: dict[Path, tuple[int, int]] = {}

    def get(self, path: Path, start: int, stop: int) -> memoryview | None:
        """What is kept from `start` on, up to `stop` at most; None if the byte at `start` is not."""
        for begin in self._starts.get(path, ()):
            piece = self._pieces[path, begin]
            if begin <= start < begin + len(piece):
                self._pieces.move_to_end((path, begin))
                return memoryview(piece)[start - begin : stop - begin]
        return None

    def window(self, path: Path, start: int, wanted: int) -> int:
        """How much to fetch: twice as much as before where a reader goes on, as little as makes sense where it does
        not."""
        expected, size = self._windows.get(path, (-1, FIRST_BYTES))
        size = min(2 * size, AHEAD_BYTES_MAX) if start == expected else FIRST_BYTES
        size = max(size, min(wanted, AHEAD_BYTES_MAX))
        self._windows[path] = (start + size, size)
        return size

    def put(self, path: Path, start: int, data: bytes) -> None:
        self._remove(path, start)
        if not data:
            return
        self._pieces[path, start] = data
        self._starts.setdefault(path, []).append(start)
        self._bytes += len(data)
        while self._bytes > self._bytes_max:
            self._remove(*next(iter(self._pieces)))

    def drop(self, path: Path) -> None:
        for start in list(self._starts.get(path, ())):
            self._remove(path, start)
        self._windows.pop(path, None)

    def _remove(self, path: Path, start: int) -> None:
        piece = self._pieces.pop((path, start), None)
        if piece is None:
            return
        self._bytes -= len(piece)
        self._starts[path].remove(start)
        if not self._starts[path]:
            del self._starts[path]
