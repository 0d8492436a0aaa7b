"""Options of a decoder: words alone, so that parsing options needs neither schemas nor Arrow."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

LATEST: Final = "latest"
"""The choice of the columns of the newest version."""
MERGED: Final = "merged"
"""The choice of the columns of all versions together."""


class Mode(StrEnum):
    """The treatment of rows that do not decode."""

    FAIL = "fail"
    """The first bad row fails the read, with an error that names it."""
    NULL = "null"
    """Bad rows stay; the columns of their payloads are null."""
    QUARANTINE = "quarantine"
    """Bad rows are left out, and given separately."""


class Unnamed(StrEnum):
    """The treatment of messages that name no schema."""

    BAD = "bad"
    """Messages without a schema do not decode."""
    LATEST = "latest"
    """Messages without a schema are read by the latest of the target's schemas."""
