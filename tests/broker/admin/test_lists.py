"""Paged lists, subscriptions without a consumer, and the entries that a client may see."""

from __future__ import annotations

from typing import Any

from tests.broker.kit import Peer, World
from tests.broker.topics.test_publisher import refused


def create(peer: Peer, **fields: Any) -> Any:
    if "since" in fields:
        fields["from"] = fields.pop("since")
    return peer.ask("system.subscription.create", {"topic": "a", "subscription": "s"} | fields)


def test_a_subscription_that_is_created_misses_nothing_from_then_on(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"before")
    made = create(ann, type="shared", redeliveries=2)
    assert (made["created"], made["subscription"], made["type"], made["lag"]) == (True, "s", "shared", 0)
    ann.append("a", b"after")
    kept.restart(reopen=True)
    bob = kept.connect()
    bob.consume("a", subscription="s")
    assert bob.payloads() == [b"after"]


def test_a_subscription_may_begin_where_it_is_told(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"0", b"1", b"2")
    assert create(ann, since=1)["lag"] == 2
    assert create(ann, subscription="t", since="earliest", filter={"type": ["x*"]})["lag"] == 3


def test_the_same_again_is_no_other_and_another_is_refused(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"0")
    create(ann, type="shared")
    assert create(ann, type="shared")["created"] is False
    assert "shared" in refused(create(ann, type="failover"), "INVALID_REQUEST")


def test_what_no_subscription_can_be_is_refused(kept: World) -> None:
    ann = kept.connect()
    refused(create(ann), "TOPIC_NOT_SUPPORTED")
    ann.append("a", b"0")
    wrong: list[dict[str, Any]] = [
        {"subscription": "../x"},
        {"subscription": ""},
        {"type": "none"},
        {"window": {"messages": 1}},
        {"consumer": "me"},
        {"redeliveries": -1},
        {"filter": []},
        {"other": 1},
    ]
    for fields in wrong:
        refused(create(ann, **fields), "INVALID_REQUEST")
    refused(create(ann, since=7), "OFFSET_OUT_OF_RANGE")
    assert ann.ask("system.subscription.list")["subscriptions"] == []


def test_subscriptions_are_listed_in_pages_in_the_order_of_topics_and_names(kept: World) -> None:
    ann = kept.connect()
    for topic in ("b", "a", "a.b"):
        ann.append(topic, b"0")
        for name in ("two", "one"):
            create(ann, topic=topic, subscription=name)
    found: list[tuple[str, str]] = []
    after: dict[str, str] = {}
    for _ in range(4):
        answer = ann.ask("system.subscription.list", {"limit": 2} | after)
        found += [(each["topic"], each["subscription"]) for each in answer["subscriptions"]]
        after = {"after": " ".join(found[-1])}
    topics = ("/default/a", "/default/a.b", "/default/b")
    assert found == [(topic, name) for topic in topics for name in ("one", "two")]


def test_those_that_are_read_elsewhere_are_listed_alone(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"0", b"1", b"2")
    create(ann)
    ann.ask("system.subscription.report", {"topic": "a", "subscription": "spark", "positions": {"0": 1}})
    (found,) = ann.ask("system.subscription.list", {"reported": True})["subscriptions"]
    assert (found["subscription"], found["lag"], found["consumers"]) == ("spark", 2, 0)
    assert found["reported_at"] == "<time>"
    assert len(ann.ask("system.subscription.list")["subscriptions"]) == 2


def test_topics_are_listed_in_pages(kept: World) -> None:
    ann = kept.connect()
    for name in ("c", "a", "b"):
        ann.ask("system.topic.create", {"topic": name})
    answer = ann.ask("system.topic.catalog", {"limit": 2})
    assert [each["topic"] for each in answer["topics"]] == ["/default/a", "/default/b"]
    assert (answer["truncated"], answer["total"]) == (True, 3)
    answer = ann.ask("system.topic.catalog", {"limit": 2, "after": "/default/b"})
    assert [each["topic"] for each in answer["topics"]] == ["/default/c"]
    assert "truncated" not in answer


def test_namespaces_are_those_with_topics_and_those_with_defaults(kept: World) -> None:
    ann = kept.connect()
    for name in ("/shop/a", "/shop/b", "c"):
        ann.ask("system.topic.create", {"topic": name})
    ann.ask("system.namespace", {"namespace": "lab", "rate_max": 5})
    found = ann.ask("system.namespace.list")["namespaces"]
    assert [(each["namespace"], each["topics"]) for each in found] == [("default", 1), ("lab", 0), ("shop", 2)]
    assert len(ann.ask("system.namespace.list", {"after": "lab"})["namespaces"]) == 1
    assert ann.ask("system.namespace.list", {"limit": 1})["total"] == 3


def test_lists_take_no_wrong_bounds(kept: World) -> None:
    ann = kept.connect()
    for topic in (
        "system.topic.catalog",
        "system.subscription.list",
        "system.namespace.list",
        "system.deadletter.list",
    ):
        for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": "1"}, {"limit": True}, {"after": 1}, {"x": 1}):
            refused(ann.ask(topic, wrong), "INVALID_REQUEST")
