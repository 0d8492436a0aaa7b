"""The client's protocol without a socket: bytes against bytes."""

from __future__ import annotations

import pytest

from penstock.client.wire.protocol import (
    ClientProtocol,
    ConnectionEnding,
    Event,
    Greeted,
    MessageReceived,
    ReplyDue,
    RequestReceived,
    ResponseReceived,
    SubscriptionSpec,
)
from penstock.core.errors import Code, InvalidRequest, PenstockError, TopicNotSupported
from penstock.core.names import TopicPattern
from penstock.protocol.actions import Action
from penstock.protocol.frames import Frame, FrameReader, encode_frame, frame_bytes
from penstock.protocol.header import header

ID = "00000000-0000-4000-8000-000000000001"


def events(protocol: ClientProtocol, *messages: bytes) -> list[Event]:
    return list(protocol.receive(b"".join(len(each).to_bytes(4, "big") + each for each in messages)))


def sent(data: bytes) -> Frame:
    reader = FrameReader()
    reader.receive_data(data)
    frame = reader.next_frame()
    assert isinstance(frame, Frame)
    return frame


def test_a_call_carries_an_id_of_its_own() -> None:
    protocol = ClientProtocol()
    first, second = protocol.publish("a.b", "text"), protocol.publish("a.b", b"\xff")
    assert sent(first.data).payload == b"text"
    assert sent(first.data).header.request_id == first.request_id != second.request_id
    assert sent(second.data).payload == b"\xff"


def test_what_the_broker_would_refuse_is_refused_here() -> None:
    protocol = ClientProtocol()
    with pytest.raises(TopicNotSupported):
        protocol.publish("a.+", b"")
    with pytest.raises(InvalidRequest, match="version"):
        protocol.publish("a.b", b"", "v1")
    with pytest.raises(InvalidRequest, match="timeout"):
        protocol.request("a.b", b"", timeout_ms=0)


def test_answers_errors_and_greetings_are_told_apart() -> None:
    error = b'{"error":{"code":"TIMEOUT","message":"m","timestamp":"t","details":{"a":1}}}'
    greeted, answered, failed, foreign = events(
        ClientProtocol(),
        b"publish:system.initialize:1.0.0\n{}",
        f"response:a.b:1.0.0:{ID}\n".encode() + b'{"error":"mine"}',
        f"response:a.b:1.0.0:{ID}\n".encode() + error,
        f"response:a.b:1.0.0:{ID}\n".encode() + b'{"error":{"code":"X","message":"m"}}',
    )
    assert greeted == Greeted()
    assert answered == ResponseReceived(ID, b'{"error":"mine"}', None)
    assert isinstance(failed, ResponseReceived)
    assert failed.error is not None
    assert (failed.error.code, failed.error.message, failed.error.details) == (Code.TIMEOUT, "m", {"a": 1})
    assert isinstance(foreign, ResponseReceived)
    assert type(foreign.error) is PenstockError
    assert foreign.error.details == {"code": "X"}


def test_a_message_names_the_patterns_it_matches() -> None:
    protocol = ClientProtocol()
    one, rest = TopicPattern.parse("a.+"), TopicPattern.parse("a.#")
    for pattern in (one, rest):
        protocol.subscribe(SubscriptionSpec(pattern, "publish"))
    protocol.subscribe(SubscriptionSpec(TopicPattern.parse("b"), "publish"))
    (near, far) = events(protocol, f"publish:A.b:1.0.0:{ID}\nx".encode(), f"publish:a.b.c:1.0.0:{ID}\nx".encode())
    assert isinstance(near, MessageReceived)
    assert (near.to, near.message.topic, near.message.text) == ((one, rest), "A.b", "x")
    assert isinstance(far, MessageReceived)
    assert far.to == (rest,)
    protocol.unsubscribe(SubscriptionSpec(rest, "publish"))
    (gone,) = events(protocol, f"publish:a.b.c:1.0.0:{ID}\nx".encode())
    assert isinstance(gone, MessageReceived)
    assert gone.to == ()


def test_requests_are_for_the_pattern_that_serves_them_and_heartbeats_answer_themselves() -> None:
    protocol = ClientProtocol()
    protocol.subscribe(SubscriptionSpec(TopicPattern.parse("svc.+"), "request", 3))
    asked, unknown, beat = events(
        protocol,
        f"request:svc.echo:1.0.0:{ID}\nq".encode(),
        f"request:other:1.0.0:{ID}\nq".encode(),
        f"request:system.heartbeat:1.0.0:{ID}\n{{}}".encode(),
    )
    assert isinstance(asked, RequestReceived)
    assert asked.to == TopicPattern.parse("svc.+")
    assert sent(protocol.respond(asked.message, "r")) == Frame(header(Action.RESPONSE, "svc.echo", request_id=ID), b"r")
    assert isinstance(unknown, RequestReceived)
    assert unknown.to is None
    assert isinstance(beat, ReplyDue)
    assert sent(beat.data).header.request_id == ID


def test_a_new_connection_is_made_like_the_last() -> None:
    protocol = ClientProtocol()
    protocol.subscribe(SubscriptionSpec(TopicPattern.parse("a.#"), "publish"))
    protocol.subscribe(SubscriptionSpec(TopicPattern.parse("svc"), "request", 7))
    protocol.register("me", "a service")
    protocol.remember_service("me", "a service")
    gone = SubscriptionSpec(TopicPattern.parse("b"), "publish")
    protocol.subscribe(gone)
    protocol.unsubscribe(gone)
    protocol.register("another", "refused")
    calls = [sent(call.data) for _, call in protocol.restore_calls()]
    assert [(call.header.action, call.header.topic) for call in calls] == [
        (Action.REQUEST, "system.service.register"),
        (Action.SUBSCRIBE, "/default/a.#"),
        (Action.SUBSCRIBE, "/default/svc"),
    ]
    assert calls[2].payload == b'{"action":"request","priority":7}'


def test_half_a_message_of_the_last_connection_is_forgotten() -> None:
    protocol = ClientProtocol()
    whole = encode_frame(header(Action.PUBLISH, "system.initialize"), b"{}")
    assert list(protocol.receive(whole[:9])) == []
    protocol.connection_made()
    assert list(protocol.receive(whole)) == [Greeted()]


@pytest.mark.parametrize(
    "message",
    [
        b"nonsense",
        b"append:a.b:1.0.0\n",
        b"publish:system.closing:1.0.0\n{}",
        b"response:error:1.0.0:" + ID.encode() + b'\n{"error":{"code":"QUOTA_EXCEEDED","message":"too slow"}}',
    ],
)
def test_the_end_is_announced(message: bytes) -> None:
    (event,) = events(ClientProtocol(), message)
    assert isinstance(event, ConnectionEnding)


def test_a_broker_that_is_none_is_found_out() -> None:
    (event,) = list(ClientProtocol().receive(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert isinstance(event, ConnectionEnding)
    assert event.error.code is Code.PAYLOAD_TOO_LARGE
    assert frame_bytes(b"a", b"b") == b"\x00\x00\x00\x03a\nb"
