"""Remote files: read in ranges, ahead of the reader, and cached for a while. `RemoteDisk` serves all remote places.

A place has three methods (`RemoteFiles`). A listing of a directory is valid until its next listing; bytes are cached
for that time only, except for segments that another one follows, whose bytes do not change. A reader that follows a log
lists its directory first, and so never sees old bytes as new.
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
"""Smallest number of bytes that is fetched. It is small because a search looks at single records all over a log."""
AHEAD_BYTES_MAX: Final = 8 * MIB
"""Largest number of bytes that is fetched, for sequential reads. With it the cost of a request no longer matters."""
KEPT_BYTES_MAX: Final = 48 * MIB
"""Bytes that one disk keeps in its cache: enough for the parts of some segments and indexes that are being read."""


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """A file in a listing: its size in bytes, and a `tag` that changes whenever the file's bytes change."""

    size: int
    tag: str


@dataclass(frozen=True, slots=True)
class Listing:
    files: Mapping[str, RemoteEntry]
    folders: tuple[str, ...]


class RemoteFiles(Protocol):
    """The files of a remote place. Paths are relative, with slashes. Raises `FileNotFoundError` for a missing file."""

    name: str

    def list(self, path: str) -> Listing:
        """Return the files and folders directly in a directory; an empty listing if it does not exist."""
        ...

    def find(self, path: str) -> RemoteEntry: ...

    def fetch(self, path: str, start: int, stop: int) -> bytes:
        """Return the bytes of a file from `start` up to `stop`. Only at the end of the file they are fewer, or none."""
        ...


class RemoteDisk:
    """A disk that reads remote files through a cache. Methods that would write raise `InvalidRequest`. Not
    thread-safe."""

    def __init__(self, source: RemoteFiles) -> None:
        self._source = source
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
        """Return bytes of a file from `start` on, at least one and at most up to `stop`. Return no bytes if the file
        ends at `start` or before. Raises `FileNotFoundError` if the file is gone."""
        cached = self._cache.get(path, start, stop)
        if cached is not None:
            return cached
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
        entries = {path / name: entry for name, entry in listing.files.items()}
        sealed = _sealed_files(entries)
        for earlier in self._listed.get(path, set()):
            if earlier not in sealed or entries[earlier] != self._found.get(earlier):
                self._cache.drop(earlier)
            self._found.pop(earlier, None)
        self._found |= entries
        self._listed[path] = set(entries)
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


def _sealed_files(entries: Mapping[Path, RemoteEntry]) -> set[Path]:
    """Return the segments of a log except the last, and their indexes. These files no longer change."""
    segments = sorted(path for path in entries if base_of(path.name) is not None)
    stems = {path.stem for path in segments[:-1]}
    return {path for path in entries if path.stem in stems}


class RemoteFile:
    """A file of a remote disk, for reading. Its size is the one that was known when it was opened."""

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
                break  # the file has become shorter since
            view[done : done + len(data)] = data
            done += len(data)
        return done

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        """Do nothing: no resource is held."""

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
    """A cache of the ranges of files that were fetched last, at most `bytes_max` bytes. It also decides how much of a
    file is fetched at a time."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._pieces: OrderedDict[tuple[Path, int], bytes] = OrderedDict()
        self._starts: dict[Path, list[int]] = {}
        self._windows: dict[Path, tuple[int, int]] = {}

    def get(self, path: Path, start: int, stop: int) -> memoryview | None:
        """Return the cached bytes from `start` on, up to `stop` at most; None if the byte at `start` is not cached."""
        for begin in self._starts.get(path, ()):
            piece = self._pieces[path, begin]
            if begin <= start < begin + len(piece):
                self._pieces.move_to_end((path, begin))
                return memoryview(piece)[start - begin : stop - begin]
        return None

    def window(self, path: Path, start: int, wanted: int) -> int:
        """Return how many bytes to fetch from `start` on. If the read continues where the last fetch ended, that is
        twice as many as last time, otherwise `FIRST_BYTES`; at least `wanted` bytes, and never more than
        `AHEAD_BYTES_MAX`."""
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
