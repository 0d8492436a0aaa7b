"""The clock: the machine's own, and milliseconds that are always rounded down."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import Clock, SteadyClock, SystemClock, idle_clock_warning, iso_time, now_ms
from penstock.core.errors import InvalidRequest
from penstock.core.limits import CLOCK_HOLD_MS_MAX, CLOCK_JUMP_MS_MAX, CLOCK_REST_MS_MAX


def test_the_system_clock_tells_the_machines_time() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns()
    told = clock.now_ns()
    # An adjustment of the machine's clock between the two lines is no failure; another epoch or unit would be.
    assert abs(told - before) < 60 * 10**9


def set_time(monkeypatch: pytest.MonkeyPatch, time_ns: Callable[[], int]) -> None:
    """Set the clock alone: other threads keep the machine's time."""
    monkeypatch.setattr("penstock.core.clock.time", SimpleNamespace(time_ns=time_ns))


def test_the_system_clock_goes_back_when_the_machine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([1_000, 999])
    set_time(monkeypatch, lambda: next(told))
    clock = SystemClock()
    assert [clock.now_ns(), clock.now_ns()] == [1_000, 999]


@pytest.mark.parametrize(
    ("ns", "ms"),
    [(0, 0), (999_999, 0), (1_000_000, 1), (1_999_999, 1), (-1, -1), (-1_000_000, -1), (-1_000_001, -2)],
)
def test_milliseconds_are_rounded_down_also_before_1970(monkeypatch: pytest.MonkeyPatch, ns: int, ms: int) -> None:
    set_time(monkeypatch, lambda: ns)
    assert now_ms(SystemClock()) == ms


def test_milliseconds_are_exact_where_a_float_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    set_time(monkeypatch, lambda: 9_007_199_254_740_993_999_999)
    assert now_ms(SystemClock()) == 9_007_199_254_740_993


YEAR_2200_MS = 7_258_118_400_000


@pytest.mark.parametrize(
    ("unix_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
        (1_700_000_000_007, "2023-11-14T22:13:20.007Z"),
    ],
)
def test_times_are_iso_8601_in_utc_with_milliseconds(unix_ms: int, text: str) -> None:
    assert iso_time(unix_ms) == text


@given(st.integers(0, YEAR_2200_MS))
def test_no_millisecond_is_lost_on_the_way(unix_ms: int) -> None:
    moment = datetime.strptime(iso_time(unix_ms), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000 == unix_ms


SECOND = 10**9
YEARS = 10 * 365 * 86_400 * SECOND


class Machine:
    """A machine whose clock is set by hand; the other one runs on whatever is done to it."""

    def __init__(self) -> None:
        self.passed = 5 * SECOND
        self.set_ahead = 1_700_000_000 * SECOND
        self.clock = SteadyClock(self.wall, lambda: self.passed)

    def wall(self) -> int:
        if self.passed + self.set_ahead >= 2**63:
            raise OverflowError("timestamp too large to convert to C _PyTime_t")
        return self.passed + self.set_ahead

    @property
    def error(self) -> int:
        """Return how far the time is from the machine's clock."""
        return self.clock.now_ns() - self.wall()

    def wait(self, ns: int) -> None:
        self.passed += ns


def test_a_steady_clock_tells_the_machines_time_and_goes_back_with_it() -> None:
    machine = Machine()
    for change in (0, -3600 * SECOND, CLOCK_JUMP_MS_MAX * 10**6, -YEARS, 1):
        machine.set_ahead += change
        assert machine.error == 0
        machine.wait(86_400 * SECOND)
        assert machine.error == 0


def test_a_jump_that_is_taken_back_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    before = machine.clock.now_ns()
    machine.set_ahead += YEARS
    machine.wait(30 * SECOND)
    assert machine.clock.now_ns() == before + 30 * SECOND, "it goes on at its own pace"
    assert "jumped 315360000 s ahead" in caplog.text
    machine.set_ahead -= YEARS
    machine.wait(30 * SECOND)
    assert machine.error == 0
    assert caplog.text.count("jumped") == 1


def test_a_clock_that_stays_ahead_is_followed_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.clock.now_ns()
    machine.set_ahead += YEARS  # a machine that slept, or got the time late
    assert machine.error == -YEARS
    machine.wait(CLOCK_HOLD_MS_MAX * 10**6 - 1)
    assert machine.error == -YEARS
    machine.wait(1)
    assert machine.error == 0
    assert "stays 315360000 s ahead, and is followed" in caplog.text


def test_a_clock_that_jumps_again_is_waited_for_anew() -> None:
    machine = Machine()
    machine.clock.now_ns()
    for _ in range(5):
        machine.set_ahead += YEARS
        assert machine.error < 0
        machine.wait(CLOCK_HOLD_MS_MAX * 10**6 - 1)
        assert machine.error < 0


def test_a_time_that_nobody_can_tell_is_never_followed() -> None:
    machine = Machine()
    before, ahead = machine.clock.now_ns(), 300 * 365 * 86_400 * SECOND
    machine.set_ahead += ahead
    for hours in range(1, 10):
        machine.wait(3600 * SECOND)
        assert machine.clock.now_ns() == before + hours * 3600 * SECOND
    machine.set_ahead -= ahead
    assert machine.error == 0


def test_a_machine_that_begins_beyond_time_is_told_so() -> None:
    machine = Machine()
    machine.set_ahead += 300 * 365 * 86_400 * SECOND
    with pytest.raises(InvalidRequest, match="set it right"):
        machine.clock.now_ns()


def test_the_steady_clock_of_this_machine_tells_its_time() -> None:
    assert abs(SteadyClock().now_ns() - time.time_ns()) < 60 * SECOND


def test_a_clock_goes_on_from_what_another_process_was_told(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    told = machine.clock.reading()
    machine.wait(3600 * SECOND)
    machine.set_ahead += YEARS  # while nobody looked
    machine.clock = SteadyClock(machine.wall, lambda: machine.passed)
    machine.clock.resume(*told)
    assert machine.clock.now_ns() == told[0] + 3600 * SECOND
    assert "jumped" in caplog.text
    machine.set_ahead -= YEARS
    assert machine.error == 0


def test_a_moment_that_has_yet_to_come_is_of_another_machine() -> None:
    machine = Machine()
    machine.clock.resume(1, machine.passed + 1)
    assert machine.error == 0


def test_the_system_clock_ends_where_pythons_does(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    machine.set_ahead += 300 * 365 * 86_400 * SECOND
    set_time(monkeypatch, machine.wall)
    assert iso_time(now_ms(SystemClock())) == "2262-04-11T23:47:16.854Z"


SEEN_MS = 1_700_000_000_000


def test_a_clock_long_after_all_that_was_seen_is_warned_of_with_both_times() -> None:
    warning = idle_clock_warning(SEEN_MS, SEEN_MS + CLOCK_REST_MS_MAX + 1)
    assert warning is not None
    for words in ("2023-11-14T22:13:20.000Z", "2023-12-14T22:13:20.001Z", "set it right"):
        assert words in warning


@pytest.mark.parametrize(
    ("seen_ms", "wall_ms"),
    [(SEEN_MS, SEEN_MS + CLOCK_REST_MS_MAX), (SEEN_MS, SEEN_MS - 1), (0, SEEN_MS), (-12_219_292_800_000, SEEN_MS)],
    ids=["a month", "set back", "never used", "no message"],
)
def test_a_clock_that_nothing_speaks_against_is_believed_in_silence(seen_ms: int, wall_ms: int) -> None:
    assert idle_clock_warning(seen_ms, wall_ms) is None
