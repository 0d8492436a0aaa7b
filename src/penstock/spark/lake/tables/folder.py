"""A folder of the warehouse, local or in an object store: all file access of the lake goes through here.

A small value that travels to executors; stores are opened where they are used. Paths are relative to the folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from penstock.core.errors import InvalidRequest

SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "file+store")
"""URL schemes of object stores; `file+store` is a directory that is used as object stores are, for tests."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder at `uri`: an absolute directory, or a URL in an object store."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, given: str, options: Mapping[str, str] | None = None) -> Folder:
        """Return the folder at a path or URL; `options` are those of the object store. No request is sent.

        Raises `InvalidRequest` for a URL with another scheme than `SCHEMES` and `file`, for options with a local
        folder, and for options that the object store's client does not know.
        """
        parts = urlsplit(given)
        chosen = tuple(sorted((options or {}).items()))
        if "://" not in given or parts.scheme == "file":
            path = unquote(parts.path) if parts.scheme == "file" else given
            if chosen:
                raise InvalidRequest(f"storage options are for object stores, and the warehouse {given!r} is local")
            return cls(str(Path(path).expanduser().absolute()))
        if parts.scheme not in SCHEMES:
            allowed = ", ".join(f"{scheme}://" for scheme in SCHEMES[:-1])
            raise InvalidRequest(f"warehouse {given!r}: expected a directory, or one of {allowed}", given=given)
        folder = cls(given.rstrip("/"), chosen)
        if chosen:
            _store(folder)  # refuse an unknown option now, before any work
        return folder

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("/")

    @property
    def local(self) -> Path:
        """The directory as a path. Use it only if `is_local`."""
        return Path(self.uri)

    @property
    def url(self) -> str:
        """The folder as a URL, as Iceberg keeps it: a local path is not encoded, since PyIceberg does not decode it."""
        return f"file://{self.uri}" if self.is_local else self.uri

    def child(self, *names: str) -> Folder:
        return Folder("/".join((self.uri, *names)), self.options)

    def full(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def make(self) -> None:
        """Create the directory and its parents, durable on return. In an object store, which has no directories, do
        nothing."""
        if self.is_local:
            _make_directory(self.local)

    def check(self) -> None:
        """Raise `InvalidRequest` for options that the object store's client refuses. No request is sent."""
        if not self.is_local:
            _store(self)

    # files

    def create(self, path: str) -> AbstractContextManager[Any]:
        """Return a context manager that creates a file and gives it for writing. When it is left without an error the
        file is durable; after an error the file is deleted."""
        return _local_output(self.local / path) if self.is_local else _store_output(self, path)

    def open(self, path: str) -> Any:
        """Open a file for reading and return it as a pyarrow file. Raises `FileNotFoundError`."""
        if self.is_local:
            return pa.memory_map(str(self.local / path))
        return pa.PythonFile(_StoreReader(self, path), mode="r")

    def read(self, path: str) -> bytes:
        """Return the bytes of a file. Raises `FileNotFoundError`."""
        if self.is_local:
            return (self.local / path).read_bytes()
        import obstore

        return bytes(obstore.get(_store(self), path).bytes())

    def put_new(self, path: str, data: bytes) -> bool:
        """Create a small file as a whole, durable on return, and return True. If the file exists, leave it unchanged
        and return False."""
        if self.is_local:
            return _put_new_local(self.local / path, data)
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(_store(self), path, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def list(self, below: str = "") -> Iterator[FileEntry]:
        """Yield every file in the folder, or in its subfolder `below`, at any depth and in no order."""
        yield from _list_local(self.local, below) if self.is_local else _list_store(self, below)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; a file that is already gone is no error."""
        if self.is_local:
            for path in paths:
                (self.local / path).unlink(missing_ok=True)
        elif paths:
            import obstore

            obstore.delete(_store(self), list(paths))

    def size(self, path: str) -> int | None:
        """Return the size of a file; None if it does not exist."""
        try:
            if self.is_local:
                return (self.local / path).stat().st_size
            import obstore

            return int(obstore.head(_store(self), path)["size"])
        except FileNotFoundError:
            return None

    def sync(self, paths: Sequence[str]) -> None:
        """Sync files that a library wrote, and the directories with their names, to disk. Object stores need no
        sync."""
        if not self.is_local:
            return
        for path in {*paths, *(str(Path(path).parent) for path in paths)}:
            with contextlib.suppress(FileNotFoundError):
                _sync(self.local / path)


@contextlib.contextmanager
def _local_output(path: Path) -> Iterator[Any]:
    _make_directory(path.parent)
    try:
        with pa.OSFile(str(path), "wb") as out:
            yield out
        _sync(path)
        _sync(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _store_output(folder: Folder, path: str) -> Iterator[Any]:
    try:
        with pa.PythonFile(_StoreWriter(folder, path), mode="w") as out:
            yield out
    except BaseException:
        with contextlib.suppress(Exception):  # then an orphan is left, which no table refers to
            folder.delete([path])
        raise


class _StoreReader(io.RawIOBase):
    """An object of a store as a Python file for reading."""

    def __init__(self, folder: Folder, path: str) -> None:
        import obstore

        self._file = obstore.open_reader(_store(folder), path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(self._file.read() if size < 0 else self._file.read(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())


class _StoreWriter(io.RawIOBase):
    """An object of a store as a Python file, written from beginning to end. The object exists once the file is
    closed."""

    def __init__(self, folder: Folder, path: str) -> None:
        import obstore

        self._file = obstore.open_writer(_store(folder), path)
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(bytes(data))
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_directory(directory: Path) -> None:
    """Create a directory and its parents, each synced to disk: otherwise a power cut could lose the folder of synced
    files."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        _sync(path.parent)


def write_atomically(path: Path, text: str) -> None:
    """Write a small local file, or replace it, as a whole or not at all. It is durable on return."""
    _make_directory(path.parent)
    temporary = path.parent / f".{path.name}.new"
    with temporary.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
    _sync(path.parent)


def _put_new_local(path: Path, data: bytes) -> bool:
    _make_directory(path.parent)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    try:
        with temporary.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.link(temporary, path)  # fails where a rename would replace
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)
    return True


def _list_local(root: Path, below: str) -> Iterator[FileEntry]:
    for directory, _, names in os.walk(root / below if below else root):
        for name in names:
            path = Path(directory, name)
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                yield FileEntry(str(path.relative_to(root)), status.st_size, int(status.st_mtime * 1000))


def _list_store(folder: Folder, below: str) -> Iterator[FileEntry]:
    import obstore

    for group in obstore.list(_store(folder), prefix=below or None):
        for meta in group:
            yield FileEntry(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


@lru_cache(maxsize=64)
def _store(folder: Folder) -> Any:
    from obstore.store import LocalStore

    from penstock.spark.files.objects import open_store

    if folder.uri.startswith("file+store://"):
        return LocalStore(folder.uri.removeprefix("file+store://"), mkdir=True)
    return open_store(folder.uri, dict(folder.options), retries=None)
