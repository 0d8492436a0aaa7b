"""When messages were published. A message never changes, so what was once read of it need not be read again."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from penstock.core.errors import PenstockError
from penstock.record import layout as at
from penstock.storage.log.log import Log

_KEPT: Final = 4_096
"""Messages whose time is remembered: about as many as subscriptions are asked about again and again."""


def published_ms(log: Log, offset: int) -> int | None:
    """When the message there, or the first after it that can be read, was published; None if that is not known.

    Reads the log: for a thread that may wait.
    """
    try:
        return _read(log, max(offset, int(log.first_offset)))
    except (PenstockError, LookupError):
        return None


@lru_cache(maxsize=_KEPT)
def _read(log: Log, offset: int) -> int:
    """What is raised is not remembered."""
    block = log.read(offset, bytes_max=1).block
    if not len(block):
        raise LookupError(offset)
    return int(block.columns[0, at.PUBLISH_TIME])
