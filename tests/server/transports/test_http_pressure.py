"""HTTP under hostile clients: many that hold places, one that sends tiny pieces, bodies that never come."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.server.http_kit import DEADLINE_SECONDS, Client, Serving, raw

from penstock.core.errors import PenstockError
from penstock.server.api.bodies import RequestBodies, error_response
from penstock.server.http_scope import body_bytes
from penstock.server.transports import http, unread_bodies
from penstock.server.transports.http_parser import EVENTS_PER_TURN, Parser
from penstock.server.transports.http_slots import CONNECTIONS_MAX, SPARE_MAX, ConnectionSlots

BODY_BYTES_MAX = 1_000_000
HALF_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "
HALF_BODY = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx"
HEALTH = ("/livez", "/readyz", "/metrics")


async def reader(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body, as every row that takes one does, and says how large it was."""
    try:
        async with RequestBodies().read(receive, BODY_BYTES_MAX, body_bytes(scope)) as body:
            answer = Response(json.dumps({"bytes": len(body), "path": scope["raw_path"].decode()}))
    except PenstockError as error:
        answer = error_response(error, scope)
    await answer(scope, receive, send)


@pytest.fixture
def serving() -> Iterator[Serving]:
    with Serving(reader) as opened:
        yield opened


@contextmanager
def held(port: int, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS)
            found.append(stack.enter_context(connection))
            connection.sendall(said)
        yield found


def read_until(connection: socket.socket, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        piece = connection.recv(65536)
        assert piece, found
        found += piece
    return found


def asked(port: int, path: str) -> int:
    with Client(port) as client:
        return client.ask("GET", path).status


def test_half_heads_do_not_keep_others_out(serving: Serving) -> None:
    with held(serving.port, 1_100, HALF_HEAD):
        for path in (*HEALTH, "/subjects"):
            assert asked(serving.port, path) == 200


def test_half_bodies_leave_room_for_questions_about_health(serving: Serving) -> None:
    """Keep unfinished bodies open: their connections stay, and only health checks are answered beside them."""
    serving.http._server.slots = ConnectionSlots(address_max=10, size=12, spare=4)
    with held(serving.port, 10, HALF_BODY) as connections:
        wait_until_asked(serving, 10)
        for path in (*HEALTH, *HEALTH):
            assert asked(serving.port, path) == 200
        assert asked(serving.port, "/subjects") == 503
        assert raw(serving.port, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert raw(serving.port, b"POST /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").startswith(b"HTTP/1.1 503 ")
        large = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 10_000 + b"\r\n\r\n"
        assert raw(serving.port, large).startswith(b"HTTP/1.1 431 ")
        connections[0].sendall(b"x" * 9)
        assert read_until(connections[0], b"}").startswith(b"HTTP/1.1 200 ")


def wait_until_asked(serving: Serving, count: int) -> None:
    """Wait until so many connections have sent their whole head."""
    slots = serving.http._server.slots
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(slots._ordinary.taken) < count or slots._ordinary.waiting:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_spare_places_are_not_held_by_half_heads_either(serving: Serving) -> None:
    serving.http._server.slots = ConnectionSlots(address_max=2, size=2, spare=3)
    with held(serving.port, 2, HALF_BODY):
        wait_until_asked(serving, 2)
        with held(serving.port, 10, HALF_HEAD):
            for path in HEALTH:
                assert asked(serving.port, path) == 200


def test_one_address_does_not_have_all_places() -> None:
    with Serving(reader) as serving:
        slots = serving.http._server.slots
        assert slots._address_max < CONNECTIONS_MAX
        assert slots._spare.size == SPARE_MAX


# tiny pieces


def test_tiny_chunks_are_read_in_many_turns_and_others_are_served_between_them(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    begin_turn = Parser.begin_turn

    def counted(parser: Parser) -> None:
        turns.append(parser._events)
        begin_turn(parser)

    monkeypatch.setattr(Parser, "begin_turn", counted)
    body = b"1\r\nx\r\n" * 10_000
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    assert b'"bytes": 10000' in raw(serving.port, head + body + b"0\r\n\r\n")
    assert max(turns) <= EVENTS_PER_TURN
    assert len(turns) >= 10_000 // EVENTS_PER_TURN


def test_who_floods_with_tiny_chunks_does_not_keep_others_waiting(serving: Serving) -> None:
    """Opened again and again, four at a time: the others have an answer all the same, and soon."""
    over = threading.Event()
    floods = [threading.Thread(target=flood, args=(serving.port, over)) for _ in range(4)]
    for each in floods:
        each.start()
    try:
        with Client(serving.port) as client:
            for _ in range(10):
                assert client.ask("GET", "/livez").status == 200
    finally:
        over.set()
        for each in floods:
            each.join(DEADLINE_SECONDS)


def flood(port: int, over: threading.Event) -> None:
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    while not over.is_set():
        with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as connection:
            try:
                connection.sendall(head)
                while not over.is_set():
                    connection.sendall(b"1\r\nx\r\n" * 5_000)
            except OSError:
                continue


@pytest.mark.parametrize("piece", [b"1\r\nx\r\n", b"1;" + b"e" * 200 + b"\r\nx\r\n"], ids=["plain", "extended"])
def test_thousands_of_tiny_chunks_are_refused_and_the_connection_ends(serving: Serving, piece: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    assert raw(serving.port, head + piece * 20_001).startswith(b"HTTP/1.1 400 ")


def test_thousands_of_headers_are_refused(serving: Serving) -> None:
    assert raw(serving.port, b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 2_500 + b"\r\n").startswith(b"HTTP/1.1 431 ")


def test_requests_sent_one_behind_the_other_are_answered_in_order(serving: Serving) -> None:
    sent = [b"POST /%d HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20000\r\n\r\n" % each for each in range(9)]
    last = b"GET /last HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    found = raw(serving.port, b"".join(each + b"y" * 20_000 for each in sent) + last)
    assert [found.find(b'"/%d"' % each) > 0 for each in range(9)] == [True] * 9
    assert found.count(b'"bytes": 20000') == 9
    assert found.index(b'"/8"') < found.index(b'"/last"')


def test_nothing_more_is_read_of_one_that_floods_than_there_are_turns_for(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast it comes: there is no more of it here than one or two reads of a socket bring."""
    taken: list[int] = []
    take_turn = http._Connection._take_turn

    def counted(connection: http._Connection) -> None:
        taken.append(len(connection._unparsed))
        take_turn(connection)

    monkeypatch.setattr(http._Connection, "_take_turn", counted)
    first = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n" + b"x" * 60_000
    second = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 300_000
    found = raw(serving.port, first + second)
    assert found.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 400 " in found
    assert max(taken) < 1_000_000


# bodies


def test_two_lengths_in_one_request_are_refused_and_the_connection_ends(serving: Serving) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
    found = raw(serving.port, head + b"0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"], ids=["unasked", "asked"])
def test_a_body_that_is_declared_too_large_is_refused_before_it_comes(
    serving: Serving, expect: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_bodies, "LINGER_SECONDS", 0.05)
    found = raw(serving.port, b"POST / HTTP/1.1\r\nhost: localhost\r\n" + expect + b"content-length: 20000000\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in found.lower()


def test_a_client_that_sends_all_of_a_too_large_body_still_reads_the_answer(serving: Serving) -> None:
    with Client(serving.port) as client:
        answer = client.ask("POST", "/", b"x" * (BODY_BYTES_MAX * 4))
        assert answer.status == 413
        assert answer.headers["connection"] == "close"
        assert client.ask("POST", "/", b"x").json["bytes"] == 1


def test_a_body_that_never_comes_is_not_waited_for(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.api.bodies._SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(unread_bodies, "LINGER_SECONDS", 0.05)
    assert raw(serving.port, HALF_BODY).startswith(b"HTTP/1.1 408 ")


def test_the_rest_of_a_small_body_that_nobody_reads_does_not_end_the_connection() -> None:
    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"no!", 404)(scope, receive, send)

    with (
        Serving(deaf) as serving,
        socket.create_connection(("127.0.0.1", serving.port), DEADLINE_SECONDS) as connection,
    ):
        for _ in range(2):
            connection.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n" + b"x" * 40)
            assert read_until(connection, b"no!").startswith(b"HTTP/1.1 404 ")
            connection.sendall(b"x" * 60)


# names


@pytest.mark.parametrize(
    "target",
    [
        b"http://evil.example/",
        b"HTTP://evil.example:80/x?y",
        b"http://localhost@evil.example/",
        b"http:///",
        b"x://e?y",
    ],
)
def test_a_target_with_the_name_of_another_machine_is_refused(serving: Serving, target: bytes) -> None:
    found = raw(serving.port, b"GET " + target + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 403 ")


def test_a_target_with_a_name_of_this_machine_is_not(serving: Serving) -> None:
    for target in (b"http://localhost/x", b"http://127.0.0.1:7452/x", b"http://[::1]/x"):
        found = raw(serving.port, b"GET " + target + b" HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 200 ")
