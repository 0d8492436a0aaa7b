"""The clock record of a data directory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from penstock.core.clock import SteadyClock
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.base.clock_record import FILE, ClockReading, last_wall_ns, save_reading, saved_reading, this_boot
from penstock.storage.base.disk import OsDisk
from penstock.storage.store import Store

SECOND = 10**9
YEARS = 10 * 365 * 86_400 * SECOND
ORDERS = TopicName.parse("orders")
DISK = OsDisk()


def test_a_moment_is_known_until_the_machine_is_started_anew(tmp_path: Path) -> None:
    assert saved_reading(DISK, tmp_path, boot="b1") is None
    save_reading(DISK, tmp_path, ClockReading(17, 4), boot="b1")
    assert saved_reading(DISK, tmp_path, boot="b1") == ClockReading(17, 4)
    assert saved_reading(DISK, tmp_path, boot="b2") is None
    assert saved_reading(DISK, tmp_path, boot="") is None
    assert last_wall_ns(DISK, tmp_path) == 17, "the time of day is still known"


@pytest.mark.parametrize("text", [b"", b"b1 17 4\n", b"b1 17 4 0123456789abcdef\n", b"\xff\xfe", b"x" * 10_000])
def test_a_moment_that_does_not_verify_is_not_believed(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE).write_bytes(text)
    assert saved_reading(DISK, tmp_path, boot="b1") is None
    assert last_wall_ns(DISK, tmp_path) == 0


def test_a_machine_has_one_boot() -> None:
    assert this_boot() == this_boot()


@pytest.mark.skipif(not this_boot(), reason="the system does not say when it was started")
def test_a_clock_that_jumps_ahead_between_two_starts_makes_no_time_untrue(tmp_path: Path) -> None:
    times: list[int] = []
    for minute, jump in enumerate((0, YEARS, 0), 1):
        clock = SteadyClock(partial(at, minute, jump), partial(at, minute, 0))
        with Store.open(tmp_path / "data", create=True, clock=clock) as store:
            if not store.catalog.list_topics():
                store.create_topic(ORDERS)
            store.append(ORDERS, Draft.of([Message(payload=b"x")]))
            times = [record.publish_time_ms for record in store.log(ORDERS).records()]
    assert [time - times[0] for time in times] == [0, 60_000, 120_000]


def opened_at(root: Path, jump: int) -> None:
    """A day in the life of a data directory, with one message."""
    with Store.open(root, create=True, clock=SteadyClock(partial(at, 0, jump), partial(at, 0, 0))) as store:
        if not store.catalog.list_topics():
            store.create_topic(ORDERS)
        store.append(ORDERS, Draft.of([Message(payload=b"x")]))


def boot_anew(root: Path, wall_ns: int | None) -> None:
    """Leave the clock record as it is after a reboot: with the reading saved before, or without one."""
    (root / FILE).unlink(missing_ok=True)
    if wall_ns is not None:
        save_reading(DISK, root, ClockReading(wall_ns, 4), boot="another")


def test_a_clock_that_is_years_ahead_at_the_first_start_of_a_machine_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "data"
    opened_at(root, 0)
    boot_anew(root, None)
    assert "last used" not in caplog.text, "nothing was there that it could be compared with"
    opened_at(root, YEARS)
    assert "clock says 2033-11-11T22:13:20.000Z, and the data directory was last used at 2023-11-14T22" in caplog.text
    caplog.clear()
    boot_anew(root, None)
    opened_at(root, YEARS)
    assert "last used" not in caplog.text, "it was believed"


def test_a_directory_that_was_looked_after_until_the_machine_stopped_was_not_at_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "data"
    opened_at(root, 0)
    boot_anew(root, at(0, YEARS) - 60 * SECOND)
    opened_at(root, YEARS)
    assert "last used" not in caplog.text


def at(minute: int, jump: int) -> int:
    return 1_700_000_000 * SECOND + minute * 60 * SECOND + jump
