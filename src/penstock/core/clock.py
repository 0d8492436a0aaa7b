"""Time as an argument: whoever needs to know what time it is takes a `Clock`."""

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
"""The year 2262: no such time can be told, nor is it one that messages are published at."""


class Clock(Protocol):
    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch. May go back when somebody sets the clock."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ns(self) -> int:
        try:
            return time.time_ns()
        except OverflowError:  # Python's own, beyond the year 2262
            return _BEYOND_NS


def elapsed_ns() -> int:
    """A clock that nobody sets: it only goes forward, also while the machine sleeps where the system can tell."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """The machine's clock, but for jumps ahead that did not pass on a clock that nobody sets.

    Message ids never go back, so a clock that is years ahead for a minute would make every later time untrue for years.
    Such a jump is said, and held back: time goes on at its own pace. A clock that is still there after a while, and
    ran evenly, is believed. One that is set back is followed at once. Safe for any thread.
    """

    def __init__(self, wall_ns: Callable[[], int] = time.time_ns, passed_ns: Callable[[], int] = elapsed_ns) -> None:
        self._wall_ns = wall_ns
        self._passed_ns = passed_ns
        self._turn = threading.Lock()
        self._base: tuple[int, int] | None = None
        """What was told last, and when that was on the clock that nobody sets."""
        self._jump: tuple[int, int] | None = None
        """How far ahead the machine's clock is while it is not believed, and since when."""

    def now_ns(self) -> int:
        return self.reading()[0]

    def reading(self) -> tuple[int, int]:
        """The time of day, and when that is on the clock that nobody sets."""
        with self._turn:
            passed, wall = self._passed_ns(), self._read()
            now = wall if self._base is None else self._believed(wall, self._base[0] + passed - self._base[1], passed)
            self._base = (now, passed)
            return self._base

    def resume(self, told_ns: int, passed_ns: int) -> None:
        """Go on from a moment that another process was told, on this machine and since it was started."""
        with self._turn:
            if passed_ns <= self._passed_ns():
                self._base = (told_ns, passed_ns)

    def _read(self) -> int:
        try:
            return self._wall_ns()
        except OverflowError:  # Python's own: a time that does not fit into 64 bits
            if self._base is None:
                raise InvalidRequest("the machine's clock is beyond the year 2262: set it right") from None
            return _BEYOND_NS

    def _believed(self, wall: int, due: int, passed: int) -> int:
        ahead = wall - due
        if ahead <= CLOCK_JUMP_MS_MAX * _NS_PER_MS:
            if self._jump is not None:
                _LOG.warning("the machine's clock is back")
            self._jump = None
            return wall
        if self._jump is None or abs(ahead - self._jump[0]) > CLOCK_JUMP_MS_MAX * _NS_PER_MS:
            self._jump = (ahead, passed)
            _LOG.error(
                "the machine's clock jumped %d s ahead, and is not followed for %d s: set it right before if it is"
                " wrong, since message ids never go back",
                ahead // 10**9,
                CLOCK_HOLD_MS_MAX // 1000,
            )
        if wall >= _BEYOND_NS or passed - self._jump[1] < CLOCK_HOLD_MS_MAX * _NS_PER_MS:
            return due
        _LOG.warning("the machine's clock stays %d s ahead, and is followed from now on", ahead // 10**9)
        self._jump = None
        return wall


def now_ms(clock: Clock) -> int:
    return clock.now_ns() // _NS_PER_MS


def idle_clock_warning(seen_ms: int, told_ms: int) -> str | None:
    """The warning about a clock that tells a time long after the last one that was ever seen; None if it is not due."""
    if seen_ms <= 0 or told_ms - seen_ms <= CLOCK_REST_MS_MAX:
        return None
    return (
        f"the machine's clock says {iso_time(told_ms)}, and the data directory was last used at {iso_time(seen_ms)}: if"
        " it was at rest since then, all is well. If the clock is wrong, stop the broker at once and set it right:"
        " message ids never go back, so the first message makes all later times untrue until the clock has caught up"
    )


def iso_time(unix_ms: int) -> str:
    """ISO 8601, UTC, milliseconds."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
