"""Limits: exact on both sides, on every transport; and those that hold for all connections together."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from tests.server.conftest import Connect
from tests.server.kit import (
    BINARY,
    CONTINUATION,
    DEADLINE_SECONDS,
    FRAME_BYTES_MAX,
    ID,
    OTHER_ID,
    BrokerProcess,
    Ended,
    Link,
    Start,
    TcpClient,
    WsClient,
    eventually,
    fds,
    launch,
    message,
    upgrade,
    ws_frame,
)

from penstock.core.limits import MIB
from penstock.protocol.header import HEADER_BYTES_MAX

Tcp = Callable[..., TcpClient]
Ws = Callable[..., WsClient]
PAYLOAD_MAX = 1 * MIB
AROUND = (-1, 0, 1)
BEAT = f"request:system.heartbeat:1.0.0:{ID}"


# one message


@pytest.mark.parametrize("more", AROUND)
def test_a_payload_is_as_large_as_the_limit_and_no_larger(connect: Connect, more: int) -> None:
    client = connect()
    client.subscribe("limits.payload")
    payload = bytes(range(256)) * (PAYLOAD_MAX // 256)
    payload = payload[:more] if more < 0 else payload + b"x" * more
    client.send(f"publish:limits.payload:1.0.0:{ID}", payload)
    if more <= 0:
        found = sorted((client.receive() for _ in range(2)), key=lambda each: each.action)
        assert found[0].payload == payload
        assert found[1].json == {"status": "success"}
    else:
        answer = client.receive()
        assert (answer.error, answer.request_id, answer.topic) == ("PAYLOAD_TOO_LARGE", ID, "limits.payload")
        assert answer.json["error"]["details"] == {"bytes": PAYLOAD_MAX + more, "payload_bytes_max": PAYLOAD_MAX}
    assert client.answers()


def test_a_payload_too_large_among_others_is_refused_alone(connect: Connect) -> None:
    client = connect()
    contents = [message(BEAT, bytes(size)) for size in (3, PAYLOAD_MAX + 1, PAYLOAD_MAX, PAYLOAD_MAX + 1, 0)]
    client.raw(b"".join(client.frame(each) for each in contents))
    found = [client.receive() for _ in contents]
    assert [each.error for each in found] == ["", "PAYLOAD_TOO_LARGE", "", "PAYLOAD_TOO_LARGE", ""]
    assert {each.request_id for each in found} == {ID}


@pytest.mark.parametrize("more", AROUND)
def test_a_header_is_as_long_as_its_computed_maximum_and_no_longer(connect: Connect, more: int) -> None:
    client = connect()
    header = f"publish:limits.header:1.0.0:{ID}:"
    header += "x" * (HEADER_BYTES_MAX + more - len(header))
    answer = client.ask(header, b"payload")
    assert (answer.error, answer.request_id) == ("MALFORMED_MESSAGE", ID)
    assert answer.json["error"]["details"]["field"] == ("header" if more > 0 else "parentRequestId")
    assert client.answers()


@pytest.mark.parametrize("more", AROUND)
def test_a_topic_has_255_characters_at_most(connect: Connect, more: int) -> None:
    client = connect()
    answer = client.ask(f"publish:{'t' * (255 + more)}:1.0.0:{ID}")
    assert (answer.error, answer.request_id) == ("MALFORMED_MESSAGE" if more > 0 else "NO_ROUTE_FOUND", ID)


@pytest.mark.parametrize("more", AROUND)
def test_a_version_has_20_characters_at_most(connect: Connect, more: int) -> None:
    client = connect()
    answer = client.ask(f"publish:limits.version:1.0.{'1' * (16 + more)}:{ID}")
    assert (answer.error, answer.request_id) == ("MALFORMED_MESSAGE" if more > 0 else "NO_ROUTE_FOUND", ID)


@pytest.mark.parametrize("more", AROUND)
def test_a_request_may_wait_an_hour_and_no_longer(connect: Connect, more: int) -> None:
    answer = connect().ask(f"request:limits.timeout:1.0.0:{ID}::{3_600_000 + more}")
    assert (answer.error, answer.request_id) == ("MALFORMED_MESSAGE" if more > 0 else "NO_ROUTE_FOUND", ID)


@pytest.mark.parametrize("more", AROUND)
def test_a_frame_is_as_long_as_any_message_can_be(connect: Connect, more: int) -> None:
    client = connect()
    content = message(BEAT)
    content += bytes(FRAME_BYTES_MAX + more - len(content))
    with suppress(ConnectionError):  # a WebSocket that is too long is closed before all of it was read
        client.raw(client.frame(content))
    if more <= 0 or isinstance(client, TcpClient):
        answer = client.receive()
        assert (answer.error, answer.request_id) == ("PAYLOAD_TOO_LARGE", ID)
    if more <= 0:
        assert client.answers()
    else:
        with pytest.raises(Ended, match=r"closed|1009|reset"):
            client.receive()


@pytest.mark.parametrize("more", AROUND)
def test_a_message_in_fragments_is_no_longer_than_one_in_a_piece(ws: Ws, more: int) -> None:
    client = ws()
    content = message(BEAT)
    content += bytes(FRAME_BYTES_MAX + more - len(content))
    half = FRAME_BYTES_MAX // 2
    with suppress(ConnectionError):  # one that is too long is closed when its last fragment begins
        client.raw(ws_frame(BINARY, content[:half], fin=False) + ws_frame(CONTINUATION, content[half:]))
    if more <= 0:
        assert client.receive().error == "PAYLOAD_TOO_LARGE"
        assert client.answers()
    else:
        assert client.closed() == 1009


def test_a_message_of_endless_fragments_is_ended_at_the_limit(ws: Ws, broker: BrokerProcess) -> None:
    client = ws()
    before = broker.rss_bytes()
    part = ws_frame(CONTINUATION, bytes(60_000), fin=False)
    client.raw(ws_frame(BINARY, message(BEAT), fin=False))
    try:
        for _ in range(2000):
            client.raw(part)
    except ConnectionError:
        pass
    assert client.closed() == 1009
    assert broker.rss_bytes() - before < 32 << 20, "of 120 MB that would be sent"


# one connection, and all of them


@pytest.fixture(scope="module")
def tight(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    limits = {
        "connections_max": 6,
        "subscriptions_max": 3,
        "requests_open_max": 2,
        "connection_rate_max": 100,
        "topic_rate_max": 30,
        "payload_bytes_max": 1000,
        "request_timeout_ms": 400,
        "request_timeout_ms_max": 60_000,
    }
    started = launch(tmp_path_factory.mktemp("tight"), environment, "--log-level", "debug", limits=limits).wait_ready()
    try:
        yield started
    finally:
        started.stop()
    assert started.defects() == []


@pytest.fixture
def roomy(tight: BrokerProcess) -> BrokerProcess:
    """Return the broker once it has noticed that earlier connections are gone."""
    eventually(lambda: _alone(tight), "no connection of before is left").close()
    return tight


@pytest.fixture(params=["tcp", "ws"])
def tight_connect(request: pytest.FixtureRequest, roomy: BrokerProcess, stack: ExitStack) -> Callable[[], Link]:
    def connect() -> Link:
        if request.param == "tcp":
            return stack.enter_context(TcpClient(roomy.tcp_port))
        return stack.enter_context(WsClient(roomy.ws_port))

    return connect


@pytest.fixture
def tight_tcp(roomy: BrokerProcess, stack: ExitStack) -> Callable[[], TcpClient]:
    return lambda: stack.enter_context(TcpClient(roomy.tcp_port))


def test_one_connection_too_many_is_told_so_and_the_place_is_free_again_afterwards(tight: BrokerProcess) -> None:
    for _ in range(2):
        with ExitStack() as held:
            held.enter_context(eventually(lambda: _alone(tight), "no connection of before is left"))
            for _ in range(5):
                held.enter_context(TcpClient(tight.tcp_port))
            with TcpClient(tight.tcp_port, greet=False) as refused:
                (answer,) = refused.receive_until_end()
                assert answer.error == "SERVICE_UNAVAILABLE"
                assert "6 connections" in answer.json["error"]["message"]
            with WsClient(tight.ws_port, greet=False) as refused_ws:
                refused_ws.raw(upgrade(tight.ws_port))
                assert refused_ws.response_status() == 101
                assert refused_ws.receive().error == "SERVICE_UNAVAILABLE"
                assert refused_ws.closed() == 1013
        eventually(lambda: _served(TcpClient, tight.tcp_port), "a place is free again")
        eventually(lambda: _served(WsClient, tight.ws_port), "a place is free again")


def _served(transport: type[TcpClient | WsClient], port: int) -> bool:
    try:
        with transport(port) as client:
            return client.answers()
    except (AssertionError, Ended):
        return False


def _alone(broker: BrokerProcess) -> TcpClient | None:
    """A connection, if there is no other; none of those of before takes a place then."""
    try:
        client = TcpClient(broker.tcp_port)
    except (AssertionError, Ended):
        return None
    found = client.ask(f"request:system.metrics:1.0.0:{ID}", b'{"filter":"^connection.active$"}')
    if found.json["metrics"]["connection.active"] == 1:
        return client
    client.close()
    return None


def test_refused_connections_leave_nothing_open(tight: BrokerProcess) -> None:
    with ExitStack() as held:
        held.enter_context(eventually(lambda: _alone(tight), "no connection of before is left"))
        for _ in range(5):
            held.enter_context(TcpClient(tight.tcp_port))
        before = fds(tight)
        for _ in range(50):
            with TcpClient(tight.tcp_port, greet=False) as refused:
                refused.receive_until_end()
        eventually(lambda: fds(tight) <= before, "all sockets are closed")


def test_subscriptions_of_a_connection_are_counted_exactly(tight_connect: Callable[[], Link]) -> None:
    client = tight_connect()
    client.subscribe("limits.one")
    client.subscribe("limits.two", "both")
    client.subscribe("limits.one")
    refused = client.ask(f"subscribe:limits.four:1.0.0:{ID}")
    assert (refused.error, refused.request_id) == ("QUOTA_EXCEEDED", ID)
    assert refused.json["error"]["details"] == {"subscriptions_max": 3}
    assert client.ask(f"publish:limits.four:1.0.0:{ID}").error == "NO_ROUTE_FOUND"
    assert client.ask(f"unsubscribe:limits.one:1.0.0:{ID}").error == ""
    both = json.dumps({"action": "both", "topic": "limits.five"}).encode()
    assert client.ask(f"request:system.topic.subscribe:1.0.0:{ID}", both).error == "QUOTA_EXCEEDED"
    client.subscribe("limits.four")


def test_a_topic_takes_so_many_messages_a_second_from_all_together(tight_connect: Callable[[], Link]) -> None:
    topic = f"limits.rate{time.monotonic_ns()}"
    subscriber, one, two = (tight_connect() for _ in range(3))
    subscriber.subscribe(topic)
    began = time.monotonic()
    for client in (one, two):
        client.raw(b"".join(client.frame(message(f"publish:{topic}:1.0.0:{ID}")) for _ in range(90)))
    answers = [client.receive() for client in (one, two) for _ in range(90)]
    seconds = time.monotonic() - began
    accepted = [each for each in answers if not each.error]
    assert 30 <= len(accepted) <= 31 + 30 * seconds
    assert {each.error for each in answers} == {"", "QUOTA_EXCEEDED"}
    assert {each.request_id for each in answers} == {ID}
    assert [subscriber.receive().topic for _ in accepted] == [topic] * len(accepted)
    assert subscriber.answers()


def test_a_connection_may_send_so_many_messages_a_second_and_then_again(tight_connect: Callable[[], Link]) -> None:
    client, other = tight_connect(), tight_connect()
    began = time.monotonic()
    client.raw(client.frame(message(BEAT)) * 2000)
    answers = [client.receive() for _ in range(2000)]
    seconds = time.monotonic() - began
    accepted = sum(not each.error for each in answers)
    assert 100 <= accepted <= 101 + 100 * seconds
    assert {each.error for each in answers} == {"", "QUOTA_EXCEEDED"}
    assert other.answers()
    eventually(lambda: client.ask(BEAT).error == "", "it may send again")


def test_what_is_malformed_counts_against_the_rate_too(tight_connect: Callable[[], Link]) -> None:
    client = tight_connect()
    client.raw(client.frame(b"x") * 2000)
    errors = {client.receive().error for _ in range(2000)}
    assert "QUOTA_EXCEEDED" in errors


def test_the_newest_request_is_refused_when_too_many_are_open(tight_tcp: Callable[[], TcpClient]) -> None:
    server, client = tight_tcp(), tight_tcp()
    server.subscribe("limits.served", "request")
    ids = [f"0a1b2c3d-0000-4000-8000-{number:012x}" for number in range(3)]
    for number in ids:
        client.send(f"request:limits.served:1.0.0:{number}::60000")
    first, second = server.receive(), server.receive()
    refused = client.receive()
    assert (refused.request_id, refused.error) == (ids[2], "SERVICE_UNAVAILABLE")
    for each in (first, second):
        server.send(f"response:limits.served:1.0.0:{each.request_id}", b"done")
    assert [client.receive().request_id for _ in range(2)] == ids[:2]


def test_a_request_nobody_answers_ends_in_time_and_the_late_answer_is_refused(
    tight_tcp: Callable[[], TcpClient],
) -> None:
    server, client = tight_tcp(), tight_tcp()
    server.subscribe("limits.late", "request")
    began = time.monotonic()
    answer = client.ask(f"request:limits.late:1.0.0:{ID}")
    assert (answer.error, answer.request_id) == ("TIMEOUT", ID)
    assert 0.3 < time.monotonic() - began < DEADLINE_SECONDS, "and not only at the longest that a request may wait"
    late = server.receive().request_id
    assert server.ask(f"response:limits.late:1.0.0:{late}").error == "INVALID_REQUEST_ID"


def test_a_configured_payload_limit_is_exact(tight_connect: Callable[[], Link]) -> None:
    client = tight_connect()
    for size, expected in ((999, ""), (1000, ""), (1001, "PAYLOAD_TOO_LARGE")):
        answer = client.ask(f"request:system.heartbeat:1.0.0:{OTHER_ID}", bytes(size))
        assert (answer.error, answer.request_id) == (expected, OTHER_ID)


def _greeted(link: Link) -> bool:
    try:
        return link.receive().topic == "system.initialize"
    except Ended:
        return False


def test_the_broker_outlives_the_end_of_its_file_descriptors(start: Start) -> None:
    broker = start("--log-level", "info", open_files=64)
    with ExitStack() as held:
        links = [held.enter_context(TcpClient(broker.tcp_port, greet=False)) for _ in range(100)]
        served = sum(_greeted(link) for link in links)
        assert 10 < served < 100
    eventually(lambda: _served(TcpClient, broker.tcp_port), "it serves again")
    eventually(lambda: _served(WsClient, broker.ws_port), "it serves again")
