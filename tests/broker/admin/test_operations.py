"""System topics: their answers, and their errors for payloads that are wrong in every way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.kit import ID, ID2, SUCCESS, Peer, World, code_of, error_of, normal

from penstock.broker.admin.operations import TOPICS
from penstock.core.limits import (
    LIST_ENTRIES_MAX,
    LOG_PATTERN_CHARS_MAX,
    MIB,
    QUOTED_CHARS_MAX,
    SERVICE_DESCRIPTION_CHARS_MAX,
    SERVICE_NAME_CHARS_MAX,
)

OK = {"status": "success"}


def refusal(found: Any, code: str = "INVALID_REQUEST") -> str:
    assert found["error"]["code"] == code
    return str(found["error"]["message"])


def repeated(**fields: object) -> dict[str, object]:
    """Return the fields that an error repeats: null counts as absent."""
    return {name: value for name, value in fields.items() if value is not None}


# Payloads that are none


NOT_JSON = [b"{", b"{bad", b"not json", b"\xff\xfe", b'{"a":"\xff"}', b"{}{}", b"{} x", b"[" * 100_000, b'{"a":' * 5000]
NOT_JSON += [b'{"a":1e400}', b'{"a":NaN}', b'{"a":"\\ud800"}', b"\0", b"'x'", b"1" * 5000, b" "]
NO_OBJECT = [b"null", b"[]", b'"x"', b"1", b"true", b"1.5", b"[{}]", b"[" * 500 + b"]" * 500]
READING = [topic for topic, row in TOPICS.items() if row.reads_payload]
LIVE = [topic for topic, row in TOPICS.items() if row.durable_handler is None]
"""System topics that need no disk; the others have tests of their own."""


@pytest.mark.parametrize("topic", READING)
@pytest.mark.parametrize("payload", NOT_JSON, ids=lambda payload: repr(payload[:12]))
def test_what_is_not_json_is_malformed(world: World, ann: Peer, topic: str, payload: bytes) -> None:
    before = world.state()
    found = ann.ask(topic, payload)
    assert refusal(found, "MALFORMED_MESSAGE") == "Invalid JSON payload"
    if not TOPICS[topic].secret:
        assert len(found["error"]["details"]["payload"]) <= QUOTED_CHARS_MAX + 3
    assert world.state() == before


@pytest.mark.parametrize("topic", READING)
@pytest.mark.parametrize("payload", NO_OBJECT, ids=lambda payload: repr(payload[:12]))
def test_what_is_no_object_is_refused(world: World, ann: Peer, topic: str, payload: bytes) -> None:
    before = world.state()
    assert refusal(ann.ask(topic, payload))
    assert world.state() == before


@pytest.mark.parametrize("topic", LIVE)
@pytest.mark.parametrize("payload", [b"", b"{}"])
def test_an_empty_payload_and_an_empty_object_are_the_same(topic: str, payload: bytes) -> None:
    found, other = World().connect().ask(topic, payload), World().connect().ask(topic, b"{ }")
    if topic != "system.metrics":
        assert found == other
    needing = ("client.authenticate", "connection.close", "service.register", "topic.subscribe", "topic.unsubscribe")
    assert ("error" in found) == (topic.removeprefix("system.") in needing)


@pytest.mark.parametrize("payload", [*NOT_JSON, *NO_OBJECT], ids=lambda payload: repr(payload[:12]))
def test_a_heartbeat_does_not_look_at_its_payload(ann: Peer, payload: bytes) -> None:
    assert ann.ask("system.heartbeat", payload) == OK


@pytest.mark.parametrize("depth", [2, 100, 500, *range(960, 1000), 2000, 50_000])
def test_no_depth_of_nesting_breaks_anything(ann: Peer, depth: int) -> None:
    nest = b"[" * depth + b"]" * depth
    for topic, name in (
        ("system.topic.subscribe", b"priority"),
        ("system.topic.subscribe", b"action"),
        ("system.service.register", b"name"),
        ("system.metrics", b"filter"),
        ("system.log.subscribe", b"levels"),
        ("system.service.subscriptions", b"serviceId"),
    ):
        payload = b'{"action":"request","topic":"a","%b":%b}' % (name, nest)
        assert "error" in ann.ask(topic, payload)


@pytest.mark.parametrize("topic", READING)
def test_a_huge_payload_is_answered_with_a_small_error(ann: Peer, topic: str) -> None:
    room = 1 * MIB - 100
    for payload in (b"x" * room, b'{"name":"' + b"x" * room + b'"}', b'{"priority":[' + b"1," * (room // 2) + b"1]}"):
        (frame,) = ann.send(f"request:{topic}:1.0.0:{ID}\n".encode() + payload)
        assert len(frame) < 3000 or topic == "system.metrics"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["publish", "request", "both", "a.b", "#", "system.x", "error", "(", ".*", ID, "/ns/a.+"]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from(
    [
        "action",
        "topic",
        "priority",
        "name",
        "description",
        "levels",
        "regex",
        "filter",
        "paramFilter",
        "showAll",
        "serviceId",
    ]
)


@given(st.sampled_from(sorted(LIVE)), st.dictionaries(field_names, json_values, max_size=5))
@settings(max_examples=500)
def test_whatever_the_fields_hold_there_is_one_answer_and_an_error_changes_nothing(
    topic: str, fields: dict[str, Any]
) -> None:
    world = World()
    ann = world.connect()
    before = world.state()
    found = ann.ask(topic, fields)
    if "error" in found:
        assert found["error"]["code"] in ("INVALID_REQUEST", "SERVICE_UNAVAILABLE")
        assert world.state() == before


@given(st.sampled_from(sorted(TOPICS)), st.binary(max_size=50))
def test_whatever_the_payload_holds_there_is_one_answer(topic: str, payload: bytes) -> None:
    World().connect().ask(topic, payload)


# Which topics, which actions


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic not in LIVE])
def test_a_broker_that_keeps_nothing_says_so(ann: Peer, topic: str) -> None:
    assert refusal(ann.ask(topic, {"topic": "a"}), "TOPIC_NOT_SUPPORTED") == f"{topic}: this broker keeps no topics"


@pytest.mark.parametrize("topic", LIVE)
def test_topics_are_known_in_any_letter_case(ann: Peer, topic: str) -> None:
    found = ann.ask(topic.title())
    assert "error" not in found or "Missing or invalid" in found["error"]["message"]


@pytest.mark.parametrize(
    "topic", ["system.nope", "system.heartbeat.x", "system.topic", "system.initialize", "system.log"]
)
def test_a_system_topic_that_is_not_there_is_not_supported(ann: Peer, topic: str) -> None:
    assert refusal(ann.ask(topic), "TOPIC_NOT_SUPPORTED") == f"Unknown system message topic: {topic}"


def test_a_system_topic_may_be_called_by_its_full_name(ann: Peer) -> None:
    assert ann.ask("/default/system.heartbeat") == OK


def test_system_topics_of_other_namespaces_are_nobody_s(ann: Peer) -> None:
    assert "error" in ann.ask("/shop/system.heartbeat")


def test_the_topic_system_itself_is_an_ordinary_one(ann: Peer) -> None:
    ann.subscribe("system")
    assert ann.send("publish:system:1.0.0\nhi") == ["publish:system:1.0.0:<uuid>\nhi"]


@pytest.mark.parametrize("topic", [*TOPICS, "system.nope"])
@pytest.mark.parametrize("action", ["publish", "append", "message", "records", "ack", "nack", "seek"])
def test_only_requests_are_made_of_a_system_topic(world: World, ann: Peer, topic: str, action: str) -> None:
    before = world.state()
    (answer,) = ann.send(f'{action}:{topic}:1.0.0:{ID}\n{{"action":"publish","topic":"a.b"}}')
    expected = "REQUEST or RESPONSE" if topic == "system.heartbeat" else "REQUEST"
    found = error_of(answer)
    assert (found["code"], found["message"]) == ("INVALID_REQUEST", f"Invalid action, expected {expected} for {topic}")
    assert found["details"] == {"action": action, "topic": topic}
    assert world.state() == before


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "system.heartbeat"])
def test_nothing_but_a_heartbeat_is_answered_to_the_broker(ann: Peer, topic: str) -> None:
    (answer,) = ann.send(f"response:{topic}:1.0.0:{ID}\n{{}}")
    assert error_of(answer)["message"] == f"Invalid action, expected REQUEST for {topic}"


def test_the_answer_to_a_heartbeat_is_taken_in_silence(ann: Peer) -> None:
    assert ann.send(f"response:system.heartbeat:1.0.0:{ID}\n{SUCCESS}") == []
    assert ann.send("response:system.heartbeat:1.0.0\nwhatever") == []


def test_a_request_without_an_id_is_answered_under_one_of_the_brokers(ann: Peer) -> None:
    assert ann.send("request:system.heartbeat:1.0.0\n{}") == [f"response:system.heartbeat:1.0.0:<uuid>\n{SUCCESS}"]


def test_any_version_is_taken_and_repeated(ann: Peer) -> None:
    assert ann.send(f"REQUEST:System.Heartbeat:2.5.9:{ID}\n") == [f"response:System.Heartbeat:2.5.9:{ID}\n{SUCCESS}"]


# Services


def test_a_service_registers_and_is_listed(world: World, ann: Peer, bob: Peer) -> None:
    assert ann.ask("system.service.register", {"name": "zoo", "description": "animals"}) == OK
    assert bob.ask("system.service.register", {"name": "art", "description": "pictures"}) == OK
    world.after(1500)
    nameless = world.connect()
    listed = nameless.ask("system.service.list")["services"]
    assert [each["name"] for each in listed] == ["art", "zoo", ""]
    assert set(listed[0]) == {"id", "name", "description", "connectedAt", "lastHeartbeat"}
    assert {each["id"] for each in listed} == {"<uuid>"}


def test_times_of_a_service_are_times_of_day(world: World, ann: Peer) -> None:
    world.after(27_500)
    found = json.loads(_last(ann, f"request:system.service.list:1.0.0:{ID}\n"))["services"][0]
    assert (found["connectedAt"], found["lastHeartbeat"]) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:47.500Z")


def _last(peer: Peer, message: str) -> bytes:
    """Return the payload as it is, with its ids and times."""
    peer.post(message)
    return peer.take_frames()[-1].payload


def test_registering_again_changes_the_name(ann: Peer) -> None:
    for name in ("one", "two"):
        assert ann.ask("system.service.register", {"name": name, "description": "d"}) == OK
    (only,) = ann.ask("system.service.list")["services"]
    assert only["name"] == "two"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "x"},
        {"description": "x"},
        {"name": "", "description": "x"},
        {"name": "x", "description": ""},
        {"name": 1, "description": "x"},
        {"name": "x", "description": None},
        {"name": ["x"], "description": {}},
    ],
)
def test_a_service_needs_a_name_and_a_description(ann: Peer, fields: dict[str, Any]) -> None:
    found = ann.ask("system.service.register", fields)
    assert refusal(found) == "Missing or invalid name or description"
    assert found["error"]["details"] == repeated(**fields)
    assert ann.client.name == ""


def test_names_and_descriptions_are_exact_at_their_limits(ann: Peer) -> None:
    name, text = "n" * SERVICE_NAME_CHARS_MAX, "é" * SERVICE_DESCRIPTION_CHARS_MAX
    assert ann.ask("system.service.register", {"name": name[1:], "description": text[1:]}) == OK
    assert ann.ask("system.service.register", {"name": name, "description": text}) == OK
    found = ann.ask("system.service.register", {"name": name + "n", "description": "d"})
    assert refusal(found) == "Name of service is too long"
    assert found["error"]["details"] == {"name": name + "n"}
    found = ann.ask("system.service.register", {"name": "n", "description": text + "é"})
    assert refusal(found) == "Description of service is too long"
    assert ann.client.name == name


def test_a_service_sees_its_own_subscriptions_and_those_of_others(ann: Peer, bob: Peer) -> None:
    ann.subscribe("Events.User")
    ann.subscribe("svc.echo", "request", priority=5)
    ann.subscribe("/shop/orders.#", "both")
    expected = [
        {"action": "publish", "topic": "events.user"},
        {"action": "request", "topic": "svc.echo", "priority": 5},
        {"action": "publish", "topic": "/shop/orders.#"},
        {"action": "request", "topic": "/shop/orders.#", "priority": 0},
    ]
    assert ann.ask("system.service.subscriptions") == {"subscriptions": expected}
    assert bob.ask("system.service.subscriptions") == {"subscriptions": []}
    for spelled in (ann.id, ann.id.upper()):
        assert bob.ask("system.service.subscriptions", {"serviceId": spelled}) == {"subscriptions": expected}


@pytest.mark.parametrize("given_id", ["x", "", None, 1, [], {}, True, ID + "\n"])
def test_a_service_id_is_an_id(ann: Peer, given_id: object) -> None:
    found = ann.ask("system.service.subscriptions", {"serviceId": given_id})
    assert refusal(found) == "Invalid serviceId"
    assert found["error"]["details"] == repeated(serviceId=given_id)


def test_a_service_that_is_not_there_is_unavailable(world: World, ann: Peer, bob: Peer) -> None:
    found = ann.ask("system.service.subscriptions", {"serviceId": ID2})
    assert refusal(found, "SERVICE_UNAVAILABLE") == f"Service {ID2} not found"
    bob.leave()
    assert refusal(ann.ask("system.service.subscriptions", {"serviceId": bob.id}), "SERVICE_UNAVAILABLE")


# Topics


def test_subscribing_twice_changes_the_priority_and_is_listed_once(ann: Peer, bob: Peer) -> None:
    for priority in (1, 7):
        ann.subscribe("svc.echo", "request", priority=priority)
    bob.subscribe("SVC.Echo", "request", priority=-3)
    bob.subscribe("events.user")
    expected = [
        {"action": "publish", "topic": "events.user", "subscribers": [{"serviceId": "<uuid>"}]},
        {
            "action": "request",
            "topic": "svc.echo",
            "subscribers": [{"serviceId": "<uuid>", "priority": 7}, {"serviceId": "<uuid>", "priority": -3}],
        },
    ]
    assert ann.ask("system.topic.list") == {"topics": expected}
    assert ann.ask("system.topic.subscriptions") == {"subscriptions": expected}


@pytest.mark.parametrize("what", ["subscribe", "unsubscribe"])
@pytest.mark.parametrize("action", [None, "", "response", "ack", "publish ", 1, [], ["publish"], {}])
def test_an_action_is_publish_request_or_both(ann: Peer, what: str, action: object) -> None:
    found = ann.ask(f"system.topic.{what}", {"topic": "a.b", "action": action})
    assert refusal(found) == "Missing or invalid action"
    assert found["error"]["details"] == repeated(action=action)
    assert refusal(ann.ask(f"system.topic.{what}", {"topic": "a.b"})) == "Missing or invalid action"


@pytest.mark.parametrize("what", ["subscribe", "unsubscribe"])
@pytest.mark.parametrize(
    "topic", [None, "", "a..b", "1a", "a b", "#.a", "/ns", "a.b.c.d.e.f", "x" * 500, "é", 1, [], {"a": 1}]
)
def test_a_topic_is_a_topic_or_a_pattern(ann: Peer, what: str, topic: object) -> None:
    found = ann.ask(f"system.topic.{what}", {"topic": topic, "action": "publish"})
    assert refusal(found) == "Missing or invalid topic"
    assert ann.client.subscriptions == {}


@pytest.mark.parametrize("topic", ["system.heartbeat", "system.#", "System.+", "/default/system.x", "/shop/system.log"])
def test_nobody_subscribes_to_the_brokers_own_topics(ann: Peer, topic: str) -> None:
    assert refusal(ann.ask("system.topic.subscribe", {"topic": topic, "action": "publish"})) == (
        "Unable to subscribe to restricted topic"
    )
    (answer,) = ann.send(f"subscribe:{topic}:1.0.0:{ID}\n")
    assert error_of(answer)["message"] == "Unable to subscribe to restricted topic"
    assert ann.client.subscriptions == {}


@pytest.mark.parametrize("priority", ["high", "1", None, 1.5, 1.0, True, [], {}, 2**31, -(2**31), 10**30])
def test_a_priority_is_a_whole_number_of_31_bits(ann: Peer, priority: object) -> None:
    found = ann.ask("system.topic.subscribe", {"topic": "a", "action": "request", "priority": priority})
    assert refusal(found) == "Invalid priority"
    assert ann.client.subscriptions == {}


@pytest.mark.parametrize("priority", [0, 1, -1, 2**31 - 1, 1 - 2**31])
def test_a_priority_may_be_negative(ann: Peer, priority: int) -> None:
    ann.subscribe("a", "request", priority=priority)
    assert list(ann.client.subscriptions.values()) == [priority]


def test_a_priority_is_taken_and_means_nothing_where_no_requests_come(ann: Peer) -> None:
    assert ann.ask("system.topic.subscribe", {"topic": "a", "action": "publish", "priority": 1}) == OK
    assert ann.ask("system.service.subscriptions")["subscriptions"] == [{"action": "publish", "topic": "a"}]
    found = ann.ask("system.topic.subscribe", {"topic": "a", "action": "publish", "priority": "high"})
    assert refusal(found).startswith("Invalid priority")
    ann.subscribe("a", "both", priority=1)


def test_ending_what_was_not_begun_is_a_failure_and_no_error(ann: Peer) -> None:
    ann.subscribe("a.b", "both")
    fields = {"topic": "A.B", "action": "publish"}
    assert ann.ask("system.topic.unsubscribe", fields) == OK
    assert ann.ask("system.topic.unsubscribe", fields) == {"status": "failure"}
    assert ann.ask("system.topic.unsubscribe", fields | {"action": "both"}) == OK
    assert ann.client.subscriptions == {}


def test_the_number_of_subscriptions_is_exact_at_its_limit() -> None:
    world = World(subscriptions_max=3)
    ann = world.connect()
    ann.subscribe("a")
    ann.subscribe("b")
    fields = {"topic": "c", "action": "both"}
    before = world.state()
    assert refusal(ann.ask("system.topic.subscribe", fields), "QUOTA_EXCEEDED")
    assert world.state() == before
    ann.subscribe("c")
    assert refusal(ann.ask("system.topic.subscribe", {"topic": "d", "action": "publish"}), "QUOTA_EXCEEDED")
    ann.subscribe("a")  # it has that one already


# Lists


def test_the_list_of_services_ends_at_its_limit_and_says_so() -> None:
    world = World()
    peers = [world.connect() for _ in range(LIST_ENTRIES_MAX)]
    assert "truncated" not in (found := peers[0].ask("system.service.list"))
    assert len(found["services"]) == LIST_ENTRIES_MAX
    world.connect()
    found = peers[0].ask("system.service.list")
    assert (len(found["services"]), found["truncated"], found["total"]) == (
        LIST_ENTRIES_MAX,
        True,
        LIST_ENTRIES_MAX + 1,
    )


@pytest.mark.slow
def test_the_list_of_own_subscriptions_ends_at_its_limit_and_says_so() -> None:
    ann = World(subscriptions_max=2000).connect()
    for number in range(LIST_ENTRIES_MAX + 1):
        ann.send(f"subscribe:t{number}:1.0.0\n")
    found = ann.ask("system.service.subscriptions")
    assert (len(found["subscriptions"]), found["truncated"], found["total"]) == (1000, True, 1001)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["list", "subscriptions"])
def test_the_list_of_topics_ends_at_its_limit_and_says_so(what: str) -> None:
    world = World(subscriptions_max=2000)
    ann = world.connect()
    name = "topics" if what == "list" else "subscriptions"
    ann.send(*(f"subscribe:t{number}:1.0.0\n" for number in range(LIST_ENTRIES_MAX)))
    found = ann.ask(f"system.topic.{what}")
    assert (len(found[name]), "truncated" in found) == (LIST_ENTRIES_MAX, False)
    ann.send("subscribe:another:1.0.0\n")
    found = ann.ask(f"system.topic.{what}")
    assert (len(found[name]), found["truncated"], found["total"]) == (LIST_ENTRIES_MAX, True, LIST_ENTRIES_MAX + 1)


@pytest.mark.slow
def test_a_list_of_topics_holds_no_more_than_a_message_does() -> None:
    world = World(payload_bytes_max=40_000)
    for number in range(600):
        world.connect().send("subscribe:a:1.0.0\n", f"subscribe:b{number % 2}:1.0.0\n")
    found = world.connect().ask("system.topic.list")
    assert [each["topic"] for each in found["topics"]] == ["a"]
    assert (found["truncated"], found["total"]) == (True, 3)


@pytest.mark.slow
def test_subscribers_of_one_topic_are_not_left_out_in_silence() -> None:
    world = World()
    for _ in range(LIST_ENTRIES_MAX + 1):
        world.connect().send("subscribe:a:1.0.0\n")
    found = world.connect().ask("system.topic.list")
    assert len(found["topics"][0]["subscribers"]) == LIST_ENTRIES_MAX
    assert "truncated" in found or "truncated" in found["topics"][0]


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["d", "漢"])
def test_a_list_of_wordy_services_still_fits_into_a_message(letter: str) -> None:
    world = World()
    peers = [world.connect() for _ in range(LIST_ENTRIES_MAX)]
    for peer in peers:
        peer.ask("system.service.register", {"name": "n", "description": letter * SERVICE_DESCRIPTION_CHARS_MAX})
    assert peers[0].ask("system.service.list")["services"]


@pytest.mark.slow
def test_a_list_of_long_topics_still_fits_into_a_message() -> None:
    world = World()
    ann = world.connect()
    ann.send(*(f"subscribe:/{'n' * 60}/t{number}{'x' * 250}:1.0.0\n" for number in range(LIST_ENTRIES_MAX)))
    assert len(ann.ask("system.topic.list")["topics"]) == LIST_ENTRIES_MAX
    assert len(ann.ask("system.service.subscriptions")["subscriptions"]) == LIST_ENTRIES_MAX


# Logs


def test_log_lines_go_to_those_who_asked_for_their_level(world: World, ann: Peer, bob: Peer) -> None:
    assert ann.ask("system.log.subscribe", {"levels": ["info", "error"]}) == OK
    assert bob.ask("system.log.subscribe") == OK
    world.apply(world.broker.log("info", "connected", {"port": 5}))
    world.apply(world.broker.log("error", "broken", {}))
    world.apply(world.broker.log("debug", "detail", {}))
    info = '{"timestamp":"<time>","level":"info","message":"connected","details":{"port":5}}'
    error = '{"timestamp":"<time>","level":"error","message":"broken"}'
    assert ann.take() == [f"publish:system.log:1.0.0:<uuid>\n{text}" for text in (info, error)]
    assert bob.take() == [f"publish:system.log:1.0.0:<uuid>\n{error}"]


def test_log_lines_are_chosen_by_a_regular_expression(world: World, ann: Peer) -> None:
    assert ann.ask("system.log.subscribe", {"levels": ["info"], "regex": "^dis(connected)?$|é"}) == OK
    for text in ("disconnected", "connected", "dis", "café", ""):
        world.apply(world.broker.log("info", text, {}))
    assert [json.loads(text.partition("\n")[2])["message"] for text in ann.take()] == ["disconnected", "dis", "café"]


def test_a_second_log_subscription_replaces_the_first_and_an_end_is_an_end(world: World, ann: Peer) -> None:
    ann.ask("system.log.subscribe", {"levels": ["info"]})
    ann.ask("system.log.subscribe", {"levels": ["warn"], "regex": None})
    world.apply(world.broker.log("info", "x", {}))
    assert ann.take() == []
    world.apply(world.broker.log("warn", "x", {}))
    assert len(ann.take()) == 1
    for _ in range(2):
        assert ann.ask("system.log.unsubscribe") == OK
    world.apply(world.broker.log("warn", "x", {}))
    assert ann.take() == []
    assert world.broker.log("warn", "x", {}) == []


@pytest.mark.parametrize("levels", ["error", None, 1, {}, True])
def test_levels_are_a_list(world: World, ann: Peer, levels: object) -> None:
    assert refusal(ann.ask("system.log.subscribe", {"levels": levels})) == "Invalid log levels"
    assert not world.broker.clients.loggers


@pytest.mark.parametrize("level", ["loud", "ERROR", "", None, 1, [], {}, True, ["error"]])
def test_a_level_is_one_of_four(world: World, ann: Peer, level: object) -> None:
    found = ann.ask("system.log.subscribe", {"levels": ["error", level]})
    assert refusal(found) == "Invalid log level"
    assert found["error"]["details"] == repeated(level=level)
    assert not world.broker.clients.loggers


@pytest.mark.parametrize(
    "regex", ["(", "[", "*", "a{2,1}", "(?=x)", r"(a)\1", "(?:a{1000}){1000}", 1, [], {}, True, "\\"]
)
def test_a_log_regex_that_is_none_is_refused(world: World, ann: Peer, regex: object) -> None:
    assert refusal(ann.ask("system.log.subscribe", {"levels": ["error"], "regex": regex})) == "Invalid log regex"
    assert refusal(ann.ask("system.metrics", {"filter": regex})) == "Invalid filter regex"
    assert not world.broker.clients.loggers


def test_a_wrong_log_subscription_leaves_the_one_before_it(world: World, ann: Peer) -> None:
    ann.ask("system.log.subscribe", {"levels": ["info"]})
    before = world.state()
    ann.ask("system.log.subscribe", {"levels": ["warn"], "regex": "("})
    assert world.state() == before


def test_a_regex_is_exact_at_its_limit(ann: Peer) -> None:
    assert ann.ask("system.log.subscribe", {"regex": "x" * LOG_PATTERN_CHARS_MAX}) == OK
    assert refusal(ann.ask("system.log.subscribe", {"regex": "x" * (LOG_PATTERN_CHARS_MAX + 1)})) == "Invalid log regex"


def test_no_regex_takes_longer_than_its_text(world: World, ann: Peer) -> None:
    assert ann.ask("system.log.subscribe", {"levels": ["info"], "regex": "(a*)*(a*)*(a|a)*$b"}) == OK
    world.apply(world.broker.log("info", "a" * 100_000, {}))
    assert ann.take() == []


# Metrics


def metrics(peer: Peer, **fields: object) -> dict[str, float]:
    found = peer.ask("system.metrics", fields)["metrics"]
    assert isinstance(found, dict)
    return found


def test_metrics_count_what_happened(world: World, ann: Peer, bob: Peer) -> None:
    ann.ask("system.service.register", {"name": "n", "description": "d"})
    bob.subscribe("a")
    ann.send("publish:a:1.0.0\n12345", "publish:b:1.0.0\n", "bogus\n")
    found = metrics(ann)
    assert found["connection.active"] == 2
    assert found["connection.connected.total"] == 2
    assert found["registry.count"] == 1
    assert found["router.publish.count"] == 2
    assert found["router.publish.count.dropped"] == 1
    assert found["router.publish.count.error"] == 1
    assert found["router.message.count"] == 6
    assert found["router.message.count.error"] == 2
    assert found["registry.service.{serviceid:<uuid>}.uptime"] == 0


def test_rates_are_those_of_the_last_second(world: World, ann: Peer) -> None:
    ann.subscribe("a")
    world.after(1000)
    ann.send(*["publish:a:1.0.0\n"] * 7)
    world.after(1000)
    assert metrics(ann)["router.publish.rate"] == 7
    world.after(1000)
    assert metrics(ann)["router.publish.rate"] == 0
    assert metrics(ann)["router.publish.count"] == 7


def test_metrics_are_chosen_by_a_regular_expression(ann: Peer) -> None:
    found = metrics(ann, filter=r"^router\.publish\.")
    assert found
    assert all(name.startswith("router.publish.") for name in found)
    assert metrics(ann, filter="nothing like it") == {}
    assert metrics(ann, filter=None).keys() == metrics(ann).keys()


def test_metrics_are_chosen_by_a_parameter(ann: Peer, bob: Peer) -> None:
    for peer in (ann, bob):
        peer.ask("system.service.register", {"name": "n", "description": "d"})
    only = set(metrics(ann, paramFilter={"serviceId": ann.id}, showAll=False))
    assert only == {"registry.service.{serviceid:<uuid>}.error.count", "registry.service.{serviceid:<uuid>}.uptime"}
    with_others = metrics(ann, paramFilter={"serviceId": ann.id})
    assert "router.message.count" in with_others
    assert metrics(ann, paramFilter={"serviceId": "nobody"}, showAll=False) == {}


@pytest.mark.parametrize(
    "fields", [{"showAll": 1}, {"showAll": None}, {"paramFilter": []}, {"paramFilter": {"a": 1}}, {"paramFilter": None}]
)
def test_wrong_options_of_metrics_are_refused(ann: Peer, fields: dict[str, object]) -> None:
    assert refusal(ann.ask("system.metrics", fields)).startswith("Invalid ")


def test_errors_and_uptime_are_counted_per_service(world: World, ann: Peer) -> None:
    ann.ask("system.service.register", {"name": "n", "description": "d"})
    ann.send("bogus\n", "publish:a:1.0.0\n", "publish:a:1.0.0\n")
    world.after(2500)
    found = metrics(ann, filter="serviceid")
    assert sorted(found.values()) == [2, 3]


def test_metrics_of_many_services_still_fit_into_a_message() -> None:
    world = World(payload_bytes_max=64 * 1024)
    world.check = lambda: None  # type: ignore[method-assign]  # it looks at everybody each time
    for _ in range(600):
        world.connect().ask("system.service.register", {"name": "n", "description": "d"})
    assert metrics(world.connect())


def test_what_the_process_measures_of_itself_is_shown_too() -> None:
    world = World()
    world.broker._probe = lambda: {"process.uptime": 5.0}
    assert metrics(world.connect())["process.uptime"] == 5.0


def test_ids_and_times_can_be_made_comparable() -> None:
    assert normal("x 2023-11-14T22:13:20.000Z cd613e30-d8f1-4adf-91b7-584a2265b1f5") == "x <time> <uuid>"
    assert normal(ID) == ID
    assert code_of('a\n{"error":{"code":"X","message":"m","timestamp":"<time>"}}') == "X"
