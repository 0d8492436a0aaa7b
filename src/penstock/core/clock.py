"""Time as an argument: code that needs the time takes a `Clock`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from penstock.core.errors import InvalidRequest
from penstock.core.limits import CLOCK_HOLD_MS_MAX, CLOCK_JUMP_MS_MAX, CLOCK_REST_MS_MAX

_LOG: Final = logging.getLogger(__name__)
_NS_PER_MS: Final = 1_000_000
_BEYOND_NS: Final = 2**63
"""The year 2262, in nanoseconds. No message can have a later time: `time_ns` raises an error from then on."""


class Clock(Protocol):
    """A source of the time of day."""

    def now_ns(self) -> int:
        """Return nanoseconds since the Unix epoch. The result is smaller than an earlier one if the clock was set
        back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ns(self) -> int:
        try:
            return time.time_ns()
        except OverflowError:  # Python's own, beyond the year 2262
            return _BEYOND_NS


def boot_clock_ns() -> int:
    """Return the nanoseconds of a clock that nobody can set: it only goes forward, where possible also while the
    machine sleeps. Its zero has no meaning."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """The machine's clock, with sudden jumps ahead held back.

    A jump is a lead over the boot clock, which nobody can set, of more than `CLOCK_JUMP_MS_MAX`. Message ids never go
    back, so one message in a minute with a clock years ahead would give all messages false times for years. A jump is
    logged, and time goes on at its own pace. After `CLOCK_HOLD_MS_MAX` the clock is believed if it still has the same
    lead. A clock that is set back is followed at once. Safe for any thread.
    """

    def __init__(self, wall_ns: Callable[[], int] = time.time_ns, boot_ns: Callable[[], int] = boot_clock_ns) -> None:
        self._wall_ns = wall_ns
        self._boot_ns = boot_ns
        self._turn = threading.Lock()
        self._base: tuple[int, int] | None = None
        """The last time returned, and the boot clock at that moment."""
        self._jump: tuple[int, int] | None = None
        """The lead of the machine's clock while it is not believed, and the boot clock when the jump was noticed."""

    def now_ns(self) -> int:
        return self.reading()[0]

    def reading(self) -> tuple[int, int]:
        """Return the time of day and the boot clock at the same moment, both in nanoseconds."""
        with self._turn:
            boot, wall = self._boot_ns(), self._read()
            now = wall if self._base is None else self._steadied(wall, self._base[0] + boot - self._base[1], boot)
            self._base = (now, boot)
            return self._base

    def resume(self, wall_ns: int, boot_ns: int) -> None:
        """Continue from a reading that another process took since the machine's boot. A reading from the future of the
        boot clock is ignored."""
        with self._turn:
            if boot_ns <= self._boot_ns():
                self._base = (wall_ns, boot_ns)

    def _read(self) -> int:
        try:
            return self._wall_ns()
        except OverflowError:  # Python's own: a time that does not fit into 64 bits
            if self._base is None:
                raise InvalidRequest("the machine's clock is beyond the year 2262: set it right") from None
            return _BEYOND_NS

    def _steadied(self, wall: int, due: int, boot: int) -> int:
        ahead = wall - due
        if ahead <= CLOCK_JUMP_MS_MAX * _NS_PER_MS:
            if self._jump is not None:
                _LOG.warning("the machine's clock is back: its jump ahead is over")
            self._jump = None
            return wall
        if self._jump is None or abs(ahead - self._jump[0]) > CLOCK_JUMP_MS_MAX * _NS_PER_MS:
            self._jump = (ahead, boot)
            _LOG.error(
                "the machine's clock jumped %d s ahead, and is not followed for %d s: set it right before if it is"
                " wrong, since message ids never go back",
                ahead // 10**9,
                CLOCK_HOLD_MS_MAX // 1000,
            )
        if wall >= _BEYOND_NS or boot - self._jump[1] < CLOCK_HOLD_MS_MAX * _NS_PER_MS:
            return due
        _LOG.warning("the machine's clock stays %d s ahead, and is followed from now on", ahead // 10**9)
        self._jump = None
        return wall


def now_ms(clock: Clock) -> int:
    return clock.now_ns() // _NS_PER_MS


def idle_clock_warning(seen_ms: int, wall_ms: int) -> str | None:
    """Return a warning if the clock is far past `seen_ms`, the last time that is known; None if it is not, or if no
    time is known (0). Far is more than `CLOCK_REST_MS_MAX`; both times are Unix milliseconds."""
    if seen_ms <= 0 or wall_ms - seen_ms <= CLOCK_REST_MS_MAX:
        return None
    return (
        f"the machine's clock says {iso_time(wall_ms)}, and the data directory was last used at {iso_time(seen_ms)}: if"
        " it was at rest since then, all is well. If the clock is wrong, stop the broker at once and set it right:"
        " message ids never go back, so the first message makes all later times untrue until the clock has caught up"
    )


def iso_time(unix_ms: int) -> str:
    """Return a time, given in Unix milliseconds, as ISO 8601 text in UTC, with milliseconds."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
