"""`penstock top`: once for scripts, refreshed for people; the terminal is restored."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time

import pytest
from tests.cli.kit import Run

import penstock
from penstock.testing import RunningBroker


@pytest.fixture
def busy(keeper: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    """Start a broker with a topic and a subscription that lags."""
    monkeypatch.setenv("PENSTOCK_URL", keeper.url)
    with penstock.connect(keeper.url) as client:
        with client.consumer("top.orders", "billing"):
            pass
        client.publish_many("top.orders", [b"order"] * 7)
    return keeper


def test_where_the_output_is_no_terminal_it_is_printed_once(here: Run, busy: RunningBroker) -> None:
    said = here("top", "--rows", "500")
    assert said.code == 0
    for words in (
        "topics by rate",
        "subscriptions by lag",
        "/default/top.orders",
        "billing",
        "no consumer is",
        "sync ",
    ):
        assert words in said.out
    assert "\x1b" not in said.out


def test_for_scripts_there_is_json(here: Run, busy: RunningBroker) -> None:
    (seen,) = here("top", "--once", "--json").rows
    (topic,) = [each for each in seen["topics"] if each["topic"] == "/default/top.orders"]
    assert topic["messages"] >= 7
    (sub,) = [each for each in seen["subscriptions"] if each["topic"] == "/default/top.orders"]
    assert (sub["subscription"], sub["consumers"]) == ("billing", 0)
    assert sub["lag"] >= 7
    assert seen["connections"] >= 1
    assert seen["sync_p99_ms"] > 0


def test_topics_are_in_the_order_of_their_rates_and_subscriptions_of_their_lags(here: Run, busy: RunningBroker) -> None:
    (seen,) = here("top", "--once", "--json").rows
    rates = [each["rate"] for each in seen["topics"]]
    lags = [each["lag"] for each in seen["subscriptions"]]
    assert (rates, lags) == (sorted(rates, reverse=True), sorted(lags, reverse=True))


@pytest.mark.parametrize("interval", ["1ms", "2d", "soon", "-1s", ""])
def test_an_interval_that_cannot_be_is_refused(here: Run, interval: str) -> None:
    here("top", f"--interval={interval}").refused("" if interval in ("soon", "-1s", "") else "interval")


def test_a_broker_that_is_not_there_is_said(here: Run) -> None:
    here("top", "--url", "tcp://127.0.0.1:9").refused("127.0.0.1:9")


def test_in_a_terminal_it_goes_on_until_ctrl_c_and_leaves_the_terminal_as_it_was(
    busy: RunningBroker, environment: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "penstock", "top", "--interval", "200ms", "--rows", "500"]
    pid, terminal = pty.fork()
    if pid == 0:
        size = {"TERM": "xterm", "COLUMNS": "120", "LINES": "200"}
        os.execve(sys.executable, command, environment | size | {"PENSTOCK_URL": busy.url})
    said = read_until(terminal, b"", lambda text: text.count(b"top.orders") >= 2)
    os.kill(pid, signal.SIGINT)
    said = read_until(terminal, said, lambda text: text.rstrip().endswith(b"\x1b[?1049l"))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(terminal)
    for on, off in ((b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h")):  # another screen; no cursor
        assert said.index(on) < said.rindex(off)
    assert b"Traceback" not in said


def read_until(terminal: int, said: bytes, done: object) -> bytes:
    until = time.monotonic() + 60
    while not done(said):  # type: ignore[operator]
        assert time.monotonic() < until, said[-500:]
        try:
            said += os.read(terminal, 65536)
        except OSError:  # nobody is at the other end any more
            break
    return said
