"""UUIDv6 message ids that always rise: in one call, between calls, across restarts, and with the clock set back.

An id's 60-bit timestamp (100 ns ticks since 1582-10-15) carries the order; the other 62 bits name the generator. The
time of a message is read from its id, so time order is id order too.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import Final

from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequest
from penstock.core.limits import CLOCK_JUMP_MS_MAX

_LOG = logging.getLogger(__name__)

ID_BYTES: Final = 16
UNIX_EPOCH_TICKS: Final = 0x01B21DD213814000
"""Ticks from the UUID epoch, 1582-10-15, to the Unix epoch."""
TICKS_PER_MS: Final = 10_000
TICKS_MAX: Final = 2**60 - 1
_TICKS_PER_SECOND: Final = 10_000_000
_VARIANT: Final = 0x8000_0000_0000_0000
_RANDOM_NODE: Final = 0x0000_0100_0000_0000  # RFC 9562: the multicast bit marks a node that is no network card
_LOW_MASK: Final = 0x3FFF_FFFF_FFFF_FFFF


def ticks_of_unix_ms(ms: int) -> int:
    """Return the timestamp, in ticks, of the beginning of a millisecond."""
    return ms * TICKS_PER_MS + UNIX_EPOCH_TICKS


def unix_ms_of_ticks(ticks: int) -> int:
    return (ticks - UNIX_EPOCH_TICKS) // TICKS_PER_MS


def high_word(ticks: int) -> int:
    """Return the first eight bytes of an id, as a number: its timestamp and version."""
    return (ticks >> 12) << 16 | 0x6000 | ticks & 0xFFF


def ticks_of_high_word(word: int) -> int:
    return (word >> 16) << 12 | word & 0xFFF


def id_bytes(ticks: int, low: int) -> bytes:
    return high_word(ticks).to_bytes(8, "big") + low.to_bytes(8, "big")


def ticks_of_id(value: bytes) -> int:
    return ticks_of_high_word(int.from_bytes(value[:8], "big"))


def parse_id(text: str) -> bytes:
    """Parse a message id, a UUIDv6 with or without hyphens, and return its sixteen bytes. Raises `InvalidRequest`."""
    try:
        value = uuid.UUID(text)
        if text.lower() not in (str(value), value.hex):  # UUID() also takes `_`, `+`, spaces and other scripts' digits
            raise ValueError(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a message id: expected a UUID such as {_EXAMPLE}", given=text) from None
    if value.version != 6:
        raise InvalidRequest(f"{text!r} is not a message id: UUID version 6 expected, not {value.version}", given=text)
    return value.bytes


def format_id(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


_EXAMPLE: Final = "1f0c2a4e-7b1d-6c00-9a3f-0123456789ab"


@dataclass(frozen=True, slots=True)
class IdRun:
    """`count` ids of one generator, one tick apart."""

    first_ticks: int
    count: int
    low: int

    @property
    def last_ticks(self) -> int:
        return self.first_ticks + self.count - 1

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return id_bytes(self.first_ticks + index, self.low)


class IdGenerator:
    """The generator of a data directory's ids. A run begins at the current time, or right after the last id if that is
    later.

    `after_ticks` is the timestamp of the newest record that is stored: all ids come after it. Only one thread may use
    the generator.
    """

    def __init__(self, clock: Clock, *, node: int, after_ticks: int = 0) -> None:
        self._clock = clock
        self._low = _VARIANT | _RANDOM_NODE | node & _LOW_MASK
        self._last = after_ticks
        self._warned = False

    @property
    def last_ticks(self) -> int:
        return self._last

    def advance(self, ticks: int) -> None:
        """Give no id at or before the timestamp `ticks`, because a record with that id is stored."""
        self._last = max(self._last, ticks)

    def check(self) -> None:
        """Log an error if the last id is more than a minute ahead of the clock. Called before any new id is given."""
        now = self._clock.now_ns() // 100 + UNIX_EPOCH_TICKS
        if self._last - now > CLOCK_JUMP_MS_MAX * TICKS_PER_MS:
            _LOG.error(
                "the newest message is %d s ahead of the clock: order is kept, message times are not true until it has"
                " caught up. If the clock is right now, have them right at once by copying the topics into a new"
                " data directory (`penstock export` and `penstock import`)",
                (self._last - now) // _TICKS_PER_SECOND,
            )

    def take(self, count: int) -> IdRun:
        """Return the next `count` ids. All are greater than every earlier id, and none is given again, even if it is
        not used.

        Raises `InvalidRequest` for a count below 1.
        """
        if count < 1:
            raise InvalidRequest(f"a run has at least one id, not {count}")
        now = self._clock.now_ns() // 100 + UNIX_EPOCH_TICKS
        first = max(now, self._last + 1)
        last = first + count - 1
        if last > TICKS_MAX:
            raise InvalidRequest("the id space of UUIDv6 ends in the year 5236: check the machine's clock")
        self._last = last
        if first == now:
            self._warned = False
        self._watch(last - now)
        return IdRun(first, count, self._low)

    def _watch(self, ahead_ticks: int) -> None:
        """Log a warning when ids are more than a second ahead of the clock; once, until the clock has caught up."""
        if ahead_ticks > _TICKS_PER_SECOND and not self._warned:
            self._warned = True
            seconds = ahead_ticks / _TICKS_PER_SECOND
            _LOG.warning(
                "message ids run %.1f s ahead of the clock; was it set back? Order is kept, message times are not true"
                " until the clock has caught up",
                seconds,
            )
