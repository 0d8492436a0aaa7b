"""Memory: buffers that come and go by the thousand a second are to be the same ones, and what stays is left alone."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from typing import Final, Protocol

from penstock.core.limits import MIB

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_RETAINED_BYTES: Final = 64 * MIB
"""Free and not given back to the system: some groups, reads and blocks."""
_CHECK_SECONDS: Final = 10.0


def keep_freed_buffers() -> None:
    """Have malloc keep what is freed. By itself glibc gives buffers of this size back to the system, and every block
    that arrives, is written or is read pays for fresh pages, which costs several times what is done with it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _RETAINED_BYTES // 2)
    mallopt(_M_TRIM_THRESHOLD, _RETAINED_BYTES)


class Heap(Protocol):
    """What the C library can say of its own memory, and do about it."""

    def free_bytes(self) -> int: ...

    def trim(self) -> None: ...


class _MallInfo(ctypes.Structure):
    """As `malloc.h` has it: of ten numbers, the one that is wanted is the ninth."""

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
    """Memory that is free, is not used again, and is given back: a flood is over some time."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._free_before = 0
        self._returned_bytes = 0
        """Of what is free, that the system has already."""

    def trim_if_idle(self) -> bool:
        """To be called now and then. What was free the last time and still is goes; whether anything did."""
        free = self._heap.free_bytes()
        self._returned_bytes = min(self._returned_bytes, free)
        idle, self._free_before = min(self._free_before, free), free
        if idle - self._returned_bytes <= 2 * _RETAINED_BYTES:
            return False
        self._heap.trim()
        self._returned_bytes = free
        return True


async def trim_regularly() -> None:
    """Look for a surplus until cancelled, beside the event loop."""
    try:
        trimmer = HeapTrimmer(Glibc())
    except (AttributeError, OSError):  # another C library
        return
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        await asyncio.to_thread(trimmer.trim_if_idle)


def freeze_startup_objects() -> None:
    """Have the garbage collector pass over what the start has made, which stays as long as the process does: going
    through all of it takes a tenth of a second, in which nobody is answered, and would be done again and again."""
    gc.freeze()
