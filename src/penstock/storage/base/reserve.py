"""The disk reserve: a file that holds room, and is removed to make room for the catalog where the disk is full.

Another process may fill the disk to its last byte. Logs refuse appends long before that; but acks must go on, and they
are written to the catalog.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from penstock.core.limits import MIB, Limits
from penstock.storage.base.disk import FULL_ERRORS, Disk, opened

_LOG: Final = logging.getLogger(__name__)
RESERVE_BYTES_MAX: Final = 8 * MIB
"""The largest reserve: twice the size at which the catalog's write-ahead log starts over."""
_SHARE: Final = 4
"""Divisor: a quarter of the operator's `disk_reserve_bytes` is held as a file."""
_LOW_SHARE: Final = 8
"""Divisor: with less than an eighth of the file's size free beside it the next write may fail, and the file is
removed."""


class DiskReserve:
    """A file of zeros that can be removed to free its room. Only one thread may use it at a time; see
    `CatalogFile.writing`."""

    def __init__(self, disk: Disk, path: Path, limits: Limits) -> None:
        self._disk = disk
        self._path = path
        self._size = min(RESERVE_BYTES_MAX, limits.disk_reserve_bytes // _SHARE)
        """Size of the file in bytes; 0 if there is to be none."""
        self._keep_free = limits.disk_reserve_bytes
        self._held = disk.exists(path)

    @property
    def is_held(self) -> bool:
        return self._held

    def adjust(self) -> None:
        """Remove the file if the disk is almost full; create it again if there is room for it beside
        `disk_reserve_bytes`.

        Call it before each write to the catalog. Raises nothing: errors of the disk are logged.
        """
        try:
            free = self._disk.free_bytes(self._path.parent)
            if self._held and free < self._size // _LOW_SHARE:
                self._let_go(free)
            elif not self._held and self._size and free - self._size >= self._keep_free:
                self._take()
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                self._size = 0  # else it would fail again before every write
                _LOG.warning("%s: no room is held for acknowledgements: %s", self._path, error)

    def _let_go(self, free: int) -> None:
        self._disk.remove(self._path)
        self._held = False
        _LOG.error(
            "%s: the disk is full (%d bytes are free): %d bytes that were held for acknowledgements are given up to"
            " them; make room",
            self._path.parent,
            free,
            self._size,
        )

    def _take(self) -> None:
        try:
            with opened(self._disk, self._path, write=True, create=True) as file:
                file.preallocate(self._size)
        except OSError:
            self._disk.remove(self._path)
            raise
        self._held = True
