"""What a decoder may be told to do. Words alone: whoever reads options needs neither schemas nor Arrow for them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

LATEST: Final = "latest"
"""The columns of the newest version."""
MERGED: Final = "merged"
"""The columns of every version."""


class Mode(StrEnum):
    """What becomes of rows that do not decode."""

    FAIL = "fail"
    """The first one is an error, which names it."""
    NULL = "null"
    """Their columns are null."""
    QUARANTINE = "quarantine"
    """They are left out, and told of apart."""


class Unnamed(StrEnum):
    """What becomes of messages that name no schema."""

    BAD = "bad"
    """They do not decode."""
    LATEST = "latest"
    """They are read by the latest of the target's schemas."""
