"""The disk: the only file access of the project, and an argument of everything above it.

`Disk` and `File` are what storage needs of an operating system, no more. `OsDisk` is the real one; `FaultDisk` in
`penstock.testing` fails and crashes on demand. Nothing here retries or hides an error.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from penstock.core.errors import DiskFull, NotOwner, StorageFailed

_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)
"""Errors of file systems that cannot lock directories, network file systems most of all."""


class File(Protocol):
    """An open file. Positions are absolute; there is no file cursor."""

    def read_into(self, buffer: Any, position: int) -> int:
        """Fill `buffer` from `position` on. Return the number of bytes read, fewer only where the file ends."""
        ...

    def write(self, data: Any, position: int) -> int:
        """Write at `position`, and return the number of bytes written, which may be fewer. Not durable before
        `sync`."""
        ...

    def sync(self) -> None:
        """Make all writes durable. After an error their state is unknown: do not go on."""
        ...

    def preallocate(self, size: int) -> None:
        """Give the file `size` bytes of reserved, zero-filled space, so that writes into it cannot run out of disk."""
        ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """The file operations that storage needs."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File: ...

    def names(self, path: Path) -> list[str]:
        """Return the sorted names in a directory; none if it does not exist."""
        ...

    def folders(self, path: Path) -> list[str]:
        """Return the sorted names of the directories in a directory; none if it does not exist, or is a file."""
        ...

    def exists(self, path: Path) -> bool: ...

    def make_directory(self, path: Path) -> None:
        """Create a directory with its parents, readable by its owner alone; durable on return."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        ...

    def remove_tree(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None:
        """Make the creations, renames and removals in a directory durable."""
        ...

    def free_bytes(self, path: Path) -> int: ...


class OsFile:
    """An open file of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read_into(self, buffer: Any, position: int) -> int:
        view = memoryview(buffer)
        total = 0
        while total < len(view):
            count = os.preadv(self._descriptor, [view[total:]], position + total)
            if count == 0:
                break
            total += count
        return total

    def write(self, data: Any, position: int) -> int:
        return os.pwrite(self._descriptor, data, position)

    def sync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def preallocate(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, size)
        else:
            os.truncate(self._descriptor, max(size, self.size()))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def take(self) -> int:
        """Return the descriptor, which the caller closes from now on."""
        taken, self._descriptor = self._descriptor, -1
        return taken

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OsDisk:
    """The operating system's file system."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> OsFile:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return OsFile(os.open(path, flags, _FILE_MODE))

    def names(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - names are wanted, not paths
        except FileNotFoundError:
            return []

    def folders(self, path: Path) -> list[str]:
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def make_directory(self, path: Path) -> None:
        absent = list(takewhile(lambda folder: not folder.exists(), [path, *path.parents]))
        for missing in reversed(absent):
            missing.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
            self.sync_directory(missing.parent)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: Path) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize


@contextlib.contextmanager
def opened(disk: Disk, path: Path, *, write: bool = False, create: bool = False) -> Iterator[File]:
    file = disk.open(path, write=write, create=create)
    try:
        yield file
    finally:
        file.close()


def write_all(file: File, data: Any, position: int) -> None:
    """Write every byte at `position`, in several writes if needed. Raises `OSError` if a write takes nothing."""
    view = memoryview(data)
    while len(view):
        count = file.write(view, position)
        if count <= 0:
            raise OSError(errno.EIO, "the disk took no bytes of a write")
        view, position = view[count:], position + count


def read_all(file: File, position: int, size: int) -> bytearray:
    """Read up to `size` bytes, fewer only where the file ends."""
    buffer = bytearray(size)
    count = file.read_into(buffer, position)
    return buffer if count == size else buffer[:count]


def replace_file(disk: Disk, path: Path, data: bytes) -> None:
    """Replace a small file, or create it; durable on return. After a crash it has its old or its new content, never a
    mix."""
    temporary = path.with_name(path.name + ".tmp")
    with opened(disk, temporary, write=True, create=True) as file:
        file.truncate(0)
        write_all(file, data, 0)
        file.sync()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def storage_error(error: OSError, what: str) -> StorageFailed | DiskFull:
    """Return `DiskFull` if the error means a full disk, `StorageFailed` for any other; its sentence begins with
    `what`."""
    reason = error.strerror or str(error)
    if error.errno in FULL_ERRORS:
        return DiskFull(f"{what}: the disk is full ({reason}); make room and try again", errno=error.errno)
    return StorageFailed(f"{what}: {reason}", errno=error.errno)


class OwnerLock:
    """The lock of the one process that writes to a data directory. It ends with the process, even if that is killed.

    Two things are locked: the file `path`, which holds the owner's pid and tells other processes that there is an
    owner; and its directory, which cannot be replaced without all that is in it. The constructor raises `NotOwner` if
    another process holds either.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._descriptor = -1
        try:
            if not _locked(self._directory, may_lack=True):
                raise self._taken()
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
            self._take_file()
        except BaseException:
            self.release()
            raise

    def _take_file(self) -> None:
        if not _locked(self._descriptor):
            raise self._taken()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _taken(self) -> NotOwner:
        try:
            holder = self._path.read_bytes()[:32].decode(errors="replace").strip() or "unknown"
        except FileNotFoundError:
            holder = "unknown"
        return NotOwner(
            f"{self._path.parent} belongs to a running process (pid {holder}): stop it, or use another data directory",
            pid=holder,
        )

    def reclaim(self) -> bool:
        """Return False if the lock file is still in place. Put it back if it was removed or replaced, and return True.

        Raises `NotOwner` if another process has locked the new file: that process writes to this directory, too.
        """
        if self._is_there():
            return False
        again = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        os.close(self._descriptor)
        self._descriptor = again
        self._take_file()
        return True

    def _is_there(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        mine = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def release(self) -> None:
        for descriptor in (self._descriptor, self._directory):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._directory = -1


def _locked(descriptor: int, *, may_lack: bool = False) -> bool:
    """Lock a descriptor exclusively, without waiting. Return True on success, False if another process holds the lock.

    With `may_lack`, returns True also on a file system that cannot lock directories.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if not may_lack or error.errno not in _NO_LOCKS:
            raise
    return True


def is_owned(path: Path) -> bool:
    """Return True if a process holds the lock file at `path` now. Writes nothing; False if the file does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def directory_locked(folder: Path, *, alone: bool) -> Iterator[None]:
    """Lock a directory, exclusively (`alone`) or shared with other readers, until the `with` block or the process ends.

    Raises `NotOwner` at once, without waiting, if another process holds a lock that excludes this one.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotOwner(f"{folder} is in use by another process: wait until it has ended") from None
        yield
    finally:
        os.close(descriptor)
