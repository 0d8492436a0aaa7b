"""Room on the disk that nobody else has: held as a file, and given up to the catalog where the disk is full.

Another process may fill the disk to its last byte. Logs refuse appends long before; acknowledgements have to go on, and
they are written to the catalog.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from penstock.core.limits import MIB, Limits
from penstock.storage.base.disk import FULL_ERRORS, Disk, opened

_LOG: Final = logging.getLogger(__name__)
RESERVE_BYTES_MAX: Final = 8 * MIB
"""Twice what the catalog's write-ahead log grows to before it is begun anew."""
_SHARE: Final = 4
"""Of what an operator keeps free, the part that is held like this."""
_LOW_SHARE: Final = 8
"""Of what is held, the part that must be free beside it: with less the next write may find no room."""


class DiskReserve:
    """A file of zeros. For whoever writes alone; see `CatalogFile.writing`."""

    def __init__(self, disk: Disk, path: Path, limits: Limits) -> None:
        self._disk = disk
        self._path = path
        self._size = min(RESERVE_BYTES_MAX, limits.disk_reserve_bytes // _SHARE)
        """0: none is held."""
        self._keep_free = limits.disk_reserve_bytes
        self._held = disk.exists(path)

    @property
    def is_held(self) -> bool:
        return self._held

    def adjust(self) -> None:
        """Before a write: let go of the room where there is hardly any other; take it again where there is enough."""
        try:
            free = self._disk.free_bytes(self._path.parent)
            if self._held and free < self._size // _LOW_SHARE:
                self._let_go(free)
            elif not self._held and self._size and free - self._size >= self._keep_free:
                self._take()
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                self._size = 0  # it would fail with every write from now on
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
