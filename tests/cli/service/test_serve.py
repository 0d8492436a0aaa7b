"""`penstock serve`, as a user starts it."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest
from tests.cli.kit import Run, Start

from penstock.testing import RunningBroker


def test_it_says_where_it_listens_and_stops_when_told(start: Start, home: Path) -> None:
    ready = home / "ready.json"
    with start(
        "serve", "--tcp-port", "0", "--ws-port", "off", "--http-port", "off", "--ready-file", ready, "--json"
    ) as process:
        assert process.stdout is not None
        announced = json.loads(process.stdout.readline())
        assert announced == json.loads(ready.read_text())
        assert announced["pid"] == process.pid
        assert announced["data"] == str(home / "penstock-data")
        assert announced["ws_port"] is announced["http_port"] is None
        with socket.create_connection(("127.0.0.1", announced["tcp_port"])) as connection:
            assert connection.recv(4) == b"\x00\x00\x00\x22"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_ctrl_c_is_130_and_the_log_tells_of_it(start: Start) -> None:
    with start("serve", "--tcp-port", "0", "--ws-port", "0", "--http-port", "0", "--log-format", "json") as process:
        assert process.stdout is not None
        assert b"penstock is ready: TCP tcp://127.0.0.1:" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert events == ["listening", "stopping", "stopped"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], ["lets other machines in", "--tls-cert", "--tls-ca"]),
        (["--host", "0.0.0.0", "--allow-plaintext"], ["authentication", "--allow-anonymous"]),
        (["--tcp-port", "x"], ["--tcp-port", "from 0 to 65535"]),
        (["--tcp-port", "off", "--ws-port", "off"], ["nobody could connect"]),
        (["--tls-cert", "a.pem"], ["--tls-key"]),
        (["--tls-cert", "a.pem", "--tls-key", "b.pem"], ["a.pem", "cannot be used"]),
        (["--log-level", "loud"], ["--log-level", "debug, info, warn, error"]),
        (["--config", "nowhere.toml"], ["nowhere.toml", "cannot be read"]),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(here: Run, arguments: list[str], words: list[str]) -> None:
    here("serve", *arguments).refused(*words)


def test_a_broker_that_could_not_start_leaves_signals_as_they_were(here: Run) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        here("serve", "--tls-cert", "a.pem", "--tls-key", "b.pem").refused("cannot be used")
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_an_unknown_key_is_refused_with_a_suggestion(here: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "a.toml").write_text("[limits]\npayload_byte_max = 5\n")
    here("serve", "--config", "a.toml").refused("limits.payload_byte_max", "did you mean payload_bytes_max?")
    monkeypatch.setenv("PENSTOCK_TCP_PROT", "1")
    here("serve").refused("PENSTOCK_TCP_PROT", "did you mean PENSTOCK_TCP_PORT?")


def test_a_port_in_use_and_a_directory_in_use_are_named(apart: Run, broker: RunningBroker) -> None:
    taken = apart("serve", "--tcp-port", str(broker.tcp_port), "--ws-port", "off", "--http-port", "off")
    assert taken.code == 2
    assert f"cannot listen on 127.0.0.1 port {broker.tcp_port}" in taken.err
    owned = apart("serve", "--data", broker.data, "--tcp-port", "0", "--ws-port", "0", "--http-port", "0")
    assert owned.code == 2
    assert "NOT_OWNER" in owned.err
