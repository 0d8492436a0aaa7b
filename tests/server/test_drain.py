"""Stopping: the broker announces it, lets open requests finish, and is gone within its grace time."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time

import pytest
from tests.server.kit import DEADLINE_SECONDS, ID, BrokerProcess, Start, TcpClient, WsClient, eventually, message

GRACE_MS = 120_000
SLACK_SECONDS = 40.0
"""The time for a process to end on a busy machine: far less than the grace time, so that a test can tell that none of
it was waited for."""
LIMITS = {"drain_ms": GRACE_MS}


def stopped_within(broker: BrokerProcess, seconds: float, began: float | None = None) -> float:
    """Stop the broker, check that its exit code is 0, and return how long it took."""
    began = time.monotonic() if began is None else began
    assert broker.wait(seconds) == 0
    return time.monotonic() - began


def test_everybody_is_told_and_the_exit_code_is_0(start: Start) -> None:
    broker = start(limits=LIMITS)
    with TcpClient(broker.tcp_port) as one, WsClient(broker.ws_port) as other:
        broker.signal(signal.SIGTERM)
        (told,) = one.receive_until_end()
        assert (told.action, told.topic) == ("publish", "system.closing")
        assert told.json == {"reason": "the broker is stopping", "graceMs": GRACE_MS}
        assert other.receive().topic == "system.closing"
        assert other.closed() in (1001, 1012, 1013)
        stopped_within(broker, SLACK_SECONDS)
    assert "stopped" in broker.log()


def test_ctrl_c_ends_it_in_the_same_way_with_130(start: Start) -> None:
    broker = start(limits=LIMITS)
    with TcpClient(broker.tcp_port) as client:
        broker.signal(signal.SIGINT)
        assert [each.topic for each in client.receive_until_end()] == ["system.closing"]
    assert broker.wait() == 130


def test_a_second_signal_does_not_wait(start: Start) -> None:
    broker = start(limits=LIMITS)
    with TcpClient(broker.tcp_port) as server, TcpClient(broker.tcp_port) as client:
        server.subscribe("drain.open", "request")
        client.send(f"request:drain.open:1.0.0:{ID}::{GRACE_MS}")
        server.receive()
        broker.signal(signal.SIGTERM)
        assert client.receive().topic == "system.closing"
        broker.signal(signal.SIGTERM)
        assert broker.wait(SLACK_SECONDS) == 128 + signal.SIGTERM


def test_an_open_request_is_still_answered_and_new_ones_are_refused(start: Start) -> None:
    broker = start(limits=LIMITS)
    with TcpClient(broker.tcp_port) as server, WsClient(broker.ws_port) as client:
        server.subscribe("drain.open", "request")
        client.send(f"request:drain.open:1.0.0:{ID}::{GRACE_MS}", b"?")
        asked = server.receive()
        broker.signal(signal.SIGTERM)
        assert server.receive().topic == "system.closing"
        assert client.receive().topic == "system.closing"
        refused = client.ask(f"request:drain.open:1.0.0:{ID}", b"again?")
        assert refused.error == "SERVICE_UNAVAILABLE"
        for port in (broker.tcp_port, broker.ws_port):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS)
        server.send(f"response:drain.open:1.0.0:{asked.request_id}", b"!")
        assert client.receive().payload == b"!"
        stopped_within(broker, SLACK_SECONDS)


@pytest.mark.parametrize("server_first", [True, False])
def test_a_request_nobody_answers_is_told_so_at_the_end_of_the_grace_time(start: Start, server_first: bool) -> None:
    broker = start(limits={"drain_ms": 1000})
    with TcpClient(broker.tcp_port) as one, TcpClient(broker.tcp_port) as other:
        server, client = (one, other) if server_first else (other, one)
        server.subscribe("drain.never", "request")
        client.send(f"request:drain.never:1.0.0:{ID}::{GRACE_MS}")
        server.receive()
        began = time.monotonic()
        broker.signal(signal.SIGTERM)
        assert stopped_within(broker, 1 + SLACK_SECONDS, began) > 0.5
        assert [each.error for each in client.receive_until_end()] == ["", "SERVICE_UNAVAILABLE"]


@pytest.mark.parametrize("with_id", [True, False])
def test_a_request_nobody_waits_for_does_not_keep_it_at_all(start: Start, with_id: bool) -> None:
    broker = start(limits=LIMITS)
    with TcpClient(broker.tcp_port) as server, TcpClient(broker.tcp_port) as client:
        server.subscribe("drain.alone", "request")
        client.send(f"request:drain.alone:1.0.0:{ID if with_id else ''}::{GRACE_MS}")
        server.receive()
        client.close()
        eventually(lambda: "closed by the client" in broker.log(), "it has gone")
        broker.signal(signal.SIGTERM)
        stopped_within(broker, SLACK_SECONDS)


def test_what_is_queued_is_sent_before_the_end(start: Start) -> None:
    broker = start(limits=LIMITS)
    with TcpClient(broker.tcp_port) as publisher, TcpClient(broker.tcp_port) as slow:
        slow.subscribe("drain.queued")
        for number in range(60):
            publisher.send("publish:drain.queued:1.0.0", number.to_bytes(2, "big") + bytes(100_000))
        assert publisher.answers()
        broker.signal(signal.SIGTERM)
        found = slow.receive_until_end()
        assert [int.from_bytes(each.payload[:2], "big") for each in found[:-1]] == list(range(60))
        assert found[-1].topic == "system.closing"
        stopped_within(broker, SLACK_SECONDS)


@pytest.mark.parametrize("transport", [TcpClient, WsClient])
def test_a_client_that_does_not_read_does_not_delay_it_beyond_the_grace_time(
    start: Start, transport: type[TcpClient | WsClient]
) -> None:
    broker = start("--log-level", "info", limits={"drain_ms": 1000, "output_bytes_max": 32 << 20})
    with TcpClient(broker.tcp_port) as publisher:
        stalled = transport(broker.tcp_port if transport is TcpClient else broker.ws_port)
        with stalled:
            stalled.subscribe("drain.stalled")
            for _ in range(160):
                publisher.send("publish:drain.stalled:1.0.0", bytes(100_000))
            assert publisher.answers()
            broker.signal(signal.SIGTERM)
            stopped_within(broker, 1 + SLACK_SECONDS)


def test_half_a_handshake_and_half_a_frame_do_not_delay_it(start: Start) -> None:
    broker = start(limits=LIMITS | {"handshake_ms": GRACE_MS})
    with TcpClient(broker.tcp_port) as half, WsClient(broker.ws_port, greet=False) as handshake:
        half.raw(b"\x00\x00\x10\x00abc")
        handshake.raw(b"GET / HTTP/1.1\r\n")
        broker.signal(signal.SIGTERM)
        stopped_within(broker, SLACK_SECONDS)


def test_killed_it_starts_again_on_the_same_data(start: Start) -> None:
    first = start()
    with TcpClient(first.tcp_port) as client:
        client.raw(client.frame(message(f"publish:a.b:1.0.0:{ID}")) * 100)
        first.signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        client.receive_until_end()
    second = start(folder=first.folder)
    assert second.data == first.data
    with TcpClient(second.tcp_port) as client:
        assert client.answers()


def test_a_second_broker_on_the_same_data_is_refused(start: Start, environment: dict[str, str]) -> None:
    first = start()
    other = first.folder / "other.json"
    command = ["serve", "--data", str(first.data), "--tcp-port", "0", "--ws-port", "off"]
    command += ["--http-port", "off", "--ready-file", str(other)]
    done = _run(environment, *command)
    assert done.returncode == 2
    assert "NOT_OWNER" in done.stderr
    assert not other.exists()
    assert json.loads(first.ready_file.read_text())["pid"] == first.pid


def _run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
