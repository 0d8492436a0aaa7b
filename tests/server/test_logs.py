"""Logs: one JSON object a line, never a payload, and followed over the wire without an echo."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from tests.server.kit import (
    DEADLINE_SECONDS,
    ID,
    OTHER_ID,
    BrokerProcess,
    Link,
    Start,
    TcpClient,
    WsClient,
    eventually,
    message,
)

Tcp = Callable[..., TcpClient]
CANARY = "c4n4ry-of-the-coal-mine"


def follow(client: Link, levels: list[str], regex: str | None = None) -> None:
    wanted = {"levels": levels} | ({} if regex is None else {"regex": regex})
    answer = client.ask(f"request:system.log.subscribe:1.0.0:{ID}", json.dumps(wanted).encode())
    assert answer.json == {"status": "success"}


def connected(client: Link) -> int:
    found = client.ask(f"request:system.metrics:1.0.0:{ID}", b'{"filter":"^connection.active$"}')
    return int(found.json["metrics"]["connection.active"])


def lines(client: Link, until: str, seconds: float = DEADLINE_SECONDS) -> list[dict[str, object]]:
    """Log lines as they come, until one says so."""
    found: list[dict[str, object]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        said = client.receive()
        if said.topic == "system.log":
            found.append(said.json)
            if said.json["message"] == until:
                return found
    raise AssertionError(f"{until!r} was never said: {found}")


def test_every_line_is_json_and_no_payload_is_ever_among_them(start: Start) -> None:
    broker = start("--log-level", "debug", "--log-format", "json", limits={"payload_bytes_max": 4096})
    secret = CANARY.encode()
    with TcpClient(broker.tcp_port) as one, WsClient(broker.ws_port) as other, TcpClient(broker.tcp_port) as server:
        one.subscribe("logs.canary")
        server.subscribe("logs.served", "request")
        for client in (one, other):
            client.send("publish:logs.canary:1.0.0", secret)
            client.send(f"publish:logs.canary:1.0.0:{ID}", secret * 2)
            client.send(f"publish:logs.canary:1.0.0:{ID}:{OTHER_ID}", secret)
            client.send("publish:logs.nobody:1.0.0", secret)
            client.send(f"publish:logs.canary:1.0.0:{ID}", secret * 180)
            client.send(f"publish:logs.canary:1.0:{ID}", secret)
            client.send(f"ack:logs.canary:1.0.0:{ID}", secret)
            client.send(f"request:system.topic.subscribe:1.0.0:{ID}", secret)
            client.send(f"request:system.topic.subscribe:1.0.0:{ID}", b'{"action":"' + secret + b'"}')
            client.send(f"request:system.service.list:1.0.0:{ID}", b'["' + secret + b'"]')
            client.send(f"request:system.log.subscribe:1.0.0:{ID}", b'{"regex":"(' + secret + b'"}')
            client.send(f"subscribe:logs.canary:1.0.0:{ID}", b'{"' + secret + b'":1}')
            client.raw(client.frame(secret))
            client.raw(client.frame(message(f"request:logs.served:1.0.0:{ID}::60000", secret)))
            asked = server.receive()
            server.send(f"response:logs.served:1.0.0:{asked.request_id}", secret)
            server.ask(f"response:logs.served:1.0.0:{asked.request_id}", secret)
        with TcpClient(broker.tcp_port) as last:
            last.raw((1 << 30).to_bytes(4, "big") + secret)
            last.receive_until_end()
        assert server.answers()
    assert broker.stop() == 0
    said = [json.loads(line) for line in broker.log().splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in said)
    assert {line["event"] for line in said} >= {"listening", "connected", "rejected", "traced", "stopping", "stopped"}
    assert CANARY not in broker.log()
    assert CANARY not in broker.out()


def test_a_service_name_cannot_forge_a_line(start: Start) -> None:
    name = "x\n2026 [error] forged\x1b[2J"
    for form in ("text", "json"):
        broker = start("--log-level", "debug", "--log-format", form)
        with TcpClient(broker.tcp_port) as client:
            wanted = json.dumps({"name": name, "description": "d"}).encode()
            assert client.ask(f"request:system.service.register:1.0.0:{ID}", wanted).error == ""
        broker.stop()
        assert "\x1b" not in broker.log()
        assert not any(line.startswith("2026 [error]") for line in broker.log().splitlines())


def test_an_origin_cannot_forge_a_line(start: Start) -> None:
    broker = start("--log-level", "debug", "--log-format", "json")
    with WsClient(broker.ws_port, greet=False) as client:
        client.raw(b"GET / HTTP/1.1\r\nHost: x\r\nOrigin: http://a\x1b[2Jb\r\n\r\n")
        assert client.response_status() >= 400
    broker.stop()
    assert all(json.loads(line) for line in broker.log().splitlines())


@pytest.mark.parametrize("transport", [TcpClient, WsClient])
def test_following_the_log_over_the_wire_does_not_feed_back_into_itself(
    broker: BrokerProcess, tcp: Tcp, transport: type[TcpClient | WsClient]
) -> None:
    port = broker.tcp_port if transport is TcpClient else broker.ws_port
    with transport(port) as follower, transport(port) as second:
        eventually(lambda: connected(follower) == 2, "those of earlier tests are gone, which is logged too")
        for client in (follower, second):
            follow(client, ["debug", "info", "warn", "error"])
        other = tcp()
        other.raw(other.frame(b"nonsense"))
        other.receive()
        other.close()
        found = lines(follower, "disconnected")
        assert [line["message"] for line in found if line["message"] != "connected"] == ["rejected", "disconnected"]
        before = len(broker.log())
        follower.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            raise AssertionError(follower.receive())
        assert len(broker.log()) == before, "the log grows with nobody doing anything"


def test_only_the_levels_and_words_asked_for_come(tcp: Tcp) -> None:
    follower, other = tcp(), tcp()
    follow(follower, ["info", "debug"], "^regis")
    other.raw(other.frame(b"nonsense"))
    other.receive()
    wanted = b'{"name":"logs","description":"a test"}'
    assert other.ask(f"request:system.service.register:1.0.0:{ID}", wanted).error == ""
    assert [line["message"] for line in lines(follower, "registered")] == ["registered"]
    assert follower.ask(f"request:system.log.unsubscribe:1.0.0:{ID}").error == ""
    assert other.ask(f"request:system.service.register:1.0.0:{ID}", wanted).error == ""
    assert follower.answers()


@pytest.mark.parametrize("regex", ["(", "[", "a{1001}", "x" * 257, "(?=a)", "\\1"])
def test_a_pattern_that_cannot_be_is_refused(tcp: Tcp, regex: str) -> None:
    client = tcp()
    wanted = json.dumps({"levels": ["info"], "regex": regex}).encode()
    assert client.ask(f"request:system.log.subscribe:1.0.0:{ID}", wanted).error == "INVALID_REQUEST"
    assert client.answers()


def test_a_pattern_made_to_take_for_ever_takes_no_time(tcp: Tcp) -> None:
    follower, other = tcp(), tcp()
    follow(follower, ["info", "debug"], "(r?){200}r{200}|(e|e)*$")
    began = time.monotonic()
    other.raw(other.frame(b"nonsense") * 50)
    assert {other.receive().error for _ in range(50)} == {"MALFORMED_MESSAGE"}
    assert follower.receive().topic == "system.log"
    assert time.monotonic() - began < DEADLINE_SECONDS


def test_a_follower_that_does_not_read_is_let_go_like_any_other(start: Start) -> None:
    broker = start("--log-level", "debug", limits={"output_bytes_max": 1 << 20, "payload_bytes_max": 1 << 20})
    with TcpClient(broker.tcp_port) as follower, TcpClient(broker.tcp_port) as noisy:
        follow(follower, ["debug"])
        chunk = noisy.frame(b"nonsense") * 500
        for _ in range(200):
            noisy.raw(chunk)
            for _ in range(500):
                noisy.receive()
            if "Too slow" in broker.log():
                break
        assert "Too slow" in broker.log()
        assert noisy.answers()


def test_nothing_that_a_client_says_of_itself_moves_the_cursor_of_who_reads_the_log(start: Start) -> None:
    broker = start("--log-level", "debug", "--log-format", "text")
    name = {"name": "a\x1b[2Jb\x9b\x07", "description": "d"}
    with TcpClient(broker.tcp_port) as client:
        answer = client.ask(f"request:system.service.register:1.0.0:{ID}", json.dumps(name).encode())
        assert answer.json == {"status": "success"}
    eventually(lambda: r"a\x1b[2Jb\x9b\x07" in broker.log(), "its name in the log")
    assert all(each.isprintable() or each == "\n" for each in broker.log())
