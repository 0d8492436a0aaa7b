"""Every limit in one place, each with its reason. Units end the name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from penstock.core.errors import InvalidRequest

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

TOPIC_CHARS_MAX: Final = 255
"""What a file name holds on every file system we run on."""

TOPIC_LEVELS_MAX: Final = 5
"""Deep enough for domain.entity.event and two more; a trie walk stays a handful of steps."""

NAMESPACE_CHARS_MAX: Final = 64
"""Long enough for any team's name, short enough for a path and a metric label."""

PARTITIONS_MAX: Final = 1024
"""One directory and two open files each: a thousand is what one process opens without tuning."""

SEGMENT_BYTES_CEILING: Final = 2 * GIB
"""Index entries hold a position in 32 bits; half of that range leaves room for the last block."""

SEGMENT_BYTES_FLOOR: Final = 4 * KIB
"""One page of any disk: a topic with smaller segments could hold no message worth sending."""

BLOCK_BYTES_CEILING: Final = 64 * MIB
"""A length beyond this is damage, not a record: nobody reads gigabytes because of a flipped bit."""

TYPE_BYTES_MAX: Final = 255
"""The record format gives the type's length one byte."""

KEY_BYTES_MAX: Final = 65_535
"""The envelope gives the key's length two bytes."""

PRODUCER_NAME_BYTES_MAX: Final = 255
"""A name for people; the envelope would hold 65,535."""

ATTRIBUTES_MAX: Final = 256
"""Headers, not a second payload; dead letters and traces add about ten."""

ATTRIBUTE_NAME_BYTES_MAX: Final = 255
"""A name for people; the envelope would hold 65,535."""

ATTRIBUTE_BYTES_MAX: Final = 256 * KIB
"""All names and values of one message together: they are copied into every dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits an operator may set. The defaults fit one machine; `check` refuses what the formats cannot hold."""

    payload_bytes_max: int = 1 * MIB
    """One message. Larger things belong in object storage, with their address in the message."""

    block_bytes_max: int = 16 * MIB
    """One appended block: what one write carries, and what one caller may make all others wait for."""

    segment_bytes_max: int = 64 * MIB
    """A segment rolls at this size: small enough to hash at sealing without a pause, large enough to stream."""

    segment_bytes_first: int = 256 * KIB
    """A log's first segment; each next one doubles up to the maximum, so ten thousand quiet topics fit on a disk."""

    segment_age_ms_max: int = 7 * 24 * 3600 * 1000
    """A segment rolls at this age, so that retention by time can drop what a quiet topic holds."""

    group_bytes_max: int = 4 * MIB
    """One group commit: beyond this a larger write no longer amortises the sync."""

    queue_bytes_max: int = 64 * MIB
    """Blocks waiting for the writer; past this, callers wait or are refused."""

    read_bytes_max: int = 1 * MIB
    """One read of a log: stays in the processor's second-level cache while it is verified."""

    disk_reserve_bytes: int = 64 * MIB
    """Kept free for the catalog, cursors and recovery: appends are refused before the disk is really full."""

    quarantine_bytes_max: int = 256 * MIB
    """Copies of damaged bytes kept per log; past this, damage is only counted: a dying disk is not to be filled too."""

    open_logs_max: int = 1024
    """Logs whose files stay open at once; the least used are closed and opened again when needed."""

    def check(self) -> Limits:
        """Return self, or raise `InvalidRequest` naming the field that cannot be."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise InvalidRequest(f"{field.name} must be a positive whole number, not {value!r}", field=field.name)
        for name, ceiling in _CEILINGS:
            if getattr(self, name) > ceiling:
                raise InvalidRequest(f"{name} is at most {ceiling}, not {getattr(self, name)}", field=name)
        for name, other, reason in _ORDER:
            if getattr(self, name) > getattr(self, other):
                values = f"{name} ({getattr(self, name)}) is at most {other} ({getattr(self, other)})"
                raise InvalidRequest(f"{values}: {reason}", field=name)
        return self


_CEILINGS: Final = (
    ("segment_bytes_max", SEGMENT_BYTES_CEILING),
    ("block_bytes_max", BLOCK_BYTES_CEILING),
)
"""What the formats can hold, whatever an operator wants."""

_ORDER: Final = (
    ("segment_bytes_first", "segment_bytes_max", "segments grow up to it"),
    ("payload_bytes_max", "block_bytes_max", "a message is never split over two blocks"),
    ("block_bytes_max", "segment_bytes_max", "a block is never split over two segments"),
)
"""Which limit must not be larger than which, and why."""
