from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.server.http_kit import DEADLINE_SECONDS, Client, Serving, raw
from tests.server.tls_kit import Authority

from penstock.server.http_scope import header
from penstock.server.tls import ReloadingTls, TlsFiles
from penstock.server.transports import http
from penstock.server.transports.http import HttpServer
from penstock.server.transports.http_parser import HEAD_BYTES_MAX
from penstock.server.transports.http_slots import ConnectionSlots


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what was asked; `/slow` takes its time."""
    if scope["path"] == "/slow":
        await asyncio.sleep(0.1)
    said = {"method": scope["method"], "path": scope["raw_path"].decode(), "host": header(scope, b"host")}
    await Response(json.dumps(said))(scope, receive, send)


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with Serving(echo) as opened:
        yield opened


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    with Client(serving.port) as opened:
        yield opened


def test_the_application_sees_the_path_as_it_was_sent(client: Client) -> None:
    assert client.ask("GET", "/a%2Fb/%c3%a9?x=1").json["path"] == "/a%2Fb/%c3%a9"


def test_one_connection_asks_often(client: Client) -> None:
    assert [client.ask("GET", f"/{number}").json["path"] for number in range(5)] == [
        f"/{number}" for number in range(5)
    ]


def test_nothing_says_what_serves_it(client: Client) -> None:
    assert "server" not in client.ask("GET", "/").headers


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET /" + b"a" * HEAD_BYTES_MAX, 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * HEAD_BYTES_MAX, 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
    ids=["garbage", "two hosts", "endless path", "endless headers", "TLS"],
)
def test_what_is_not_http_is_refused_flat_and_ends_the_connection(serving: Serving, sent: bytes, status: int) -> None:
    head, _, body = raw(serving.port, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(body)["error_code"] == status


def test_pages_of_other_sites_may_not_ask_and_those_of_this_machine_may(client: Client) -> None:
    assert client.ask("GET", "/", Origin="https://evil.example").error == 403
    assert client.ask("GET", "/", Origin="null").error == 403
    assert client.ask("GET", "/", Origin="http://localhost:3000").status == 200
    assert client.ask("GET", "/", Origin="http://evil.example", Host="evil.example").error == 403
    assert client.ask("GET", "/", Host="evil.example").error == 403, "a name that was made to mean this machine"
    for name in ("localhost", "127.0.0.1:80", "[::1]:8081", "LOCALHOST:7"):
        assert client.ask("GET", "/", Host=name).status == 200


def test_one_connection_too_many_is_told_to_try_later() -> None:
    with Serving(echo) as serving:
        serving.http._server.slots = ConnectionSlots(address_max=9, size=0, spare=0)
        head, _, body = raw(serving.port, b"").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert json.loads(body)["error_code"] == 503


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"nonsense\r\n\r\n"])
def test_a_connection_that_is_only_held_is_ended(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.05)
    spoken = looks_only_after(monkeypatch)
    with (
        Serving(echo) as serving,
        socket.create_connection(("127.0.0.1", serving.port), DEADLINE_SECONDS) as connection,
    ):
        connection.sendall(said)
        spoken.set()
        assert_ended(connection)


def test_so_is_one_that_never_finishes_its_second_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.05)
    answered = looks_only_after(monkeypatch)
    with (
        Serving(echo) as serving,
        socket.create_connection(("127.0.0.1", serving.port), DEADLINE_SECONDS) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        answered.set()
        connection.sendall(b"GET")
        assert_ended(connection)


def looks_only_after(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Delay the check for silence until this event is set: the test may be slower than the limit."""
    spoken, look = threading.Event(), http._Connection._check_silence

    def patient(connection: http._Connection) -> None:
        if spoken.is_set():
            look(connection)
        else:
            connection._watch_later()

    monkeypatch.setattr(http._Connection, "_check_silence", patient)
    return spoken


def looks_only_at_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay the check for silence until the first request has come, which may take longer than the limit."""
    look = http._Connection._check_silence

    def patient(connection: http._Connection) -> None:
        asked: object = connection.cycle
        if asked is None:
            connection._watch_later()
        else:
            look(connection)

    monkeypatch.setattr(http._Connection, "_check_silence", patient)


def assert_ended(connection: socket.socket) -> None:
    with suppress(ConnectionResetError):
        while connection.recv(65536):
            pass


def test_a_connection_between_two_requests_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.02)
    looks_only_at_those_who_ask(monkeypatch)
    with Serving(echo) as serving, Client(serving.port) as client:
        for _ in range(3):
            assert client.ask("GET", "/slow").status == 200


def test_who_reads_nothing_of_an_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.05)
    looks_only_at_those_who_ask(monkeypatch)
    ended = threading.Event()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        gone = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
            await asyncio.sleep(0)
        ended.set()

    with Serving(flood) as serving, socket.create_connection(("127.0.0.1", serving.port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert ended.wait(DEADLINE_SECONDS)


def test_who_reads_an_answer_that_goes_on_and_on_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the connection as often as possible while there is something left to read."""
    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.05)
    looks_only_at_those_who_ask(monkeypatch)
    looks = 0
    look = http._Connection._check_silence

    def counted(connection: http._Connection) -> None:
        """Check a connection only after its reader has had its turn: it shares the machine with others."""
        nonlocal looks
        if connection.flow.write_paused and not connection._output_progressed:
            connection._watch_later()
            return
        looks += connection.flow.write_paused
        look(connection)

    monkeypatch.setattr(http._Connection, "_check_silence", counted)

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while looks < 5:
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"the end"})

    with Serving(flood) as serving, socket.create_connection(("127.0.0.1", serving.port), 20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        last = b""
        while piece := connection.recv(1024):
            last = (last + piece)[-100:]
    assert b"the end" in last


@pytest.mark.parametrize("first", [0, 100, HEAD_BYTES_MAX, HEAD_BYTES_MAX + 20])
def test_a_head_has_the_same_bound_in_however_many_pieces_it_comes(serving: Serving, first: int) -> None:
    head = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-large: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", serving.port), DEADLINE_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head[:first])
        connection.sendall(head[first:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 431 ")


def test_requests_under_way_are_answered_when_it_closes() -> None:
    under_way = threading.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        under_way.set()
        await echo(scope, receive, send)

    with Serving(slow) as serving:
        connection = socket.create_connection(("127.0.0.1", serving.port), timeout=DEADLINE_SECONDS)
        connection.sendall(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert under_way.wait(DEADLINE_SECONDS)
    found = connection.recv(65536)
    connection.close()
    assert found.startswith(b"HTTP/1.1 200 OK\r\n")


def test_requests_that_take_too_long_are_cut_off_when_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_GRACE_SECONDS", 0.05)
    under_way, cancelled = threading.Event(), threading.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        under_way.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            await Response(b"", 503)(scope, receive, send)

    with Serving(endless) as serving:
        connection = socket.create_connection(("127.0.0.1", serving.port), timeout=DEADLINE_SECONDS)
        connection.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert under_way.wait(DEADLINE_SECONDS)
    assert cancelled.is_set()
    assert connection.recv(65536).startswith(b"HTTP/1.1 503 ")
    connection.close()


def test_after_closing_nobody_listens() -> None:
    with Serving(echo) as serving:
        port = serving.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_port_that_is_taken_is_an_error_of_the_system(serving: Serving) -> None:
    with pytest.raises(OSError, match="Address already in use"):
        serving.run(HttpServer.open(echo, "127.0.0.1", serving.port))


def test_it_speaks_tls(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path, "authority")
    server = authority.issue("server")
    with (
        Serving(echo, ReloadingTls(TlsFiles(cert=server.cert, key=server.key)).context) as serving,
        Client(serving.port, authority.client()) as client,
    ):
        assert client.ask("GET", "/").status == 200
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            Client(serving.port, ssl.create_default_context()) as other,
        ):
            other.ask("GET", "/")
