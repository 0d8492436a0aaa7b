"""Memory: freed buffers are reused, idle memory goes back to the system, and the collector skips what stays."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from typing import Final, Protocol

from penstock.core.limits import MIB

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_RETAINED_BYTES: Final = 64 * MIB
"""The free memory that stays with the process: some commit groups, reads and blocks."""
_CHECK_SECONDS: Final = 10.0


def keep_freed_buffers() -> None:
    """Have malloc keep freed buffers. By default glibc returns buffers of this size to the system, and every block that
    arrives, is written or is read pays for fresh pages, which costs several times the work done with it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _RETAINED_BYTES // 2)
    mallopt(_M_TRIM_THRESHOLD, _RETAINED_BYTES)


class Heap(Protocol):
    """The interface to the C library's heap."""

    def free_bytes(self) -> int: ...

    def trim(self) -> None: ...


class _MallInfo(ctypes.Structure):
    """The struct of `mallinfo2` in `malloc.h`: of its ten numbers only the ninth is used here."""

    _fields_ = (("_before", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("_keepcost", ctypes.c_size_t))


class Glibc:
    """The heap of this process. Raises `AttributeError` where the C library is another, or an old one."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._mallinfo, self._trim = library.mallinfo2, library.malloc_trim
        self._mallinfo.restype = _MallInfo

    def free_bytes(self) -> int:
        return int(self._mallinfo().fordblks)

    def trim(self) -> None:
        self._trim(ctypes.c_size_t(0))


class HeapTrimmer:
    """Returns memory to the system that stays free for long: after a flood the heap shrinks again."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._free_before = 0
        self._returned_bytes = 0
        """The part of the free memory that the system has already."""

    def trim_if_idle(self) -> bool:
        """Return memory to the system that was free at the last call and still is. Returns whether any was; call it
        regularly."""
        free = self._heap.free_bytes()
        self._returned_bytes = min(self._returned_bytes, free)
        idle, self._free_before = min(self._free_before, free), free
        if idle - self._returned_bytes <= 2 * _RETAINED_BYTES:
            return False
        self._heap.trim()
        self._returned_bytes = free
        return True


async def trim_regularly() -> None:
    """Trim the heap regularly, in a thread, until cancelled."""
    try:
        trimmer = HeapTrimmer(Glibc())
    except (AttributeError, OSError):  # another C library
        return
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        await asyncio.to_thread(trimmer.trim_if_idle)


def freeze_startup_objects() -> None:
    """Have the garbage collector skip the objects of the start, which live as long as the process: scanning them takes
    a tenth of a second without any answer, and would be repeated."""
    gc.freeze()
