"""Floods: a client that sends empty frames at full speed, or holds much memory, takes nothing from the others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.server import flooder
from tests.server.kit import (
    BINARY,
    CONTINUATION,
    ID,
    OTHER_ID,
    BrokerProcess,
    Ended,
    Start,
    TcpClient,
    WsClient,
    eventually,
    framed,
    launch,
    message,
    ws_frame,
)

from penstock.core.limits import MIB
from penstock.server.resources.buffer_budget import UNAUTHENTICATED_BYTES_MAX
from penstock.server.session import UNAUTHENTICATED_MESSAGES_MAX

ANSWERS = 50
SECONDS = 30.0
"""A busy machine needs a second or two; without turns that are shared it takes minutes."""


@pytest.fixture(scope="module")
def flooded(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = launch(tmp_path_factory.mktemp("flooded"), environment, "--log-level", "warn").wait_ready()
    try:
        yield started
    finally:
        started.stop()
    assert started.defects() == []


@contextmanager
def flooding(kind: str, port: int, connections: int = 4) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.server.flooder", kind, str(port), str(connections)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "flooding\n"
            yield
            assert process.poll() is None, "it went on to the end"
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*flooder.WEBSOCKET, *flooder.TCP])
def test_a_flood_leaves_the_others_their_turns(flooded: BrokerProcess, kind: str) -> None:
    """A bound that a busy machine keeps, and that finds a broker that stands still. The share of each connection is
    held by `test_turns.py`, which counts: of empty frames and endless headers over TCP by the test that all who are
    busy share one slice, of frames on a WebSocket by those of one read in several turns."""
    port = flooded.ws_port if kind in flooder.WEBSOCKET else flooded.tcp_port
    with TcpClient(flooded.tcp_port) as healthy, flooding(kind, port):
        began = time.monotonic()
        for _ in range(ANSWERS):
            assert healthy.answers()
            assert time.monotonic() - began < SECONDS


# memory


def held_bytes(broker: BrokerProcess) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.ready['http_port']}/metrics", timeout=SECONDS) as answer:
        found = re.search(rb"^penstock_held_bytes (\S+)$", answer.read(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


@pytest.mark.parametrize("transport", [TcpClient, WsClient])
def test_unauthenticated_connections_hold_little_each_and_little_together(
    start: Start, transport: type[TcpClient | WsClient]
) -> None:
    broker = start("--auth", "on", "--log-level", "warn")
    port = broker.tcp_port if transport is TcpClient else broker.ws_port
    before = broker.rss_bytes()
    room = UNAUTHENTICATED_BYTES_MAX // 60_000
    with ExitStack() as stack:
        links = [stack.enter_context(transport(port)) for _ in range(room + 40)]
        for link in links:
            link.raw(link.frame(bytes(60_000))[:-1])
        assert links[-1].receive().error == "QUOTA_EXCEEDED"
        assert links[0].ask(f"request:system.heartbeat:1.0.0:{ID}", b"{}").error, "it is asked who it is"
        assert broker.rss_bytes() - before < 64 * MIB


@pytest.mark.parametrize("transport", [TcpClient, WsClient])
def test_unauthenticated_connections_that_send_many_messages_end_before_much_is_held(
    start: Start, transport: type[TcpClient | WsClient]
) -> None:
    """Empty frames are the smallest there are: a read of them makes the most work, which waits for its turn."""
    broker = start("--auth", "on", "--log-level", "warn")
    port = broker.tcp_port if transport is TcpClient else broker.ws_port
    before, most = broker.rss_bytes(), 0
    with ExitStack() as stack:
        links = [stack.enter_context(transport(port)) for _ in range(300)]
        flood = links[0].frame(b"") * (400_000 // len(links[0].frame(b"")))
        senders = [threading.Thread(target=_send, args=(link, flood), daemon=True) for link in links]
        for sender in senders:
            sender.start()
        while any(sender.is_alive() for sender in senders):
            most = max(most, broker.rss_bytes())
            time.sleep(0.05)
        assert most - before < 64 * MIB, "of 120 MiB that are sent"
    with TcpClient(broker.tcp_port) as other:
        assert other.ask(f"request:system.topic.list:1.0.0:{ID}", b"{}").error == "UNAUTHORIZED"


def test_an_unauthenticated_connection_that_sends_many_messages_is_told_to_authenticate(start: Start) -> None:
    broker = start("--auth", "on", "--log-level", "warn")
    with TcpClient(broker.tcp_port) as link:
        for _ in range(UNAUTHENTICATED_MESSAGES_MAX - 1):
            assert link.ask(f"request:system.topic.list:1.0.0:{ID}", b"{}").error == "UNAUTHORIZED"
        assert link.ask(f"request:system.topic.list:1.0.0:{ID}", b"{}").error == "UNAUTHORIZED"
        last = link.receive()
        assert "authenticate first" in last.json["error"]["message"]
        with pytest.raises(Ended):
            link.exactly(1)


def test_an_unauthenticated_websocket_sends_no_large_fragment(start: Start) -> None:
    broker = start("--auth", "on", "--log-level", "warn")
    with WsClient(broker.ws_port) as one, WsClient(broker.ws_port) as two:
        one.raw(ws_frame(BINARY, b"", fin=False, declared=4 * MIB))
        assert one.closed() == 1009
        two.raw(ws_frame(BINARY, bytes(60_000), fin=False) + ws_frame(CONTINUATION, b"", declared=10_000))
        assert two.closed() == 1009


TIGHT = {"held_bytes_max": 32 * MIB}


def test_half_sent_messages_leave_room_for_whole_ones(start: Start) -> None:
    broker = start("--log-level", "info", "--http-port", "0", limits=TIGHT)
    before = broker.rss_bytes()
    with ExitStack() as stack:
        healthy = stack.enter_context(TcpClient(broker.tcp_port))
        for _ in range(30):
            link = stack.enter_context(TcpClient(broker.tcp_port))
            threading.Thread(target=_send_most_of, args=(link, 4 * MIB), daemon=True).start()
        eventually(lambda: held_bytes(broker) > 12 * MIB, "there is no room for a large message")
        assert healthy.answers()
        assert held_bytes(broker) <= TIGHT["held_bytes_max"]
        assert broker.rss_bytes() - before < 80 * MIB, "of 120 MiB that are sent"
        answer = healthy.ask(f"request:system.heartbeat:1.0.0:{ID}", bytes(MIB))
        assert (answer.error, answer.request_id) == ("", ID)
        assert "did not get on while others waited for room" in broker.log()


def _send(link: TcpClient | WsClient, data: bytes) -> None:
    with suppress(OSError):  # it is closed before all of it is there
        link.raw(data)


def _send_most_of(link: TcpClient, size: int) -> None:
    with suppress(OSError):
        link.raw(framed(message(f"request:system.heartbeat:1.0.0:{ID}", bytes(size - 100)))[:-1000])


def test_readers_that_do_not_read_go_before_there_is_no_room(start: Start) -> None:
    broker = start("--log-level", "info", "--http-port", "0", limits=TIGHT)
    with ExitStack() as stack:
        publisher, healthy = (stack.enter_context(TcpClient(broker.tcp_port)) for _ in range(2))
        healthy.subscribe("floods.healthy")
        for number in range(20):
            stack.enter_context(TcpClient(broker.tcp_port)).subscribe(f"floods.stalled{number}")
        publisher.socket.settimeout(SECONDS)
        payload = bytes(MIB)
        for _ in range(8):
            for number in range(20):
                publisher.send(f"publish:floods.stalled{number}:1.0.0", payload)
            publisher.send("publish:floods.healthy:1.0.0", b"read")
            assert healthy.receive().payload == b"read"
        eventually(lambda: "all connections together are over the limit" in broker.log(), "some were let go")
        eventually(lambda: held_bytes(broker) <= TIGHT["held_bytes_max"], "there is room again")
        assert healthy.answers()


# schemas


def test_comparisons_of_one_connection_do_not_keep_the_registry_from_another(start: Start) -> None:
    """The old order would answer the registration after all of them."""
    broker = start("--log-level", "warn")
    sides = {"reader": range(60_000), "writer": range(1, 60_001)}  # most of a second, for one comparison
    asked = {side: {"type": "JSON", "schema": json.dumps({"enum": list(values)})} for side, values in sides.items()}
    count = 20
    with TcpClient(broker.tcp_port) as flooder, TcpClient(broker.tcp_port) as other:
        flooder.socket.settimeout(SECONDS)
        question = json.dumps(asked).encode()
        flooder.raw(framed(message(f"request:system.schema.compare:1.0.0:{ID}", question)) * count)
        assert flooder.receive().json.keys() >= {"compatible"}
        wanted = json.dumps({"subject": "other", "type": "JSON", "schema": '{"type":"object"}'}).encode()
        other.socket.settimeout(2 * SECONDS)
        assert other.ask(f"request:system.schema.register:1.0.0:{OTHER_ID}", wanted).json["version"] == 1
        flooder.socket.settimeout(0)
        answered = 1
        with suppress(BlockingIOError):
            while True:
                flooder.receive()
                answered += 1
        assert answered < count // 2
