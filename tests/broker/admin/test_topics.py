"""The system topics about durable state: topics, namespaces, subscriptions; and every wrong request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.conftest import Keeping
from tests.broker.kit import ID, ID2, Peer, World
from tests.broker.subscriptions.test_service import cursor, fill
from tests.broker.topics.test_publisher import refused, topics_of

from penstock.broker.admin import topics
from penstock.core.errors import DiskFull, StorageFailed

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk

SUCCESS = {"status": "success"}
SUBSCRIPTION = [topic for topic in topics.TOPICS if topic.startswith("system.subscription.")]
OF_ONE = [topic for topic in SUBSCRIPTION if topic not in ("system.subscription.list", "system.subscription.create")]
FULL = DiskFull("no room")


def ask(peer: Peer, what: str, **fields: Any) -> Any:
    return peer.ask(f"system.{what}", fields)


def state(world: World) -> object:
    """Capture the state that such a request can change."""
    catalog = world.data.catalog
    return (
        catalog.list_topics(),
        catalog.list_subscriptions(),
        catalog.load_all_cursors(),
        {str(topic.name): sorted(topic.subscriptions) for topic in _topics(world)},
        {str(topic.name): [log.next_offset for log in topic.logs] for topic in _topics(world)},
    )


def _topics(world: World) -> Any:
    assert world.broker.durable is not None
    return world.broker.durable.topics


# create, describe, alter


def test_a_topic_is_what_it_was_created_as(kept: World) -> None:
    ann = kept.connect()
    settings_ = {"retention": {"age_ms": 5_000}, "rate_max": 7, "redeliveries": 2, "exhausted": "drop"}
    made = ask(ann, "topic.create", topic="/Shop/Orders.Made", partitions=3, **settings_)
    assert (made["topic"], made["dispatch"], made["partitions"]) == ("/shop/orders.made", "reliable", 3)
    assert made["settings"] == settings_
    assert (made["messages"], made["bytes"], made["subscriptions"]) == (0, 0, 0)
    kept.restart(reopen=True)
    found = ask(kept.connect(), "topic.describe", topic="/shop/orders.made")
    assert {name: value for name, value in found.items() if name not in ("logs", "subscriptions")} == {
        name: value for name, value in made.items() if name != "subscriptions"
    }
    assert [log["partition"] for log in found["logs"]] == [0, 1, 2]


def test_a_topic_that_is_there_is_not_created_again(kept: World) -> None:
    ann = kept.connect()
    ask(ann, "topic.create", topic="a", rate_max=5)
    before = state(kept)
    assert "/default/a" in refused(ask(ann, "topic.create", topic="A", partitions=2), "INVALID_REQUEST")
    assert state(kept) == before


def test_the_brokers_own_topics_cannot_be_created(kept: World) -> None:
    assert "error" in ask(kept.connect(), "topic.create", topic="system.mine")
    assert topics_of(kept) == []


def test_describe_says_how_much_there_is_and_who_reads_it(kept: World) -> None:
    ann = fill(kept, 5)
    ann.consume("a", subscription="s")
    ann.consume("a", since="earliest", request_id=ID2)
    ann.take_frames()
    found = ask(ann, "topic.describe", topic="a")
    assert (found["messages"], found["subscriptions"]) == (5, ["s"])
    (log,) = found["logs"]
    assert (log["first_offset"], log["next_offset"], log["segments"], log["damages"], log["failure"]) == (
        0,
        5,
        1,
        0,
        None,
    )
    assert log["bytes"] == found["bytes"] > 0


def test_settings_are_altered_one_by_one_and_null_is_the_default_again(kept: World) -> None:
    ann = kept.connect()
    ask(ann, "topic.create", topic="a", rate_max=5, retention={"age_ms": 5_000, "bytes": 10_000})
    assert ask(ann, "topic.alter", topic="a", redeliveries=9)["settings"] == {
        "rate_max": 5,
        "retention": {"age_ms": 5_000, "bytes": 10_000},
        "redeliveries": 9,
    }
    altered = ask(ann, "topic.alter", topic="a", rate_max=None, retention={"age_ms": 7_000})
    assert altered["settings"] == {"retention": {"age_ms": 7_000}, "redeliveries": 9}
    altered = ask(ann, "topic.alter", topic="a", retention=None)
    assert altered["settings"] == {"redeliveries": 9, "retention": {}}
    kept.restart(reopen=True)
    assert ask(kept.connect(), "topic.describe", topic="a")["settings"] == altered["settings"]


def test_an_altered_limit_holds_for_the_next_message(kept: World) -> None:
    ann = fill(kept, 1)
    ask(ann, "topic.alter", topic="a", payload_bytes_max=10)
    refused(ann.publish("a", b"x" * 11), "PAYLOAD_TOO_LARGE")
    ask(ann, "topic.alter", topic="a", payload_bytes_max=None)
    assert ann.publish("a", b"x" * 11)["offset"] == 1


@pytest.mark.parametrize("fixed", [{"partitions": 2}, {"partitions": 1}, {"dispatch": "live"}])
def test_what_never_changes_is_refused(kept: World, fixed: dict[str, Any]) -> None:
    ann = fill(kept, 1)
    before = state(kept)
    assert "never change" in refused(ask(ann, "topic.alter", topic="a", rate_max=1, **fixed), "INVALID_REQUEST")
    assert state(kept) == before


@pytest.mark.parametrize("what", ["topic.create", "topic.alter", "namespace"])
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"retention": 5}, "retention"),
        ({"retention": {"days": 1}}, "days"),
        ({"retention": {"age_ms": 0}}, "age_ms"),
        ({"retention": {"age_ms": "1d"}}, "age_ms"),
        ({"segment_bytes_max": 5}, "segment_bytes_max"),
        ({"segment_age_ms_max": -1}, "segment_age_ms_max"),
        ({"payload_bytes_max": 0}, "payload_bytes_max"),
        ({"payload_bytes_max": True}, "payload_bytes_max"),
        ({"rate_max": 1.5}, "rate_max"),
        ({"rate_max": 0}, "rate_max"),
        ({"schema_policy": "strict"}, "schema_policy"),
        ({"redeliveries": 1_001}, "redeliveries"),
        ({"exhausted": 3}, "exhausted"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(
    kept: World, what: str, setting: dict[str, Any], words: str
) -> None:
    ann = fill(kept, 1)
    before = state(kept)
    about = {"topic.create": {"topic": "b"}, "topic.alter": {"topic": "a"}, "namespace": {"namespace": "shop"}}
    assert words in refused(ask(ann, what, **about[what], **setting), "INVALID_REQUEST")
    assert state(kept) == before
    assert ask(ann, "namespace", namespace="shop")["settings"] == {"retention": {}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"partitions": 0}, "partitions"),
        ({"partitions": 1_025}, "partitions"),
        ({"partitions": "3"}, "partitions"),
        ({"partitions": None}, "partitions"),
        ({"dispatch": "both"}, "dispatch"),
        ({"dispatch": 1}, "dispatch"),
        ({"payload_bytes_max": 10_000, "segment_bytes_max": 5_000}, "payload_bytes_max"),
    ],
)
def test_a_topic_that_cannot_be_is_not_created(kept: World, fields: dict[str, Any], words: str) -> None:
    assert words in refused(ask(kept.connect(), "topic.create", topic="a", **fields), "INVALID_REQUEST")
    assert topics_of(kept) == []


def test_a_topic_that_could_not_be_altered_is_as_it_was(kept: World) -> None:
    ann = fill(kept, 1)
    kept.hold()
    ann.post(f'request:system.topic.alter:1.0.0:{ID}\n{{"topic":"a","rate_max":1}}')
    kept.do(error=FULL)
    refused(ann.answer(), "DISK_FULL")
    kept.release()
    assert [ann.publish("a").get("error") for _ in range(3)] == [None] * 3


# namespaces


def test_topics_of_a_namespace_take_what_they_do_not_say_from_it(kept: World) -> None:
    ann = kept.connect()
    assert ask(ann, "namespace", namespace="Shop", redeliveries=1, exhausted="drop")["namespace"] == "shop"
    ann.publish("/shop/auto")
    made = ask(ann, "topic.create", topic="/shop/made", redeliveries=4)
    assert made["settings"]["redeliveries"] == 4
    assert made["settings"]["exhausted"] == "drop"
    assert ask(ann, "topic.describe", topic="/shop/auto")["settings"]["redeliveries"] == 1
    ask(ann, "namespace", namespace="shop", redeliveries=None)
    kept.restart(reopen=True)
    found = ask(kept.connect(), "namespace", namespace="shop")
    assert found["settings"] == {"exhausted": "drop", "retention": {}}


def test_a_namespace_that_cannot_be_is_refused(kept: World) -> None:
    assert "error" in ask(kept.connect(), "namespace", namespace="no spaces")
    assert "namespace" in refused(ask(kept.connect(), "namespace"), "INVALID_REQUEST")


# delete


def test_where_there_is_something_to_lose_a_topic_is_deleted_in_two_steps(kept: World) -> None:
    ann = fill(kept, 5)
    ann.consume("a", subscription="s", since="latest")
    first = ask(ann, "topic.delete", topic="a")
    assert (first["status"], first["topic"], first["messages"], first["subscriptions"]) == (
        "confirm",
        "/default/a",
        5,
        1,
    )
    for wrong in ("", "yes", "0", 5, None):
        assert ask(ann, "topic.delete", topic="a", confirm=wrong)["status"] == "confirm"
    assert kept.stored("a")
    ann.post(f'request:system.topic.delete:1.0.0:{ID}\n{{"topic":"a","confirm":"{first["confirm"]}"}}')
    assert ann.answer() == SUCCESS
    (notice,) = ann.take()
    assert notice.startswith("publish:system.subscription.ended:1.0.0\n")
    assert "the topic was deleted" in notice
    assert (topics_of(kept), kept.data.catalog.list_subscriptions()) == ([], ())
    assert "no topic" in refused(ask(ann, "topic.describe", topic="a"), "TOPIC_NOT_SUPPORTED").lower()


def test_an_empty_topic_goes_at_once(kept: World) -> None:
    ann = kept.connect()
    ask(ann, "topic.create", topic="a")
    ask(ann, "topic.create", topic="b", dispatch="live")
    assert [ask(ann, "topic.delete", topic=each) for each in "ab"] == [SUCCESS, SUCCESS]
    assert topics_of(kept) == []


def test_the_word_that_deletes_a_topic_does_not_delete_the_next_of_that_name(kept: World) -> None:
    ann = fill(kept, 1)
    token = ask(ann, "topic.delete", topic="a")["confirm"]
    assert ask(ann, "topic.delete", topic="a", confirm=token) == SUCCESS
    ann.publish("a")
    assert ask(ann, "topic.delete", topic="a", confirm=token)["status"] == "confirm"


def test_a_numbered_producer_of_a_deleted_topic_is_no_longer_one(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a", name="till")
    assert ask(ann, "topic.delete", topic="a") == SUCCESS
    assert ann.register("a", name="till") != mine


# catalog


def test_topics_are_listed_by_name_and_by_namespace(kept: World) -> None:
    ann = kept.connect()
    for topic in ("b", "a.x", "/shop/c", "a"):
        ann.publish(topic)
    listed = ask(ann, "topic.catalog")["topics"]
    assert [each["topic"] for each in listed] == ["/default/a", "/default/a.x", "/default/b", "/shop/c"]
    assert [each["messages"] for each in listed] == [1] * 4
    for shop in ("shop", "SHOP"):
        assert [each["topic"] for each in ask(ann, "topic.catalog", namespace=shop)["topics"]] == ["/shop/c"]
    assert ask(ann, "topic.catalog", namespace="none")["topics"] == []


def test_a_long_list_goes_on_where_the_last_answer_ended(keeping: Keeping) -> None:
    world = keeping(payload_bytes_max=2_000)
    ann = world.connect()
    names = [f"t{number:02}" for number in range(30)]
    for name in names:
        ask(ann, "topic.create", topic=name, dispatch="live")
    seen: list[str] = []
    pages = 0
    while True:
        page = ask(ann, "topic.catalog", after=seen[-1]) if seen else ask(ann, "topic.catalog")
        seen += [each["topic"] for each in page["topics"]]
        pages += 1
        if "truncated" not in page:
            break
        assert page["total"] == 30 - len(seen) + len(page["topics"])
    assert seen == [f"/default/{name}" for name in names]
    assert pages > 2


def test_subscriptions_are_listed_topic_by_topic(kept: World) -> None:
    ann = kept.connect()
    for topic, name in (("b", "z"), ("a", "y"), ("a", "x")):
        ann.consume(topic, subscription=name)
    listed = ask(ann, "subscription.list")["subscriptions"]
    assert [(each["topic"], each["subscription"]) for each in listed] == [
        ("/default/a", "x"),
        ("/default/a", "y"),
        ("/default/b", "z"),
    ]
    assert [each["subscription"] for each in ask(ann, "subscription.list", topic="b")["subscriptions"]] == ["z"]


# every wrong way to ask


@pytest.mark.parametrize("topic", topics.TOPICS)
@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"{nonsense", "MALFORMED_MESSAGE"),
        (b"\xff", "MALFORMED_MESSAGE"),
        (b"[1]", "INVALID_REQUEST"),
        (b'"a"', "INVALID_REQUEST"),
        (b'{"nonsense":1}', "INVALID_REQUEST"),
    ],
)
def test_what_is_no_request_is_refused_and_changes_nothing(kept: World, topic: str, payload: bytes, code: str) -> None:
    ann = fill(kept, 1)
    ann.consume("a", subscription="s")
    before = state(kept)
    refused(ann.ask(topic, payload), code)
    assert state(kept) == before


@pytest.mark.parametrize("topic", [each for each in topics.TOPICS if "catalog" not in each and "list" not in each])
def test_a_request_about_nothing_names_what_is_missing(kept: World, topic: str) -> None:
    answer = kept.connect().ask(topic, {})
    assert refused(answer, "INVALID_REQUEST").startswith("Missing or invalid")
    assert answer["error"]["details"]["field"] in ("topic", "namespace", "subscription")


@pytest.mark.parametrize(
    "topic", [each for each in topics.TOPICS if each not in ("system.topic.create", "system.namespace")]
)
@pytest.mark.parametrize("wrong", [5, None, "", "no spaces", "a.+", "/ns", ["a"], "x" * 300])
def test_a_topic_that_is_no_topic_is_refused_everywhere(kept: World, topic: str, wrong: Any) -> None:
    field = "after" if topic == "system.topic.catalog" else "topic"
    if field == "after" and isinstance(wrong, str) and wrong:
        return
    answer = kept.connect().ask(topic, {field: wrong, "subscription": "s"} if topic in OF_ONE else {field: wrong})
    refused(answer, "INVALID_REQUEST")
    assert topics_of(kept) == []


@pytest.mark.parametrize(
    ("topic", "more"),
    [
        ("system.topic.describe", {}),
        ("system.topic.alter", {"rate_max": 1}),
        ("system.topic.delete", {}),
        ("system.subscription.list", {}),
        *((each, {"subscription": "s"}) for each in OF_ONE if each != "system.subscription.skip"),
        ("system.subscription.skip", {"subscription": "s", "offsets": [0]}),
    ],
)
def test_a_topic_that_is_not_there_is_not_created_by_asking(kept: World, topic: str, more: dict[str, Any]) -> None:
    given_ = {"topic": "nobody"} | more | ({"position": 0} if topic.endswith("seek") else {})
    assert "nobody" in refused(kept.connect().ask(topic, given_), "TOPIC_NOT_SUPPORTED")
    assert topics_of(kept) == []


@pytest.mark.parametrize("topic", [each for each in OF_ONE if each != "system.subscription.report"])  # which makes it
def test_a_subscription_that_is_not_there_is_refused_with_those_that_are(kept: World, topic: str) -> None:
    ann = fill(kept, 1)
    ann.consume("a", subscription="s")
    more = {"position": 0} if topic.endswith("seek") else {"offsets": [0]} if topic.endswith("skip") else {}
    before = state(kept)
    for wrong in ("t", "S"):
        answer = ann.ask(topic, {"topic": "a", "subscription": wrong} | more)
        assert "it has: s" in refused(answer, "INVALID_REQUEST")
    for no_name in (5, "", None):
        answer = ann.ask(topic, {"topic": "a", "subscription": no_name} | more)
        assert "subscription" in refused(answer, "INVALID_REQUEST")
    assert state(kept) == before


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "offsets"),
        ({"offsets": "all"}, "offsets"),
        ({"offsets": [-1]}, "offset"),
        ({"ranges": [[3, 1]]}, "range"),
        ({"offsets": [0], "partition": 3}, "partition 3"),
        ({"offsets": [0], "partition": "0"}, "partition"),
    ],
)
def test_a_skip_that_cannot_be_skips_nothing(kept: World, fields: dict[str, Any], words: str) -> None:
    ann = fill(kept, 3)
    ann.consume("a", subscription="s", since="earliest")
    ann.take_frames()
    answer = ask(ann, "subscription.skip", topic="a", subscription="s", **fields)
    assert words in refused(answer, "INVALID_REQUEST")
    assert cursor(kept) == (0, [], {})


@pytest.mark.parametrize("topic", ["pause", "resume", "delete"])
def test_what_the_catalog_refuses_is_answered(kept: World, topic: str) -> None:
    ann = fill(kept, 1)
    ann.consume("a", subscription="s")
    kept.hold()
    ann.post(f'request:system.subscription.{topic}:1.0.0:{ID}\n{{"topic":"a","subscription":"s"}}')
    kept.do(error=StorageFailed("gone"))
    refused(ann.answer(), "STORAGE_FAILED")
    kept.release()
    ann.publish("a", b"still", request_id=ID2)
    assert ann.payloads() == [b"still"]
    about = {"topic": "a", "subscription": "s"}
    assert ann.call("request", f"system.subscription.{topic}", about) == SUCCESS


def test_only_requests_are_answered(kept: World) -> None:
    ann = kept.connect()
    for action in ("publish", "append", "message"):
        (answer,) = ann.send(f'{action}:system.topic.create:1.0.0:{ID}\n{{"topic":"a"}}')
        assert "expected REQUEST" in answer
    assert topics_of(kept) == []


def test_system_topics_are_known_in_any_letter_case(kept: World) -> None:
    found = kept.connect().ask("SYSTEM.Topic.Create", {"topic": "A"})
    assert found["topic"] == "/default/a"


names = st.sampled_from(
    [
        "topic",
        "subscription",
        "position",
        "partition",
        "partitions",
        "dispatch",
        "offsets",
        "ranges",
        "namespace",
        "after",
        "confirm",
        "name",
        "access",
        "producer_id",
        "session",
        "resume",
        *topics.SETTINGS,
    ]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["a", "s", "/default/a", "earliest", "latest", "live", "shared", "drop", 0, 1, "2020-01-01"]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=5) | names, inside, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(topics.TOPICS)), st.dictionaries(names, values, max_size=4)), max_size=8)
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_whatever_is_asked_there_is_one_answer_and_an_error_changes_nothing(
    keeping: Keeping, requests: list[tuple[str, dict[str, Any]]]
) -> None:
    world = keeping()
    ann = fill(world, 2)
    ann.consume("a", subscription="s", since="earliest")
    ann.take_frames()
    for topic, fields in requests:
        before = state(world)
        answer = ann.call("request", topic, json.dumps(fields).encode())
        assert answer is not None
        if "error" in answer:
            assert answer["error"]["code"] != "INTERNAL_ERROR"
            assert state(world) == before
    world.close()


options = st.sampled_from(
    ["subscription", "type", "from", "window", "format", "filter", "consumer", "ack_timeout_ms", "redeliveries"]
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["subscribe", "unsubscribe", "ack", "nack", "seek"]),
            st.dictionaries(
                options | names | st.sampled_from(["cumulative", "extend", "delay_ms"]), values, max_size=4
            ),
        ),
        max_size=8,
    )
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_whatever_is_said_of_a_subscription_there_is_one_answer(
    keeping: Keeping, messages: list[tuple[str, dict[str, Any]]]
) -> None:
    world = keeping()
    ann = fill(world, 2)
    ann.consume("a", subscription="s", since="earliest")
    ann.take_frames()
    for action, fields in messages:
        answer = ann.call(action, "a", json.dumps(fields).encode())
        assert answer is not None
        assert answer.get("error", {}).get("code") != "INTERNAL_ERROR"
    world.close()
