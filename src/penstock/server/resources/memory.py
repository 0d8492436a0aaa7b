"""Memory of the process: freed buffers are used again, unused memory goes back to the system, and the garbage collector
skips the objects that stay."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from typing import Final, Protocol

from penstock.core.limits import MIB

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_RETAINED_BYTES: Final = 64 * MIB
"""The free memory in bytes that the process keeps: enough for some commit groups, reads and blocks."""
_CHECK_SECONDS: Final = 10.0


def keep_freed_buffers() -> None:
    """Have malloc keep freed buffers for reuse. By default glibc returns buffers of this size to the system. Every
    block that arrives, is written or is read would then need new pages, which cost several times as much as the work on
    the block."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _RETAINED_BYTES // 2)
    mallopt(_M_TRIM_THRESHOLD, _RETAINED_BYTES)


class Heap(Protocol):
    """The two operations on the C library's heap that are needed: how much of it is free, and returning that to the
    system."""

    def free_bytes(self) -> int: ...

    def trim(self) -> None: ...


class _MallInfo(ctypes.Structure):
    """The struct that `mallinfo2` in `malloc.h` returns. Of its ten numbers only the ninth is used."""

    _fields_ = (("_before", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("_keepcost", ctypes.c_size_t))


class Glibc:
    """The heap of this process, managed by glibc. Raises `AttributeError` if the C library is another one, or too
    old."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._mallinfo, self._trim = library.mallinfo2, library.malloc_trim
        self._mallinfo.restype = _MallInfo

    def free_bytes(self) -> int:
        return int(self._mallinfo().fordblks)

    def trim(self) -> None:
        self._trim(ctypes.c_size_t(0))


class HeapTrimmer:
    """Returns memory to the system that has been free for long, so that the process shrinks again after much
    traffic."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._free_before = 0
        self._returned_bytes = 0
        """The bytes of the free memory that were returned to the system already."""

    def trim_if_idle(self) -> bool:
        """Return free memory to the system if enough of it was free at the last call and still is. Returns True if that
        was done. Call it at regular intervals."""
        free = self._heap.free_bytes()
        self._returned_bytes = min(self._returned_bytes, free)
        idle, self._free_before = min(self._free_before, free), free
        if idle - self._returned_bytes <= 2 * _RETAINED_BYTES:
            return False
        self._heap.trim()
        self._returned_bytes = free
        return True


async def trim_regularly() -> None:
    """Return unused memory to the system at regular intervals, in a thread, until cancelled. Returns at once if the C
    library is not glibc."""
    try:
        trimmer = HeapTrimmer(Glibc())
    except (AttributeError, OSError):  # another C library
        return
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        await asyncio.to_thread(trimmer.trim_if_idle)


def freeze_startup_objects() -> None:
    """Have the garbage collector skip the objects that exist now, at the end of the start: they live as long as the
    process. Scanning them would stop the event loop for a tenth of a second, again and again."""
    gc.freeze()
