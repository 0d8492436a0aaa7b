"""The broker: stories to be read aloud, and thousands more that hypothesis tells."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.broker.kit import (
    FAILURE,
    ID,
    ID2,
    ID3,
    ID4,
    SUCCESS,
    Peer,
    World,
    code_of,
    error_of,
    framed,
    own_id,
    text_of,
)

from penstock.broker.live.rate_limits import _TOPICS_MAX, RateLimiter
from penstock.core.errors import PayloadTooLarge, ServiceUnavailable, Timeout
from penstock.core.limits import QUOTED_CHARS_MAX, REQUEST_TIMEOUT_MS_CEILING
from penstock.core.names import TopicName
from penstock.protocol.actions import Action
from penstock.protocol.header import HEADER_BYTES_MAX, is_request_id

PARENT = own_id(0xFF)


def only(texts: list[str]) -> str:
    (text,) = texts
    return text


def asked_id(server: Peer) -> str:
    """The id of the request that the server was just sent, which the broker chose."""
    (frame,) = server.take_frames()
    assert frame.header.action is Action.REQUEST
    assert frame.header.request_id is not None
    return frame.header.request_id


# Connections


def test_the_broker_speaks_first(world: World) -> None:
    ann = world.connect(greeted=False)
    assert ann.take() == ["publish:system.initialize:1.0.0\n{}"]
    assert is_request_id(ann.id)


def test_connections_are_exact_at_their_limit() -> None:
    world = World(connections_max=2)
    ann, _ = world.connect(), world.connect()
    with pytest.raises(ServiceUnavailable, match="at most 2 connections"):
        world.connect()
    assert world.broker.metric_values()["connection.rejected.total"] == 1
    ann.leave()
    world.connect()


def test_subscriptions_go_with_the_connection(world: World, ann: Peer, bob: Peer) -> None:
    ann.subscribe("a.#", "both")
    ann.leave()
    assert code_of(only(bob.send(f"publish:a.b:1.0.0:{ID}\n"))) == "NO_ROUTE_FOUND"
    assert code_of(only(bob.send(f"request:a.b:1.0.0:{ID}\n"))) == "NO_ROUTE_FOUND"


def test_leaving_twice_is_leaving_once(world: World, ann: Peer) -> None:
    ann.leave()
    assert world.broker.disconnect(ann.client, world.now_ms) == []
    assert world.broker.metric_values()["connection.disconnected.total"] == 1


# Publish


def test_a_message_reaches_every_subscriber_under_an_id_of_the_brokers(ann: Peer, bob: Peer, cat: Peer) -> None:
    bob.subscribe("events.user")
    cat.subscribe("events.+")
    assert ann.send('publish:events.user:1.0.0\n{"n":1}') == []
    assert bob.take() == cat.take() == ['publish:events.user:1.0.0:<uuid>\n{"n":1}']


def test_a_publisher_that_gave_an_id_is_answered_under_it(ann: Peer, bob: Peer) -> None:
    bob.subscribe("events.user")
    assert ann.send(f"publish:events.user:1.2.3:{ID}\nhi") == [f"response:events.user:1.2.3:{ID}\n{SUCCESS}"]
    assert bob.take() == ["publish:events.user:1.2.3:<uuid>\nhi"]


def test_a_subscriber_that_publishes_gets_its_own_message_and_then_the_answer(ann: Peer) -> None:
    ann.subscribe("a")
    expected = ["publish:a:1.0.0:<uuid>\nhi", f"response:a:1.0.0:{ID}\n{SUCCESS}"]
    assert ann.send(f"publish:a:1.0.0:{ID}\nhi") == expected


def test_a_message_that_nobody_wants_has_no_route(ann: Peer, bob: Peer) -> None:
    bob.subscribe("events.user", "request")
    for given_id, shown in ((f":{ID}", ID), ("", "<uuid>")):
        answer = only(ann.send(f"publish:Events.User:1.0.0{given_id}\n"))
        assert answer.startswith(f"response:Events.User:1.0.0:{shown}\n")
        found = error_of(answer)
        assert (found["code"], found["message"]) == ("NO_ROUTE_FOUND", "No subscribers for topic Events.User")
    assert bob.take() == []


def test_a_parent_id_is_dropped_on_delivery_and_kept_in_the_log(
    ann: Peer, bob: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    bob.subscribe("a")
    with caplog.at_level(logging.DEBUG, "penstock.broker"):
        assert ann.send(f"publish:a:1.0.0:{ID}:{PARENT}\nhi") == [f"response:a:1.0.0:{ID}\n{SUCCESS}"]
    assert bob.take() == ["publish:a:1.0.0:<uuid>\nhi"]
    traced = [record for record in caplog.records if record.message == "traced"]
    assert [record.__dict__["parent_id"] for record in traced] == [PARENT]
    assert not any("hi" in str(record.__dict__.values()) for record in caplog.records)


def test_topics_match_without_regard_to_case_and_are_delivered_as_spelled(ann: Peer, bob: Peer) -> None:
    bob.subscribe("Events.USER")
    ann.send("publish:eVENTS.user:1.0.0\nx", "PUBLISH:/Default/events.User:1.0.0\ny")
    assert bob.take() == ["publish:eVENTS.user:1.0.0:<uuid>\nx", "publish:/Default/events.User:1.0.0:<uuid>\ny"]


def test_namespaces_are_apart(ann: Peer, bob: Peer, cat: Peer) -> None:
    bob.subscribe("/shop/#")
    cat.subscribe("#")
    ann.send("publish:/Shop/orders.created:1.0.0\n1", "publish:orders.created:1.0.0\n2")
    assert bob.take() == ["publish:/Shop/orders.created:1.0.0:<uuid>\n1"]
    assert cat.take() == ["publish:orders.created:1.0.0:<uuid>\n2"]


@pytest.mark.parametrize(
    "payload", [b"", b"\n", b"line\nline\n", b"\xff\xfe\0\x80", "日本 😀".encode(), b"x" * 100_000]
)
def test_a_payload_is_any_bytes(ann: Peer, bob: Peer, payload: bytes) -> None:
    bob.subscribe("a")
    ann.send(b"publish:a:1.0.0\n" + payload)
    assert [frame.payload for frame in bob.take_frames()] == [payload]


def test_many_messages_in_one_piece_arrive_in_order_each_with_its_own_id(ann: Peer, bob: Peer) -> None:
    bob.subscribe("a")
    bob.subscribe("b")
    answers = ann.send(*(f"publish:{'ab'[n % 3 == 2]}:1.0.0:{own_id(n)}\n{n}" for n in range(1000)))
    assert [answer.split("\n")[0].split(":")[3] for answer in answers] == [own_id(n) for n in range(1000)]
    frames = bob.take_frames()
    assert [int(frame.payload) for frame in frames] == list(range(1000))
    ids = {frame.header.request_id or "" for frame in frames}
    assert len(ids) == 1000
    assert all(map(is_request_id, ids))


def test_nobody_subscribes_to_a_topic_by_serving_it_and_both_is_both(ann: Peer, bob: Peer) -> None:
    bob.subscribe("a", "both")
    ann.send("publish:a:1.0.0\n1", f"request:a:1.0.0:{ID}\n2")
    assert bob.take() == ["publish:a:1.0.0:<uuid>\n1", "request:a:1.0.0:<uuid>\n2"]


# Subscribe and unsubscribe, as actions of their own


def test_the_direct_actions_do_what_the_system_topics_do(world: World, ann: Peer, bob: Peer) -> None:
    assert ann.send(f"subscribe:A.+:1.0.0:{ID}\n") == [f"response:A.+:1.0.0:{ID}\n{SUCCESS}"]
    assert ann.send("subscribe:svc.x:1.0.0\n" + '{"action":"request","priority":3}') == []
    bob.subscribe("a.+")
    bob.subscribe("svc.x", "request", priority=3)
    assert ann.client.subscriptions == bob.client.subscriptions
    assert ann.send(f"unsubscribe:a.+:1.0.0:{ID}\n") == [f"response:a.+:1.0.0:{ID}\n{SUCCESS}"]
    assert ann.send(f"unsubscribe:a.+:1.0.0:{ID}\n") == [f"response:a.+:1.0.0:{ID}\n{FAILURE}"]
    assert ann.send("unsubscribe:svc.x:1.0.0\n") == []
    assert ann.client.subscriptions == {}


def test_unsubscribing_without_saying_from_what_ends_both(ann: Peer) -> None:
    ann.subscribe("a", "both")
    ann.send('unsubscribe:a:1.0.0\n{"action":"publish"}')
    assert [kind.value for kind, _ in ann.client.subscriptions] == ["request"]
    ann.subscribe("a", "both")
    ann.send("unsubscribe:A:1.0.0\n")
    assert ann.client.subscriptions == {}


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ("null", "INVALID_REQUEST"),
        ("[]", "INVALID_REQUEST"),
        ('"x"', "INVALID_REQUEST"),
        ("1", "INVALID_REQUEST"),
        ("{", "MALFORMED_MESSAGE"),
        ('{"action":"response"}', "INVALID_REQUEST"),
        ('{"action":null}', "INVALID_REQUEST"),
        ('{"action":"request","priority":"1"}', "INVALID_REQUEST"),
        ('{"subscription":"x"}', "INVALID_REQUEST"),
        ('{"what":1}', "INVALID_REQUEST"),
        ('{"topic":"b"}', "INVALID_REQUEST"),
    ],
)
def test_wrong_options_of_a_subscription_are_refused(world: World, ann: Peer, payload: str, code: str) -> None:
    before = world.state()
    assert code_of(only(ann.send(f"subscribe:a:1.0.0:{ID}\n{payload}"))) == code
    assert only(ann.send(f"subscribe:a:1.0.0\n{payload}")).startswith("response:a:1.0.0:<uuid>\n")
    assert world.state() == before


@pytest.mark.parametrize("name", ["x" * 500_000, "\U000e0001" * 200_000])
def test_an_option_that_nobody_knows_is_not_repeated_at_length(ann: Peer, name: str) -> None:
    payload = f'{{"{name}":1}}'
    assert len(only(ann.send(f"subscribe:a:1.0.0:{ID}\n{payload}"))) < 1000 + QUOTED_CHARS_MAX


# Other actions


@pytest.mark.parametrize("action", ["append", "message", "ack", "nack", "seek"])
def test_what_needs_a_durable_topic_says_so(world: World, ann: Peer, action: str) -> None:
    before = world.state()
    assert code_of(only(ann.send(f"{action}:a:1.0.0:{ID}\n"))) == "TOPIC_NOT_SUPPORTED"
    assert world.state() == before


def test_only_the_broker_sends_records(ann: Peer) -> None:
    found = error_of(only(ann.send(f"records:a:1.0.0:{ID}\n")))
    assert (found["code"], found["message"]) == ("INVALID_REQUEST", "Only the broker sends records")


# Request and response


def test_an_answer_comes_back_under_the_id_topic_and_version_of_the_request(ann: Peer, bob: Peer) -> None:
    bob.subscribe("svc.echo", "request")
    assert ann.send(f'request:Svc.Echo:1.0.0:{ID}:{PARENT}:300\n{{"q":1}}') == []
    (frame,) = bob.take_frames()
    assert text_of(frame) == 'request:Svc.Echo:1.0.0:<uuid>\n{"q":1}'
    given_id = frame.header.request_id
    assert given_id != ID
    assert bob.send(f'response:other.topic:9.9.9:{given_id}:{PARENT}\n{{"r":1}}') == []
    assert ann.take() == [f'response:Svc.Echo:1.0.0:{ID}\n{{"r":1}}']


def test_the_brokers_id_may_come_back_in_any_letter_case(ann: Peer, bob: Peer) -> None:
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}\n")
    bob.send(f"response:a:1.0.0:{asked_id(bob).upper()}\nok")
    assert ann.take() == [f"response:a:1.0.0:{ID}\nok"]


@pytest.mark.parametrize("payload", ['{"error":{"code":"X","message":"m"}}', 'error:{"code":"X"}', "", "\n"])
def test_errors_of_the_server_pass_through_as_they_are(ann: Peer, bob: Peer, payload: str) -> None:
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}\n")
    bob.send(f"response:a:1.0.0:{asked_id(bob)}\n{payload}")
    assert ann.take() == [f"response:a:1.0.0:{ID}\n{payload}"]


def test_a_request_that_nobody_serves_has_no_route(ann: Peer, bob: Peer) -> None:
    bob.subscribe("a", "publish")
    found = error_of(only(ann.send(f"request:a:1.0.0:{ID}\n")))
    assert (found["code"], found["message"]) == ("NO_ROUTE_FOUND", "No subscribers for topic a")
    assert only(ann.send("request:a:1.0.0\n")).startswith("response:a:1.0.0:<uuid>\n")


def test_the_highest_priority_serves_and_the_next_when_it_is_gone(ann: Peer, bob: Peer, cat: Peer) -> None:
    bob.subscribe("a", "request", priority=1)
    cat.subscribe("#", "request", priority=2)
    for n in range(5):
        ann.send(f"request:a:1.0.0:{own_id(n)}\n")
    assert (len(bob.take()), len(cat.take())) == (0, 5)
    cat.leave()
    ann.send(f"request:a:1.0.0:{ID4}\n")
    assert len(bob.take()) == 1


def test_among_equals_chance_decides(world: World, ann: Peer) -> None:
    servers = [world.connect() for _ in range(3)]
    for server in servers:
        server.subscribe("a", "request")
    for n in range(300):
        ann.send(f"request:a:1.0.0:{own_id(n)}\n")
    assert all(len(server.take()) > 60 for server in servers)


def test_one_may_ask_oneself(ann: Peer, bob: Peer) -> None:
    ann.subscribe("a", "request")
    ann.post(f"request:a:1.0.0:{ID}\nq")
    assert ann.send(f"response:a:1.0.0:{asked_id(ann)}\nr") == [f"response:a:1.0.0:{ID}\nr"]


def test_who_asks_oneself_and_leaves_leaves_nothing_behind(world: World, ann: Peer) -> None:
    ann.subscribe("a", "request")
    ann.post(f"request:a:1.0.0:{ID}\nq")
    ann.leave()
    assert world.broker.idle


def test_nobody_answers_and_the_timeout_names_who_did_not(world: World, ann: Peer, bob: Peer) -> None:
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}::300\n", f"request:a:1.0.0:{ID2}\n")
    world.after(299)
    assert ann.take() == []
    world.after(1)
    (frame,) = ann.take_frames()
    found = json.loads(frame.payload)["error"]
    assert (frame.header.request_id, found["code"], found["message"]) == (ID, "TIMEOUT", "Request timed out")
    assert found["details"] == {"targetServiceId": bob.id}
    world.after(4699)
    assert ann.take() == []
    world.after(1)
    assert only(ann.take()).startswith(f"response:a:1.0.0:{ID2}\n")


def test_the_longest_timeout_is_an_hour() -> None:
    hour = REQUEST_TIMEOUT_MS_CEILING
    world = World(heartbeat_retry_ms=10 * hour, heartbeat_deregister_ms=20 * hour)
    ann, bob = world.connect(), world.connect()
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}::{hour}\n")
    world.after(hour - 1)
    assert ann.take() == []
    world.after(1)
    assert code_of(only(ann.take())) == "TIMEOUT"


def test_late_second_and_invented_answers_are_told_so(world: World, ann: Peer, bob: Peer, cat: Peer) -> None:
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}::300\n")
    first = asked_id(bob)
    bob.send(f"response:a:1.0.0:{first}\nr")
    assert len(ann.take()) == 1
    second = error_of(only(bob.send(f"response:a:1.0.0:{first}\nr")))
    assert second["code"] == "INVALID_REQUEST_ID"
    assert second["message"] == "No matching request found for requestId: <uuid>"
    ann.send(f"request:a:1.0.0:{ID}::300\n")
    late = asked_id(bob)
    world.after(300)
    assert len(ann.take()) == 1
    assert code_of(only(bob.send(f"response:a:1.0.0:{late}\nr"))) == "INVALID_REQUEST_ID"
    assert code_of(only(bob.send(f"response:a:1.0.0:{ID3}\nr"))) == "INVALID_REQUEST_ID"
    assert error_of(only(bob.send("response:a:1.0.0\nr")))["message"] == "Received response message without requestId."
    assert ann.take() == []


def test_an_answer_from_somebody_who_was_not_asked_is_refused_and_the_request_stays_open(
    ann: Peer, bob: Peer, cat: Peer
) -> None:
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}\n")
    given_id = asked_id(bob)
    for stranger in (cat, ann):
        assert code_of(only(stranger.send(f"response:a:1.0.0:{given_id}\nfalse"))) == "INVALID_REQUEST_ID"
    bob.send(f"response:a:1.0.0:{given_id}\ntrue")
    assert ann.take() == [f"response:a:1.0.0:{ID}\ntrue"]


def test_when_the_server_goes_the_requesters_are_told_at_once(world: World, ann: Peer, bob: Peer, cat: Peer) -> None:
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}\n", f"request:a:1.0.0:{ID2}\n", "request:a:1.0.0\n")
    cat.send(f"request:a:2.0.0:{ID3}\n")
    bob.leave()
    got = ann.take_frames()
    assert {frame.header.request_id for frame in got} == {ID, ID2}
    for frame in got:
        found = json.loads(frame.payload)["error"]
        assert (found["code"], found["details"]) == ("SERVICE_UNAVAILABLE", {"targetServiceId": bob.id})
    assert only(cat.take()).startswith(f"response:a:2.0.0:{ID3}\n")
    assert world.broker.idle
    world.after(10_000)
    assert ann.take() == cat.take() == []


def test_when_the_requester_goes_its_server_may_still_answer_and_is_not_blamed(
    world: World, ann: Peer, bob: Peer
) -> None:
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}\n")
    given_id = asked_id(bob)
    ann.leave()
    assert bob.send(f"response:a:1.0.0:{given_id}\nr") == []
    assert code_of(only(bob.send(f"response:a:1.0.0:{given_id}\nr"))) == "INVALID_REQUEST_ID"


def test_the_answer_to_a_request_without_an_id_is_dropped_and_so_is_its_timeout(
    world: World, ann: Peer, bob: Peer
) -> None:
    bob.subscribe("a", "request")
    ann.send("request:a:1.0.0\nq")
    assert bob.send(f"response:a:1.0.0:{asked_id(bob)}\nr") == []
    ann.send("request:a:1.0.0\nq")
    world.after(6000)
    assert ann.take() == []
    assert world.broker.idle


def test_the_newest_request_is_refused_when_too_many_are_open_and_none_is_dropped() -> None:
    world = World(requests_open_max=3)
    ann, bob = world.connect(), world.connect()
    bob.subscribe("a", "request")
    refused = ann.send(*(f"request:a:1.0.0:{own_id(n)}\n{n}" for n in range(5)))
    assert [text.split("\n")[0].split(":")[3] for text in refused] == [own_id(3), own_id(4)]
    for text in refused:
        assert error_of(text)["code"] == "SERVICE_UNAVAILABLE"
        assert error_of(text)["details"] == {"requests_open_max": 3}
    asked = bob.take_frames()
    assert [frame.payload for frame in asked] == [b"0", b"1", b"2"]
    bob.send(f"response:a:1.0.0:{asked[1].header.request_id}\nr")
    assert ann.take() == [f"response:a:1.0.0:{own_id(1)}\nr"]
    assert ann.send(f"request:a:1.0.0:{ID4}\n") == []
    assert code_of(only(ann.send(f"request:a:1.0.0:{ID4}\n"))) == "SERVICE_UNAVAILABLE"


def test_requests_that_nobody_wants_answered_take_nobodys_place() -> None:
    world = World(requests_open_max=1)
    ann, bob = world.connect(), world.connect()
    bob.subscribe("a", "request")
    for _ in range(3):
        assert ann.send("request:a:1.0.0\n") == []
    assert ann.send(f"request:a:1.0.0:{ID}\n") == []
    assert code_of(only(ann.send(f"request:a:1.0.0:{ID2}\n"))) == "SERVICE_UNAVAILABLE"
    assert [bob.send(f"response:a:1.0.0:{each.header.request_id}\n") for each in bob.take_frames()] == [[]] * 4


def test_the_same_id_twice_gets_two_answers(ann: Peer, bob: Peer) -> None:
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}\n1", f"request:a:1.0.0:{ID}\n2")
    for frame in bob.take_frames():
        bob.send(f"response:a:1.0.0:{frame.header.request_id}\n".encode() + frame.payload)
    assert ann.take() == [f"response:a:1.0.0:{ID}\n1", f"response:a:1.0.0:{ID}\n2"]


# Refusals


@pytest.mark.parametrize(
    ("message", "header", "field"),
    [
        ("", "error:1.0.0:<uuid>", "header"),
        ("bogus", "error:1.0.0:<uuid>", "header"),
        ("\n", "error:1.0.0:<uuid>", "header"),
        (f"bogus:a.b:2.0.0:{ID}\n", f"a.b:2.0.0:{ID}", "action"),
        (f"publish:a..b:2.0.0:{ID}\n", f"error:2.0.0:{ID}", "topic"),
        (f"publish:a.b:v2:{ID}\n", f"a.b:1.0.0:{ID}", "version"),
        ("publish:a.b:2.0.0:1\n", "a.b:2.0.0:<uuid>", "requestId"),
        (f"publish:a.b:2.0.0:{ID}::5\n", f"a.b:2.0.0:{ID}", "timeout"),
        (f"subscribe:#:2.0.0:{ID}:\n", f"#:2.0.0:{ID}", "parentRequestId"),
    ],
)
def test_a_malformed_message_is_answered_with_the_field_and_changes_nothing(
    world: World, ann: Peer, message: str, header: str, field: str
) -> None:
    before = world.state()
    answer = only(ann.send(message))
    assert answer.split("\n")[0] == f"response:{header}"
    found = error_of(answer)
    assert (found["code"], found["details"]["field"]) == ("MALFORMED_MESSAGE", field)
    assert world.state() == before
    assert ann.closed is None
    assert ann.ask("system.heartbeat") == {"status": "success"}


def test_a_frame_too_long_is_answered_and_the_connection_closed() -> None:
    world = World(payload_bytes_max=1000, block_bytes_max=1000)
    ann, bob = world.connect(), world.connect()
    ann.subscribe("a", "request")
    bob.send(f"request:a:1.0.0:{ID}\n")
    ann.take()
    size = HEADER_BYTES_MAX + 1 + 1000 + 1
    answer = only(ann.send_bytes(size.to_bytes(4, "big") + f"publish:a:1.0.0:{ID2}\nxx".encode()))
    assert answer.startswith(f"response:a:1.0.0:{ID2}\n")
    assert error_of(answer)["details"] == {"bytes": size, "frame_bytes_max": size - 1}
    assert isinstance(ann.closed, PayloadTooLarge)
    assert code_of(only(bob.take())) == "SERVICE_UNAVAILABLE"


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_the_payload_limit_is_exact(extra: int) -> None:
    world = World(payload_bytes_max=1000)
    ann = world.connect()
    ann.subscribe("a")
    got = ann.send(f"publish:a:1.0.0:{ID}\n".encode() + b"x" * (1000 + extra))
    if extra <= 0:
        assert len(got) == 2
    else:
        assert code_of(only(got)) == "PAYLOAD_TOO_LARGE"
        assert ann.closed is None


# Drain


def test_a_broker_that_stops_tells_everybody_and_takes_nothing_new(world: World, ann: Peer, bob: Peer) -> None:
    bob.subscribe("a", "both")
    ann.send(f"request:a:1.0.0:{ID}\n")
    given_id = asked_id(bob)
    world.apply(world.broker.drain(world.now_ms, 10_000))
    closing = 'publish:system.closing:1.0.0\n{"reason":"the broker is stopping","graceMs":10000}'
    assert ann.take() == bob.take() == [closing]
    with pytest.raises(ServiceUnavailable, match="stopping"):
        world.connect()
    assert code_of(only(ann.send(f"request:a:1.0.0:{ID2}\n"))) == "SERVICE_UNAVAILABLE"
    assert bob.take() == []
    idle = [world.broker.idle]
    bob.send(f"response:a:1.0.0:{given_id}\nr")
    assert ann.take() == [f"response:a:1.0.0:{ID}\nr"]
    assert [*idle, world.broker.idle] == [False, True]
    ann.send("publish:a:1.0.0\nlast words")
    assert len(bob.take()) == 1
    assert ann.ask("system.heartbeat") == {"status": "success"}


# Heartbeats


def test_who_is_silent_is_asked_once_and_then_given_up(world: World, ann: Peer, bob: Peer) -> None:
    bob.subscribe("a", "request")
    ann.send(f"request:a:1.0.0:{ID}::3600000\n")
    bob.take()
    for _ in range(59):
        world.after(1000)
        ann.send(f"response:system.heartbeat:1.0.0:{ID}\n")
        if world.now_ms - bob.client.heard_ms == 30_000:
            assert bob.take() == ["request:system.heartbeat:1.0.0:<uuid>\n{}"]
        assert bob.take() == []
        assert bob.closed is None
    world.after(1000)
    last = only(bob.take())
    assert last.startswith("response:error:1.0.0:<uuid>\n")
    assert error_of(last)["message"] == "Nothing was heard for 60 s; closing the connection"
    assert isinstance(bob.closed, Timeout)
    assert code_of(only(ann.take())) == "SERVICE_UNAVAILABLE"
    assert ann.closed is None


Sign = Callable[[World, Peer], object]
SIGNS_OF_LIFE: list[Sign] = [
    lambda world, peer: peer.send("publish:nobody:1.0.0\n"),
    lambda world, peer: peer.send(*["publish:nobody:1.0.0\n"] * 2),
    lambda world, peer: peer.send("response:system.heartbeat:1.0.0\n"),
    lambda world, peer: peer.send("request:system.heartbeat:1.0.0\n"),
    lambda world, peer: peer.send("bogus"),
    lambda world, peer: world.broker.note_activity(peer.client, world.now_ms),
]


@pytest.mark.parametrize("sign", SIGNS_OF_LIFE)
def test_any_traffic_is_a_sign_of_life(world: World, ann: Peer, sign: Sign) -> None:
    for _ in range(10):
        world.after(29_999)
        assert ann.take() == []
        sign(world, ann)
        ann.take()
    world.after(30_000 + 999)
    assert only(ann.take()).startswith("request:system.heartbeat:")
    world.after(20_000)
    sign(world, ann)
    ann.take()
    world.after(29_000)
    assert (ann.closed, ann.take()) == (None, [])
    world.after(1999)
    assert only(ann.take()).startswith("request:system.heartbeat:"), "asked again after a new silence"


def test_half_a_message_is_silence(world: World, ann: Peer) -> None:
    message = framed("publish:nobody:1.0.0\n" + "x" * 100)
    for place in range(60):
        ann.send_bytes(message[place : place + 1])
        world.after(1000)
    assert isinstance(ann.closed, Timeout)


def test_the_times_are_settings() -> None:
    world = World(heartbeat_retry_ms=2000, heartbeat_deregister_ms=3000)
    ann = world.connect()
    world.after(1999)
    assert ann.take() == []
    world.after(1)
    assert len(ann.take()) == 1
    world.after(1000)
    assert isinstance(ann.closed, Timeout)


def test_a_tick_is_due_every_second_and_at_every_deadline(world: World, ann: Peer, bob: Peer) -> None:
    bob.subscribe("a", "request")
    start = world.now_ms
    assert world.broker.next_due_ms() == start + 1000
    ann.send(f"request:a:1.0.0:{ID}::300\n", f"request:a:1.0.0:{ID}::20\n")
    assert world.broker.next_due_ms() == start + 20
    world.after(20)
    assert world.broker.next_due_ms() == start + 300
    world.after(300)
    assert world.broker.next_due_ms() == start + 1000


# Rates


def test_one_connection_may_send_so_many_a_second() -> None:
    world = World(connection_rate_max=5)
    ann, bob = world.connect(), world.connect()
    bob.subscribe("a")  # one of five
    got = ann.send(*(f"publish:a:1.0.0:{own_id(n)}\n{n}" for n in range(8)))
    assert [text.partition("\n")[2] == SUCCESS for text in got] == [True] * 5 + [False] * 3
    assert [text.split("\n")[0].split(":")[3] for text in got] == [own_id(n) for n in range(8)]
    assert error_of(got[-1])["code"] == "QUOTA_EXCEEDED"
    assert error_of(got[-1])["details"] == {"connection_rate_max": 5}
    assert [text.partition("\n")[2] for text in bob.take()] == list("01234")
    world.after(200)
    assert only(ann.send(f"publish:a:1.0.0:{ID}\n")).endswith(SUCCESS)
    assert code_of(only(ann.send("publish:a:1.0.0\n"))) == "QUOTA_EXCEEDED"
    bob.take()
    assert bob.send(f"publish:a:1.0.0:{ID}\n")[1].endswith(SUCCESS)


def test_every_kind_of_message_counts_against_the_rate_of_a_connection() -> None:
    world = World(connection_rate_max=2)
    for message in (
        f"request:system.heartbeat:1.0.0:{ID}\n",
        f"subscribe:a:1.0.0:{ID}\n",
        f"publish:a:1.0.0:{ID}\n",
        f"publish:a:1.0.0:{ID}:{PARENT}\n",
        f"ack:a:1.0.0:{ID}\n",
    ):
        for send in (Peer.send, Peer.send_one_by_one):
            got = [text for text in send(world.connect(), *[message] * 3) if text.startswith("response")]
            assert ["QUOTA_EXCEEDED" in text for text in got] == [False, False, True]


@pytest.mark.parametrize("message", [f"publish:system.x:1.0.0:{ID}\n", f"bogus:a:1.0.0:{ID}\n"])
def test_messages_that_are_refused_anyway_count_too(message: str) -> None:
    got = World(connection_rate_max=2).connect().send(*[message] * 3)
    assert sorted("QUOTA_EXCEEDED" in text for text in got) == [False, False, True]


def test_a_subscription_past_the_rate_is_not_made() -> None:
    world = World(connection_rate_max=1)
    ann = world.connect()
    ann.send("subscribe:a:1.0.0\n")
    before = world.state()
    assert code_of(only(ann.send(f"subscribe:b:1.0.0:{ID}\n"))) == "QUOTA_EXCEEDED"
    assert world.state() == before


def test_one_topic_takes_so_many_a_second_of_all_together() -> None:
    world = World(topic_rate_max=3)
    ann, bob = world.connect(), world.connect()
    for topic in ("a.b", "a.c"):
        ann.subscribe(topic)
    for peer in (ann, bob):
        peer.send(*["publish:A.b:1.0.0\n"] * 2)
    got = bob.send(f"publish:a.B:1.0.0:{ID}\n", f"publish:a.c:1.0.0:{ID2}\n", f"publish:a.b:1.0.0:{ID3}:{PARENT}\n")
    assert {text.split("\n")[0][-36:]: "QUOTA_EXCEEDED" in text for text in got} == {ID: True, ID2: False, ID3: True}
    assert error_of(next(text for text in got if ID in text))["details"] == {"topic_rate_max": 3}
    world.after(1000)
    assert only(bob.send(f"publish:a.b:1.0.0:{ID}\n")).endswith(SUCCESS)


def test_a_part_of_a_batch_past_the_rate_is_refused_and_the_rest_delivered_in_order() -> None:
    world = World(topic_rate_max=3)
    ann = world.connect()
    ann.subscribe("a")
    got = ann.send(*(f"publish:a:1.0.0:{own_id(n)}\n{n}" for n in range(5)))
    assert [text.split(":")[0] for text in got] == ["publish"] * 3 + ["response"] * 5
    assert ["QUOTA_EXCEEDED" in text for text in got] == [False] * 6 + [True] * 2


def test_the_rates_that_are_known_are_bounded_and_what_is_more_shares_one() -> None:
    rates = RateLimiter(connection=None, topic=1)
    topics = [TopicName.parse(f"t{n}") for n in range(_TOPICS_MAX + 5)]
    allowed = [rates.allow(None, topic, 0) for topic in topics]
    assert allowed == [True] * _TOPICS_MAX + [False] * 5
    assert len(rates._topics) <= _TOPICS_MAX
    assert all(rates.allow(None, topic, 1000) for topic in topics[-5:])


# Batches and single messages are the same to the broker


run_messages = st.lists(
    st.tuples(
        st.sampled_from(["a", "a", "A", "b", "nobody", "system.x"]),
        st.sampled_from(["", "", "id", "id+parent"]),
        st.sampled_from(["", "x", "xx" * 50]),
    ),
    max_size=12,
)


def play(send: Callable[..., list[str]], story: list[tuple[str, str, str]], limits: dict[str, Any]) -> Any:
    world = World(**limits)
    ann, bob = world.connect(), world.connect()
    for peer, topic in ((bob, "a"), (ann, "a"), (bob, "b")):
        peer.subscribe(topic)
    messages = []
    for n, (topic, ids, payload) in enumerate(story):
        tail = {"": "", "id": f":{own_id(n)}", "id+parent": f":{own_id(n)}:{PARENT}"}[ids]
        messages.append(f"publish:{topic}:1.0.0{tail}\n{payload}")
    got = send(ann, *messages)
    return (
        [text for text in got if text.startswith("publish")],
        Counter(text for text in got if text.startswith("response")),
        bob.take(),
        ann.client.errors,
        world.broker.metric_values(),
    )


@given(run_messages, st.sampled_from([{}, {"topic_rate_max": 3}]))
@settings(max_examples=150)
def test_messages_in_one_piece_fare_as_they_do_one_by_one(
    story: list[tuple[str, str, str]], limits: dict[str, int]
) -> None:
    *whole, counted = play(Peer.send, story, limits)
    *single, counted_single = play(Peer.send_one_by_one, story, limits)
    assert whole == single
    assert counted == counted_single


@given(run_messages, st.sampled_from([{"connection_rate_max": 6}, {"connection_rate_max": 6, "topic_rate_max": 2}]))
@settings(max_examples=150)
def test_the_same_messages_are_past_a_rate_in_one_piece_and_one_by_one(
    story: list[tuple[str, str, str]], limits: dict[str, int]
) -> None:
    *whole, _ = play(Peer.send, story, limits)
    *single, _ = play(Peer.send_one_by_one, story, limits)
    assert whole == single


def test_the_size_of_the_largest_message_is_that_of_one_message() -> None:
    story = [("a", "", "x" * 1000), ("a", "", ""), ("a", "", "")]
    assert play(Peer.send, story, {})[-1]["router.message.size.max"] == 1000


@pytest.mark.parametrize("topic", ["system.x", "a"])
def test_a_batch_is_counted_as_its_messages_are(topic: str) -> None:
    story = [(topic, "id", "")] * 10
    whole, single = (play(send, story, {"connection_rate_max": 6})[-1] for send in (Peer.send, Peer.send_one_by_one))
    assert whole["router.publish.count"] == single["router.publish.count"]


# Thousands of stories


class Story(RuleBasedStateMachine):
    """A model of the broker: every message with an id is answered once, and a refused one changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        hours = 100 * REQUEST_TIMEOUT_MS_CEILING
        self.world = World(
            requests_open_max=4, subscriptions_max=4, heartbeat_retry_ms=hours, heartbeat_deregister_ms=hours
        )
        self.peers = [self.world.connect() for _ in range(3)]
        self.count = 0
        self.waiting: dict[str, Peer] = {}
        """Ids to be answered, and the clients that wait."""

        self.asked: list[tuple[Peer, str]] = []
        """Requests that reached a server, which may answer under these ids more than once."""

    def new_id(self) -> str:
        self.count += 1
        return own_id(self.count)

    def look(self) -> dict[str, list[str]]:
        """Read the output of all clients; return the answers by their ids."""
        answers: dict[str, list[str]] = {}
        for peer in self.peers:
            for frame in peer.take_frames():
                given_id = frame.header.request_id or ""
                if frame.header.action is Action.REQUEST:
                    self.asked.append((peer, given_id))
                elif frame.header.action is Action.RESPONSE:
                    answers.setdefault(given_id, []).append(text_of(frame))
                    if given_id in self.waiting:
                        assert self.waiting.pop(given_id) is peer, "answered to somebody else"
                    else:
                        assert not given_id.startswith("00000000"), "answered a second time"
        return answers

    def send(self, place: int, message: str, given_id: str | None, *, answered_now: bool = True) -> None:
        peer = self.peers[place]
        before = self.world.state()
        if given_id is not None:
            self.waiting[given_id] = peer
        peer.post(message)
        answers = self.look()
        if given_id is not None and answered_now:
            assert given_id in answers, f"no answer to {message}"
        if any('"error"' in text for texts in answers.values() for text in texts):
            assert self.world.state() == before, f"refused, and still changed something: {message}"

    places = st.integers(0, 2)
    topics = st.sampled_from(["a", "A", "a.b", "/ns/a", "system.x", "nobody"])
    patterns = st.sampled_from(["a", "#", "+.b", "/ns/#", "system.#", "system"])
    kinds = st.sampled_from(["publish", "request", "both", "neither"])

    @rule(place=places, topic=topics, with_id=st.booleans(), parent=st.booleans())
    def publish(self, place: int, topic: str, with_id: bool, parent: bool) -> None:
        given_id = self.new_id() if with_id else None
        tail = f":{given_id or ''}:{PARENT}" if parent else f":{given_id}" if with_id else ""
        self.send(place, f"publish:{topic}:1.0.0{tail}\nhello", given_id)

    @rule(place=places, pattern=patterns, kind=kinds, with_id=st.booleans(), direct=st.booleans(), end=st.booleans())
    def subscribe(self, place: int, pattern: str, kind: str, with_id: bool, direct: bool, end: bool) -> None:
        given_id = self.new_id() if with_id else None
        tail = f":{given_id}" if with_id else ""
        what = "unsubscribe" if end else "subscribe"
        if direct:
            self.send(place, f'{what}:{pattern}:1.0.0{tail}\n{{"action":"{kind}"}}', given_id)
        else:
            fields = json.dumps({"action": kind, "topic": pattern})
            self.send(place, f"request:system.topic.{what}:1.0.0{tail}\n{fields}", given_id)

    @rule(place=places, topic=topics, with_id=st.booleans(), timeout_ms=st.sampled_from(["", "::1", "::2000"]))
    def request(self, place: int, topic: str, with_id: bool, timeout_ms: str) -> None:
        given_id = self.new_id() if with_id else None
        tail = f":{given_id or ''}{timeout_ms}" if with_id or timeout_ms else ""
        self.send(place, f"request:{topic}:1.0.0{tail}\nquestion", given_id, answered_now=False)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data: st.DataObject, again: bool) -> None:
        server, given_id = self.asked[data.draw(st.integers(0, len(self.asked) - 1))]
        if server in self.peers:
            if not again:
                self.asked.remove((server, given_id))
            self.send(self.peers.index(server), f"response:a:1.0.0:{given_id}\nanswer", None)

    @rule(place=places, data=st.data())
    def answer_for_another(self, place: int, data: st.DataObject) -> None:
        foreign = [each for server, each in self.asked if server is not self.peers[place]]
        given_id = data.draw(st.sampled_from(foreign)) if foreign else own_id(0)
        before = self.world.state()
        peer = self.peers[place]
        (answer,) = [text for text in peer.send(f"response:a:1.0.0:{given_id}\nfalse") if text.startswith("response")]
        assert code_of(answer) == "INVALID_REQUEST_ID"
        assert self.world.state() == before

    broken = st.sampled_from(
        [
            "publish:a..b:1.0.0:{}\n",
            "bogus:a:1.0.0:{}\n",
            "publish:a:1:{}\n",
            "publish:a:1.0.0:{}:\n",
            "publish:a:1.0.0:{}",
            "ack:a:1.0.0:{}\n",
            "records:a:1.0.0:{}\n",
            "append:system.x:1.0.0:{}\n",
            "request:system.nope:1.0.0:{}\n",
            "request:system.topic.subscribe:1.0.0:{}\n[",
            "request:system.service.register:1.0.0:{}\nnull",
            "request:system.log.subscribe:1.0.0:{}\n5",
            "subscribe:a:1.0.0:{}\n[]",
            "response:system.metrics:1.0.0:{}\n",
        ]
    )

    @rule(place=places, message=broken)
    def break_a_rule(self, place: int, message: str) -> None:
        given_id = self.new_id()
        before = self.world.state()
        self.send(place, message.format(given_id), given_id)
        assert self.world.state() == before

    @rule(place=places)
    def reconnect(self, place: int) -> None:
        gone = self.peers[place]
        gone.leave()
        self.waiting = {given_id: peer for given_id, peer in self.waiting.items() if peer is not gone}
        self.look()
        self.peers[place] = self.world.connect()

    @rule(ms=st.sampled_from([0, 1, 500, 3000]))
    def time_passes(self, ms: int) -> None:
        self.world.after(ms)
        self.look()

    @invariant()
    def only_open_requests_wait(self) -> None:
        open_ids = {each.header.request_id for each in self.world.broker._requests._open.values()}
        assert self.waiting.keys() == open_ids - {None}

    def teardown(self) -> None:
        self.world.after(6000)
        self.look()
        assert self.waiting == {}
        assert self.world.broker.idle
        for peer in self.peers:
            peer.leave()
        assert all(not trie._root.below for trie in self.world.broker._routes._tries.values())


TestStory = Story.TestCase
TestStory.settings = settings(max_examples=120, stateful_step_count=50)


@given(st.lists(st.binary(max_size=80), max_size=20), st.integers(1, 50))
def test_garbage_never_breaks_the_broker_and_changes_nothing(pieces: list[bytes], step: int) -> None:
    world = World()
    ann = world.connect()
    before = world.state()
    data = b"".join(map(framed, pieces))
    got: list[str] = []
    for place in range(0, len(data), step):
        got += ann.send_bytes(data[place : place + step])
    assert len(got) == len(pieces)
    assert world.state() == before
    assert ann.ask("system.heartbeat") == {"status": "success"}
