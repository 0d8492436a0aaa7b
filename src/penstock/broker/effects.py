"""Effects: what the broker wants done. Whoever holds the connections does it."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.errors import PenstockError


class Send(NamedTuple):
    client: str
    frames: bytes
    """Whole frames, as TCP carries them."""


class Close(NamedTuple):
    """Flush what is queued, then close. The client has been told why."""

    client: str
    reason: PenstockError


Effect = Send | Close
