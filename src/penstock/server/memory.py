"""Memory: buffers that come and go by the thousand a second are to be the same ones, and what stays is left alone."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

from penstock.core.limits import MIB

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 64 * MIB
"""Free and not given back to the system: some groups, reads and blocks."""


def keep_freed_buffers() -> None:
    """Have malloc keep what is freed. By itself glibc gives buffers of this size back to the system, and every block
    that arrives, is written or is read pays for fresh pages, which costs several times what is done with it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def keep_what_is_there() -> None:
    """Have the garbage collector pass over what the start has made, which stays as long as the process does: going
    through all of it takes a tenth of a second, in which nobody is answered, and would be done again and again."""
    gc.freeze()
