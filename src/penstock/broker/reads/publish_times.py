"""Publish times of messages. They never change, so they are cached."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from penstock.core.errors import PenstockError
from penstock.record import layout as at
from penstock.storage.log.log import Log

_TIMES_KEPT: Final = 4_096
"""The most times in the cache: one for each of the subscriptions that are listed again and again."""


def published_ms(log: Log, offset: int) -> int | None:
    """Return the publish time of the message at an offset, or of the first readable one after it; None if unknown.

    Reads the log: call it from a thread that may wait.
    """
    try:
        return _read(log, max(offset, int(log.first_offset)))
    except (PenstockError, LookupError):
        return None


@lru_cache(maxsize=_TIMES_KEPT)
def _read(log: Log, offset: int) -> int:
    """Read the time, or take it from the cache. Raises `LookupError` if no message can be read. Errors are not
    cached."""
    block = log.read(offset, bytes_max=1).block
    if not len(block):
        raise LookupError(offset)
    return int(block.columns[0, at.PUBLISH_TIME])
