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
"""The year 2262: no time that `time_ns` can return, nor one that messages are published at."""


class Clock(Protocol):
    """A source of the time of day."""

    def now_ns(self) -> int:
        """Return nanoseconds since the Unix epoch. The time goes back when the clock is set back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ns(self) -> int:
        try:
            return time.time_ns()
        except OverflowError:  # Python's own, beyond the year 2262
            return _BEYOND_NS


def boot_clock_ns() -> int:
    """Return a clock that cannot be set: it only goes forward, where possible also while the machine sleeps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """The machine's clock without jumps ahead that did not pass on the boot clock, which cannot be set.

    Message ids never go back, so a clock that is years ahead for a minute would make every later time untrue for years.
    Such a jump is logged, and held back: time goes on at its own pace. A clock that is still there after a while, and
    ran evenly, is believed. A clock that is set back is followed at once. Safe for any thread.
    """

    def __init__(self, wall_ns: Callable[[], int] = time.time_ns, boot_ns: Callable[[], int] = boot_clock_ns) -> None:
        self._wall_ns = wall_ns
        self._boot_ns = boot_ns
        self._turn = threading.Lock()
        self._base: tuple[int, int] | None = None
        """The last time returned, and the boot clock at that moment."""
        self._jump: tuple[int, int] | None = None
        """The lead of the machine's clock while it is not believed, and the boot clock when that began."""

    def now_ns(self) -> int:
        return self.reading()[0]

    def reading(self) -> tuple[int, int]:
        """Return the time of day, and the boot clock at that moment."""
        with self._turn:
            boot, wall = self._boot_ns(), self._read()
            now = wall if self._base is None else self._steadied(wall, self._base[0] + boot - self._base[1], boot)
            self._base = (now, boot)
            return self._base

    def resume(self, wall_ns: int, boot_ns: int) -> None:
        """Continue from a reading of another process, on this machine and since its boot."""
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
    """Return a warning if the clock is long past the last time ever seen; None if it is not."""
    if seen_ms <= 0 or wall_ms - seen_ms <= CLOCK_REST_MS_MAX:
        return None
    return (
        f"the machine's clock says {iso_time(wall_ms)}, and the data directory was last used at {iso_time(seen_ms)}: if"
        " it was at rest since then, all is well. If the clock is wrong, stop the broker at once and set it right:"
        " message ids never go back, so the first message makes all later times untrue until the clock has caught up"
    )


def iso_time(unix_ms: int) -> str:
    """Return a time as ISO 8601, in UTC, with milliseconds."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
