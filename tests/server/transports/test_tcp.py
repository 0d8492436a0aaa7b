"""TCP: frames in any pieces, and what is no frame at all."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.server.kit import (
    DEADLINE_SECONDS,
    FRAME_BYTES_MAX,
    ID,
    OTHER_ID,
    BrokerProcess,
    Ended,
    TcpClient,
    eventually,
    framed,
    message,
)

Tcp = Callable[..., TcpClient]
BEAT = framed(message(f"request:system.heartbeat:1.0.0:{ID}", b"{}"))


def test_a_frame_may_come_byte_by_byte(tcp: Tcp) -> None:
    client = tcp()
    for place in range(len(BEAT)):
        client.raw(BEAT[place : place + 1])
    assert client.receive().request_id == ID


def test_many_frames_in_one_write_are_each_answered_in_order(tcp: Tcp) -> None:
    client = tcp()
    ids = [f"0a1b2c3d-0000-4000-8000-{number:012x}" for number in range(5000)]
    client.raw(b"".join(framed(message(f"request:system.heartbeat:1.0.0:{each}")) for each in ids))
    assert [client.receive().request_id for _ in ids] == ids


def test_a_whole_frame_is_answered_while_the_next_is_half_there(tcp: Tcp) -> None:
    client = tcp()
    client.raw(BEAT + BEAT[:10])
    assert client.receive().request_id == ID
    client.raw(BEAT[10:])
    assert client.receive().request_id == ID


def test_an_empty_frame_is_answered_and_the_connection_stays(tcp: Tcp) -> None:
    client = tcp()
    client.raw(framed(b""))
    assert client.receive().error == "MALFORMED_MESSAGE"
    assert client.answers()


@pytest.mark.parametrize(
    "content",
    [
        b"\n",
        b"publish",
        b"publish:a.b:1.0.0",
        b"\xff\xfe\x00\n",
        b":::::\n",
        b"dance:a.b:1.0.0\n",
        b"publish:a..b:1.0.0\n",
        b"publish:1a:1.0.0\n",
        b"publish:a.b:v1.0.0\n",
        b"publish:a.b:1.0.0-rc1\n",
        b"publish:a.b:01.0.0\n",
        b"publish:a.b:1.0.0:\n",
        b"publish:a.b:1.0.0:no-uuid\n",
        b"publish:a.b:1.0.0\r\n",
        b" publish:a.b:1.0.0\n",
        b"publish:a.b:1.0.0:::1000\n",
        b"request:a.b:1.0.0:::0\n",
        b"request:a.b:1.0.0:::+1\n",
        b"request:a.b:1.0.0:::3600001\n",
        b"request:a.b:1.0.0::::\n",
        b"publish:+.b:1.0.0\n",
        "publish:\N{GREEK SMALL LETTER ALPHA}.b:1.0.0\n".encode(),
        b"publish:a.b.c.d.e.f:1.0.0\n",
        b"publish:a.b:1.0.\xd9\xa3\n",
    ],
)
def test_what_breaks_a_rule_is_malformed_also_between_two_that_do_not(tcp: Tcp, content: bytes) -> None:
    client = tcp()
    client.raw(BEAT + framed(content) + BEAT)
    answers = [client.receive() for _ in range(3)]
    assert [each.error for each in answers] == ["", "MALFORMED_MESSAGE", ""], answers
    client.raw(framed(content))
    assert client.receive().error == "MALFORMED_MESSAGE"
    assert client.answers()


@pytest.mark.parametrize(
    "header",
    [
        f"dance:a.b:1.0.0:{ID}",
        f"publish:a..b:1.0.0:{ID}",
        f"publish:a.b:one:{ID}",
        f"publish:a.b:1.0.0:{ID}:parent",
        f"publish:a.b:1.0.0:{ID}::5",
        f"request:a.b:1.0.0:{ID}::9999999999",
        f"request:a.b:1.0.0:{ID}:{OTHER_ID}:1:2",
    ],
)
def test_a_rejected_message_keeps_its_request_id(tcp: Tcp, header: str) -> None:
    answer = tcp().ask(header)
    assert (answer.request_id, answer.error) == (ID, "MALFORMED_MESSAGE")


@pytest.mark.parametrize("size", [2**31, 2**32 - 1, FRAME_BYTES_MAX + 1])
def test_a_frame_too_long_for_any_message_is_answered_at_once_and_closed(
    tcp: Tcp, broker: BrokerProcess, size: int
) -> None:
    tcp().answers()
    before = broker.rss_bytes()
    client = tcp()
    client.raw(size.to_bytes(4, "big"))
    began = time.monotonic()
    (answer,) = client.receive_until_end()
    assert answer.error == "PAYLOAD_TOO_LARGE"
    assert answer.json["error"]["details"]["bytes"] == size
    assert time.monotonic() - began < DEADLINE_SECONDS
    assert broker.rss_bytes() - before < 16 << 20


def test_the_request_id_of_a_frame_too_long_is_kept_if_it_came(tcp: Tcp) -> None:
    client = tcp()
    client.raw((2**31).to_bytes(4, "big") + message(f"publish:a.b:1.0.0:{ID}", b"and so on"))
    (answer,) = client.receive_until_end()
    assert (answer.request_id, answer.topic, answer.error) == (ID, "a.b", "PAYLOAD_TOO_LARGE")


def test_a_client_that_goes_on_sending_a_too_long_frame_can_still_read_why(tcp: Tcp) -> None:
    client = tcp()
    with suppress(ConnectionError):
        client.raw((2**31).to_bytes(4, "big") + message(f"publish:a.b:1.0.0:{ID}") + bytes(8 << 20))
    (answer,) = client.receive_until_end()
    assert (answer.request_id, answer.error) == (ID, "PAYLOAD_TOO_LARGE")


def test_a_thousand_declared_giants_allocate_nothing(broker: BrokerProcess) -> None:
    with TcpClient(broker.tcp_port) as warm:
        warm.answers()
        before = broker.rss_bytes()
        for _ in range(300):
            with TcpClient(broker.tcp_port, greet=False) as client:
                client.raw(b"\xff\xff\xff\xff")
        eventually(warm.answers, "a heartbeat")
        assert broker.rss_bytes() - before < 16 << 20


def test_frames_before_the_one_that_ends_it_are_answered(tcp: Tcp) -> None:
    client = tcp()
    client.raw(BEAT * 3 + b"\x7f\xff\xff\xff" + BEAT)
    assert [each.error for each in client.receive_until_end()] == ["", "", "", "PAYLOAD_TOO_LARGE"]


def test_a_browser_that_speaks_http_to_it_is_told_and_closed(tcp: Tcp) -> None:
    client = tcp()
    client.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert [each.error for each in client.receive_until_end()] == ["PAYLOAD_TOO_LARGE"]


def test_a_client_that_sends_no_more_is_still_answered(tcp: Tcp) -> None:
    client = tcp()
    client.raw(BEAT * 100)
    client.socket.shutdown(socket.SHUT_WR)
    assert len(client.receive_until_end()) == 100


def test_subscriptions_end_with_a_connection_that_was_reset(tcp: Tcp) -> None:
    publisher, subscriber = tcp(), tcp()
    subscriber.subscribe("tcp.reset")
    subscriber.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    subscriber.close()
    eventually(
        lambda: publisher.ask(f"publish:tcp.reset:1.0.0:{ID}").error == "NO_ROUTE_FOUND", "the subscription is gone"
    )


@pytest.mark.parametrize("action", ["append", "message", "ack", "nack", "seek", "records"])
def test_what_only_durable_topics_have_is_refused_in_words(tcp: Tcp, action: str) -> None:
    client = tcp()
    answer = client.ask(f"{action}:a.b:1.0.0:{ID}", b"{}")
    assert answer.request_id == ID
    assert answer.error in ("TOPIC_NOT_SUPPORTED", "INVALID_REQUEST")
    assert client.answers()


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"action":"request","topic":"a","priority":' + b"9" * 5000 + b"}",
        b'{"action":"request","topic":"a","priority":1e400}',
        b'{"action":["publish"],"topic":{"a":1}}',
        b'{"action":"publish","topic":"\\ud800"}',
        b'{"action":"publish","topic":"a\\u0000b"}',
        b"\xff\xfe",
        b"null",
        b'{"levels":[{"a":1}]}',
        b'{"regex":"(a+)+$","levels":["info"]}',
        b'{"filter":"' + b"(" * 200 + b'"}',
        b'{"serviceId":' + b"[" * 500 + b"]" * 500 + b"}",
    ],
)
@pytest.mark.parametrize(
    "topic",
    [
        "topic.subscribe",
        "topic.unsubscribe",
        "service.register",
        "service.subscriptions",
        "log.subscribe",
        "metrics",
        "nothing",
    ],
)
def test_hostile_json_is_answered_and_the_connection_stays(tcp: Tcp, topic: str, payload: bytes) -> None:
    client = tcp()
    answer = client.ask(f"request:system.{topic}:1.0.0:{ID}", payload)
    assert answer.request_id == ID
    assert answer.error != "INTERNAL_ERROR"
    assert len(answer.payload) < 64 << 10
    assert client.ask(f"request:system.log.unsubscribe:1.0.0:{ID}").request_id == ID


def test_a_full_name_in_the_default_namespace_is_the_same_topic(tcp: Tcp) -> None:
    client = tcp()
    client.subscribe("/default/tcp.names")
    client.send("publish:tcp.names:1.0.0", b"one")
    assert client.receive().payload == b"one"
    assert client.ask(f"request:/default/system.heartbeat:1.0.0:{ID}").error == ""


def test_nothing_is_said_after_the_last_word(tcp: Tcp) -> None:
    client = tcp()
    client.raw(b"\xff\xff\xff\xff" + BEAT)
    assert client.receive().error == "PAYLOAD_TOO_LARGE"
    with pytest.raises(Ended):
        client.receive()
