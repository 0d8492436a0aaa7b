"""WebSocket: RFC 6455 as a hostile client speaks it, and which pages may connect."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.server.kit import (
    BINARY,
    CLOSE,
    CONTINUATION,
    DEADLINE_SECONDS,
    FRAME_BYTES_MAX,
    ID,
    PING,
    PONG,
    TEXT,
    BrokerProcess,
    Ended,
    Message,
    Start,
    TcpClient,
    WsClient,
    WsFrame,
    eventually,
    message,
    upgrade,
    ws_frame,
)

Tcp = Callable[..., TcpClient]
Ws = Callable[..., WsClient]
BEAT = message(f"request:system.heartbeat:1.0.0:{ID}", b"{}")


# messages and fragments


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_message_may_be_text_or_binary(ws: Ws, opcode: int) -> None:
    client = ws()
    client.raw(ws_frame(opcode, BEAT))
    assert client.receive().request_id == ID


def test_what_is_text_comes_as_text_and_what_is_not_as_binary(ws: Ws) -> None:
    client = ws()
    client.subscribe("ws.kinds")
    for payload, opcode in ((b"plain", TEXT), ("\N{SNOWMAN}".encode(), TEXT), (b"\xff\x00", BINARY)):
        client.send("publish:ws.kinds:1.0.0", payload)
        frame = client.receive_frame()
        assert (frame.opcode, Message.parse(frame.payload).payload) == (opcode, payload)


def test_a_message_may_come_in_fragments_with_a_ping_between_them(ws: Ws) -> None:
    client = ws()
    client.raw(ws_frame(TEXT, BEAT[:5], fin=False))
    client.raw(ws_frame(PING, b"there?"))
    assert client.receive_frame() == WsFrame(PONG, b"there?")
    client.raw(ws_frame(CONTINUATION, BEAT[5:9], fin=False) + ws_frame(PONG, b"unasked"))
    client.raw(ws_frame(CONTINUATION, BEAT[9:]))
    assert client.receive().request_id == ID


def test_a_message_may_come_a_byte_a_fragment_and_a_byte_a_packet(ws: Ws) -> None:
    client = ws()
    parts = [ws_frame(BINARY, BEAT[:1], fin=False)]
    parts += [ws_frame(CONTINUATION, BEAT[place : place + 1], fin=False) for place in range(1, len(BEAT))]
    whole = b"".join([*parts, ws_frame(CONTINUATION, b"")])
    for place in range(len(whole)):
        client.raw(whole[place : place + 1])
    assert client.receive().request_id == ID


def test_a_character_may_be_split_over_two_fragments(ws: Ws) -> None:
    client = ws()
    client.subscribe("ws.split")
    content = message("publish:ws.split:1.0.0", "\N{SNOWMAN}".encode())
    client.raw(ws_frame(TEXT, content[:-1], fin=False) + ws_frame(CONTINUATION, content[-1:]))
    assert client.receive().payload == "\N{SNOWMAN}".encode()


def test_messages_and_a_ping_that_ends_the_read_are_all_answered(ws: Ws) -> None:
    client = ws()
    client.raw(ws_frame(BINARY, BEAT) + ws_frame(BINARY, BEAT) + ws_frame(PING, b"last"))
    found = [client.receive_frame() for _ in range(3)]
    assert sorted(frame.opcode for frame in found) == [TEXT, TEXT, PONG]


def test_a_message_is_answered_while_the_next_frame_is_half_there(ws: Ws) -> None:
    client = ws()
    whole = ws_frame(BINARY, BEAT)
    for cut in (1, 3, 7, 20):
        client.raw(whole + whole[:cut])
        assert client.receive().request_id == ID
        client.raw(whole[cut:])
        assert client.receive().request_id == ID


FLOODS = {
    "pings": ws_frame(PING, b""),
    "pongs": ws_frame(PONG, b""),
    "empty fragments": ws_frame(CONTINUATION, b"", fin=False),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_that_carry_nothing_ends_with_a_code_and_a_reason(ws: Ws, name: str) -> None:
    client = ws()
    client.raw(ws_frame(BINARY, b"", fin=False) + FLOODS[name] * 300)
    while (frame := client.receive_frame()).opcode == PONG:
        pass
    assert (frame.opcode, frame.close_code) == (CLOSE, 1008)
    assert b"more than 256 pings, pongs or empty fragments in 10 s, and no message" in frame.payload


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_that_does_not_stop_is_cut_off_and_costs_no_memory(
    ws: Ws, tcp: Tcp, broker: BrokerProcess, name: str
) -> None:
    other, client = tcp(), ws()
    before = broker.rss_bytes()
    client.raw(ws_frame(BINARY, b"", fin=False))
    with suppress(ConnectionError):
        for _ in range(10):
            client.raw(FLOODS[name] * 10_000)
    assert other.answers()
    with suppress(Ended):
        while client.receive_frame().opcode == PONG:
            pass
    assert broker.rss_bytes() - before < 16 << 20


@pytest.mark.parametrize("name", FLOODS)
def test_frames_that_carry_nothing_are_no_flood_with_messages_among_them(ws: Ws, name: str) -> None:
    client = ws()
    some = FLOODS[name] * 250
    for _ in range(5):
        fragments = (ws_frame(BINARY, BEAT[:9], fin=False), some, ws_frame(CONTINUATION, BEAT[9:]))
        client.raw(b"".join(fragments))
        found = [client.receive_frame() for _ in range(251 if name == "pings" else 1)]
        assert Message.parse(found[-1].payload).request_id == ID


def test_an_empty_message_is_malformed_and_the_connection_stays(ws: Ws) -> None:
    client = ws()
    client.raw(ws_frame(TEXT, b""))
    assert client.receive().error == "MALFORMED_MESSAGE"
    assert client.answers()


# what the protocol forbids


VIOLATIONS = {
    "unmasked": (ws_frame(BINARY, BEAT, mask=None), 1002),
    "reserved bit 1": (ws_frame(BINARY, BEAT, reserved=4), 1002),
    "reserved bit 2": (ws_frame(BINARY, BEAT, reserved=2), 1002),
    "reserved bit 3": (ws_frame(PING, b"", reserved=1), 1002),
    "opcode 3": (ws_frame(3, BEAT), 1002),
    "opcode 15": (ws_frame(15, b""), 1002),
    "continuation of nothing": (ws_frame(CONTINUATION, BEAT), 1002),
    "message within a message": (ws_frame(BINARY, b"a", fin=False) + ws_frame(BINARY, BEAT), 1002),
    "text within a message": (ws_frame(BINARY, b"", fin=False) + ws_frame(TEXT, BEAT), 1002),
    "fragmented ping": (ws_frame(PING, b"", fin=False), 1002),
    "ping of 126 bytes": (ws_frame(PING, bytes(126)), 1002),
    "close of 126 bytes": (ws_frame(CLOSE, b"\x03\xe8" + bytes(124)), 1002),
    "16-bit length not needed": (b"\x82\xfe\x00\x05" + bytes(9), 1002),
    "64-bit length not needed": (b"\x82\xff" + (5).to_bytes(8, "big") + bytes(9), 1002),
    "64-bit length with its top bit": (b"\x82\xff" + (2**63 + 5).to_bytes(8, "big") + bytes(9), 1002),
    "text that is not UTF-8": (ws_frame(TEXT, message("publish:a.b:1.0.0", b"\xff\xfe")), 1007),
    "text that ends in half a character": (ws_frame(TEXT, message("publish:a.b:1.0.0", b"\xe2\x98")), 1007),
    "text with a surrogate": (ws_frame(TEXT, message("publish:a.b:1.0.0", b"\xed\xa0\x80")), 1007),
    "close of one byte": (ws_frame(CLOSE, b"\x03"), 1002),
    "close with a reserved code": (ws_frame(CLOSE, (1005).to_bytes(2, "big")), 1002),
    "close with a code of TLS": (ws_frame(CLOSE, (1015).to_bytes(2, "big")), 1002),
    "close with a code too low": (ws_frame(CLOSE, (999).to_bytes(2, "big")), 1002),
    "close with words that are not UTF-8": (ws_frame(CLOSE, b"\x03\xe8\xff"), 1007),
    "2 GiB declared": (ws_frame(BINARY, b"", declared=2**31), 1009),
    "2 GiB declared as a fragment": (ws_frame(BINARY, b"", fin=False, declared=2**31), 1009),
    "one byte more than a message has": (ws_frame(BINARY, b"", declared=FRAME_BYTES_MAX + 1), 1009),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_ends_the_connection_with_its_code(ws: Ws, broker: BrokerProcess, name: str) -> None:
    before = broker.rss_bytes()
    client = ws()
    data, code = VIOLATIONS[name]
    client.raw(data)
    assert client.closed() == code
    assert broker.rss_bytes() - before < 16 << 20


@pytest.mark.parametrize("name", ["reserved bit 1", "continuation of nothing", "text that is not UTF-8"])
def test_nothing_after_a_violation_is_done(ws: Ws, tcp: Tcp, name: str) -> None:
    subscriber, client = tcp(), ws()
    subscriber.subscribe("ws.after")
    client.raw(VIOLATIONS[name][0] + ws_frame(BINARY, message("publish:ws.after:1.0.0", b"must not come")))
    assert client.closed() == VIOLATIONS[name][1]
    assert subscriber.answers()


def test_nothing_after_a_close_frame_is_done(ws: Ws, tcp: Tcp) -> None:
    subscriber, client = tcp(), ws()
    subscriber.subscribe("ws.after")
    client.raw(ws_frame(CLOSE, b"\x03\xe8") + ws_frame(BINARY, message("publish:ws.after:1.0.0", b"must not come")))
    assert client.closed() == 1000
    assert subscriber.answers()


def test_what_came_before_a_violation_is_answered(ws: Ws) -> None:
    client = ws()
    client.raw(ws_frame(BINARY, BEAT) + VIOLATIONS["reserved bit 1"][0])
    assert client.receive().request_id == ID
    assert client.closed() == 1002


def test_what_came_before_a_close_frame_is_answered(ws: Ws) -> None:
    client = ws()
    client.raw(ws_frame(BINARY, BEAT) + ws_frame(CLOSE, b"\x03\xe8"))
    assert client.receive().request_id == ID
    assert client.closed() == 1000


@pytest.mark.parametrize("name", ["opcode 3", "unmasked", "2 GiB declared"])
def test_a_message_in_one_read_with_an_impossible_frame_is_answered(ws: Ws, name: str) -> None:
    client = ws()
    client.raw(ws_frame(BINARY, BEAT) + VIOLATIONS[name][0])
    assert client.receive().request_id == ID
    assert client.closed() == VIOLATIONS[name][1]


# closing


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4999])
def test_a_close_is_answered_with_its_own_code(ws: Ws, code: int) -> None:
    client = ws()
    client.raw(ws_frame(CLOSE, code.to_bytes(2, "big") + b"good bye"))
    assert client.closed() == code


def test_a_close_without_a_code_is_answered_without_one_or_with_1000(ws: Ws) -> None:
    client = ws()
    client.raw(ws_frame(CLOSE))
    assert client.closed() in (None, 1000)


@pytest.mark.parametrize("code", [0, 1006, 5000, 65535])
def test_a_close_code_nobody_may_send_is_a_violation(ws: Ws, code: int) -> None:
    client = ws()
    client.raw(ws_frame(CLOSE, code.to_bytes(2, "big")))
    assert client.closed() == 1002


def test_subscriptions_end_with_the_close_frame(ws: Ws, tcp: Tcp) -> None:
    client, other = ws(), tcp()
    client.subscribe("ws.closed")
    client.raw(ws_frame(CLOSE, b"\x03\xe8"))
    assert client.closed() == 1000
    eventually(lambda: other.ask(f"publish:ws.closed:1.0.0:{ID}").error == "NO_ROUTE_FOUND", "it is gone")


# upgrading


def status(broker: BrokerProcess, request: bytes) -> int:
    with WsClient(broker.ws_port, greet=False) as client:
        client.raw(request)
        return client.response_status()


@pytest.mark.parametrize(
    ("request_line", "dropped", "changed"),
    [
        ("POST / HTTP/1.1", (), {}),
        ("GET / HTTP/1.0", (), {}),
        ("GET /", (), {}),
        ("nonsense", (), {}),
        ("GET / HTTP/1.1", ("Upgrade",), {}),
        ("GET / HTTP/1.1", ("Connection",), {}),
        ("GET / HTTP/1.1", ("Sec-WebSocket-Key",), {}),
        ("GET / HTTP/1.1", ("Sec-WebSocket-Version",), {}),
        ("GET / HTTP/1.1", (), {"Upgrade": "h2c"}),
        ("GET / HTTP/1.1", (), {"Sec_WebSocket_Key": "short"}),
        ("GET / HTTP/1.1", (), {"Sec_WebSocket_Key": "\xe9" * 24}),
        ("GET / HTTP/1.1", (), {"Sec_WebSocket_Version": "12"}),
        ("GET / HTTP/1.1", (), {"Content_Length": "-1"}),
        ("GET / HTTP/1.1", (), {"Bad header": "x"}),
    ],
)
def test_a_request_that_is_no_upgrade_is_refused(
    broker: BrokerProcess, request_line: str, dropped: tuple[str, ...], changed: dict[str, Any]
) -> None:
    found = status(broker, upgrade(broker.ws_port, drop=dropped, request=request_line, **changed))
    assert 400 <= found < 500


def test_a_version_that_is_no_text_is_refused_like_any_other(start: Start) -> None:
    broker = start("--log-level", "debug", tcp="off")
    assert status(broker, upgrade(broker.ws_port, Sec_WebSocket_Version="\xff 13")) == 426


def test_a_huge_upgrade_request_is_refused_and_not_kept(broker: BrokerProcess) -> None:
    before = broker.rss_bytes()
    with WsClient(broker.ws_port, greet=False) as client:
        client.raw(b"GET / HTTP/1.1\r\n")
        try:
            for _ in range(640):
                client.raw(b"X-Padding: " + b"x" * 65536 + b"\r\n")
        except ConnectionError:
            pass
        with suppress(Ended):
            assert client.response_status() in (400, 413, 431)
    assert broker.rss_bytes() - before < 16 << 20, "of 40 MiB that were sent"


def test_an_upgrade_request_may_come_slowly_and_with_a_message_behind_it(broker: BrokerProcess) -> None:
    with WsClient(broker.ws_port, greet=False) as client:
        request = upgrade(broker.ws_port)
        for place in range(len(request) - 1):
            client.raw(request[place : place + 1])
        client.raw(request[-1:] + ws_frame(BINARY, BEAT))
        assert client.response_status() == 101
        assert client.receive().topic == "system.initialize"
        assert client.receive().request_id == ID


# which pages may


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, 101),
        ("http://127.0.0.1:8000", 101),
        ("https://127.0.0.1", 101),
        ("http://localhost:3000", 101),
        ("HTTP://LOCALHOST", 101),
        ("http://[::1]:3000", 101),
        ("http://foreign.example", 403),
        ("https://localhost.foreign.example", 403),
        ("https://127.0.0.1.foreign.example", 403),
        ("null", 403),
        ("", 403),
        ("file://", 403),
        ("http://", 403),
    ],
)
def test_pages_of_this_machine_may_connect_and_foreign_ones_may_not(
    broker: BrokerProcess, origin: str | None, expected: int
) -> None:
    headers: dict[str, Any] = {} if origin is None else {"Origin": origin}
    assert status(broker, upgrade(broker.ws_port, **headers)) == expected


@pytest.mark.parametrize("origin", ["http://[::1", "http://[foreign]", "http://foreign.example:port"])
def test_an_origin_that_is_no_address_is_refused_as_foreign(broker: BrokerProcess, origin: str) -> None:
    assert status(broker, upgrade(broker.ws_port, Origin=origin)) == 403


def test_a_foreign_name_that_points_here_does_not_make_its_pages_local(broker: BrokerProcess) -> None:
    request = upgrade(broker.ws_port, Host="foreign.example:7451", Origin="http://foreign.example:7451")
    assert status(broker, request) == 403


def test_listed_origins_may_connect_and_others_still_may_not(start: Start) -> None:
    broker = start("--ws-origin", "https://app.example", "--ws-origin", "http://other.example:81", tcp="off")
    for origin, expected in (
        ("https://app.example", 101),
        ("http://other.example:81", 101),
        ("http://app.example", 403),
        ("http://other.example", 403),
        ("http://localhost", 101),
    ):
        assert status(broker, upgrade(broker.ws_port, Origin=origin)) == expected


def test_a_refused_page_is_told_why_and_disconnected(broker: BrokerProcess) -> None:
    with WsClient(broker.ws_port, greet=False) as client:
        client.raw(upgrade(broker.ws_port, Origin="http://foreign.example") + ws_frame(BINARY, BEAT))
        assert client.response_status() == 403
        assert b"--ws-origin" in client.until(b"\n")
        client.ended()


# pings


def test_pings_that_are_never_read_do_not_fill_the_memory(ws: Ws, broker: BrokerProcess) -> None:
    client = ws()
    before, peak = broker.rss_bytes(), 0
    chunk = ws_frame(PING, bytes(125)) * 1000
    client.socket.settimeout(2)
    until = time.monotonic() + 120
    try:
        for _ in range(600):
            client.raw(chunk)
            peak = max(peak, broker.rss_bytes() - before)
            assert time.monotonic() < until
    except (ConnectionError, TimeoutError):
        pass
    assert peak < 48 << 20, "of 75 MiB that were sent"


def test_pings_count_as_signs_of_life(start: Start) -> None:
    broker = start(limits={"heartbeat_retry_ms": 4000, "heartbeat_deregister_ms": 5000}, tcp="off")
    with WsClient(broker.ws_port) as client:
        until = time.monotonic() + 6
        while time.monotonic() < until:
            client.socket.settimeout(DEADLINE_SECONDS)
            client.raw(ws_frame(PING, b"x"))
            assert client.receive_frame().opcode == PONG
            client.socket.settimeout(0.2)
            try:
                raise AssertionError(client.receive_frame())
            except TimeoutError:
                pass
