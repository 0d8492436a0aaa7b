"""The log of an archive's batches, in the format of Spark's streaming queries: any engine, and any older Penstock, can
continue it.

DIR/offsets/7   where batch 7 ends in every partition, written before any of its work
DIR/commits/7   batch 7 is done

A batch that began and is not done is repeated unchanged: it lies between its offsets and those of the batch before.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import StorageFailed
from penstock.spark.lake.tables.folder import write_atomically
from penstock.spark.source.offsets import Offsets

ENTRIES_KEPT: Final = 100
"""Number of finished batches whose entries are kept, as many as Spark keeps. The last one would be enough to go on."""
_VERSION: Final = "v1"
_DONE: Final = '{"nextBatchWatermarkMs":0}'


class QueryLog:
    """The log of batches in a query's directory: which began, where they end, which are done. Use it only with the
    checkpoint locked."""

    def __init__(self, root: Path) -> None:
        self._offsets, self._commits = root / "offsets", root / "commits"

    @property
    def begun(self) -> set[int]:
        return set(_numbers(self._offsets))

    @property
    def ended(self) -> set[int]:
        return set(_numbers(self._commits))

    @property
    def last_begun(self) -> int:
        """Number of the last batch that began; -1 if there is none."""
        return max(self.begun, default=-1)

    @property
    def in_flight(self) -> bool:
        """True if the last batch began and did not end: its process was killed, or it failed."""
        return self.last_begun >= 0 and self.last_begun not in self.ended

    def end_of(self, batch_id: int) -> Offsets:
        """Return the offsets at which a batch ends. For -1, the batch before the first, they are empty. Raises
        `StorageFailed` if the entry of the batch is missing or cannot be read."""
        if batch_id < 0:
            return Offsets()
        return Offsets.of_json(self._entry(batch_id)[1])

    def begin(self, batch_id: int, end: Offsets) -> None:
        """Log that a batch begins, and at which offsets it will end; durable on return. A batch that is repeated takes
        the same offsets from here."""
        metadata = self._entry(batch_id - 1)[0] if batch_id else {}
        metadata = {
            "batchWatermarkMs": 0,
            "batchTimestampMs": time.time_ns() // 1_000_000,
            "conf": metadata.get("conf", {}),
        }
        # The offsets are spelled as Spark's Python source does, which compares them as texts.
        _write_entry(
            self._offsets / str(batch_id), json.dumps(metadata, separators=(",", ":")), json.dumps(end.as_json())
        )

    def finish(self, batch_id: int) -> None:
        """Log that a batch is done, durable on return, and delete old entries."""
        _write_entry(self._commits / str(batch_id), _DONE)
        for directory in (self._offsets, self._commits):
            for number in _numbers(directory):
                if number <= batch_id - ENTRIES_KEPT:
                    _delete_entry(directory / str(number))

    def _entry(self, batch_id: int) -> tuple[dict[str, Any], Any]:
        """Return the metadata and the offsets of a batch. Raises `StorageFailed` if its entry is missing or cannot be
        read."""
        path = self._offsets / str(batch_id)
        try:
            version, metadata, offsets = path.read_text().splitlines()
            if version != _VERSION:
                raise ValueError(f"its format is {version!r}")
            return json.loads(metadata), json.loads(offsets)
        except (OSError, ValueError) as error:
            raise StorageFailed(
                f"{path} does not say where batch {batch_id} ends ({error}): restore it from a backup, or go on with"
                " --take-over, which begins where the tables end",
                batch=batch_id,
            ) from None


def _numbers(directory: Path) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError):
        yield from (int(file.name) for file in directory.iterdir() if file.name.isdigit())


def _write_entry(path: Path, *lines: str) -> None:
    _checksum(path).unlink(missing_ok=True)
    write_atomically(path, "\n".join((_VERSION, *lines)))


def _delete_entry(path: Path) -> None:
    for file in (path, _checksum(path)):
        file.unlink(missing_ok=True)


def _checksum(path: Path) -> Path:
    """Return the path of a file's checksum. Hadoop writes one beside each of its files, and refuses a file that does
    not match it."""
    return path.parent / f".{path.name}.crc"
