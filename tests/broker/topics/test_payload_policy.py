"""Payload validation: `enforce` turns it on by default; topics with an older `enforce` keep what they had."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.broker.kit import Peer, World

from penstock.core.names import TopicName
from penstock.record.message import Message, SchemaRef
from penstock.storage.catalog.topics import SchemaPolicy, TopicSettings

AGE = json.dumps({"type": "object", "properties": {"age": {"type": "integer"}}})
BAD = b'{"age": "seven"}'


@pytest.fixture
def world(kept: World) -> World:
    """A broker with a disk."""
    return kept


def settings(answer: Any) -> tuple[str | None, bool | None]:
    found = answer["settings"]
    return found.get("schema_policy"), found.get("schema_payloads")


def takes_bad(ann: Peer, topic: str) -> bool:
    subject = f"{topic}-value" if "/" not in topic else topic[1:] + "-value"
    made = ann.ask("system.schema.register", {"subject": subject, "type": "JSON", "schema": AGE})
    answer = ann.append(topic, Message(payload=BAD, schema=SchemaRef(made["id"], made["version"])))
    return "error" not in answer


def test_a_topic_that_is_made_or_told_to_enforce_checks_payloads(ann: Peer) -> None:
    assert settings(ann.ask("system.topic.create", {"topic": "a", "schema_policy": "enforce"})) == ("enforce", True)
    ann.ask("system.topic.create", {"topic": "b"})
    assert settings(ann.ask("system.topic.alter", {"topic": "b", "schema_policy": "enforce"})) == ("enforce", True)
    assert not takes_bad(ann, "a")
    assert not takes_bad(ann, "b")


def test_whoever_says_no_is_heard_and_stays_so(ann: Peer) -> None:
    wanted = {"topic": "a", "schema_policy": "enforce", "schema_payloads": False}
    assert settings(ann.ask("system.topic.create", wanted)) == ("enforce", False)
    assert takes_bad(ann, "a")
    assert settings(ann.ask("system.topic.alter", {"topic": "a", "schema_policy": "enforce"})) == ("enforce", False)
    assert settings(ann.ask("system.topic.alter", {"topic": "a", "schema_payloads": None})) == ("enforce", True)


def test_other_policies_look_at_payloads_only_where_that_is_asked_for(ann: Peer) -> None:
    for policy in ("none", "warn"):
        made = ann.ask("system.topic.create", {"topic": policy, "schema_policy": policy})
        assert settings(made) == (policy, None)


def test_what_a_namespace_says_is_what_its_topics_get(ann: Peer) -> None:
    told = ann.ask("system.namespace", {"namespace": "shop", "schema_policy": "enforce"})
    assert settings(told) == ("enforce", True)
    assert settings(ann.ask("system.topic.create", {"topic": "/shop/a"})) == ("enforce", True)
    ann.ask("system.namespace", {"namespace": "shop", "schema_payloads": False})
    for more in ({}, {"schema_policy": "enforce"}):
        made = ann.ask("system.topic.create", {"topic": f"/shop/b{len(more)}"} | more)
        assert settings(made) == ("enforce", False)


def test_a_topic_from_before_keeps_what_it_had_until_its_policy_is_set_again(world: World, ann: Peer) -> None:
    assert world.broker.durable is not None
    store = world.broker.durable.topics.store
    before = TopicSettings(schema_policy=SchemaPolicy.ENFORCE)
    store.catalog.set_namespace_settings("old", before)
    world.broker.durable.topics.add(store.create_topic(TopicName.parse("old"), settings=before))
    assert takes_bad(ann, "old")
    assert settings(ann.ask("system.topic.alter", {"topic": "old", "rate_max": 9})) == ("enforce", None)
    assert settings(ann.ask("system.topic.describe", {"topic": "old"})) == ("enforce", None)
    assert settings(ann.ask("system.namespace", {"namespace": "old"})) == ("enforce", None)
    assert settings(ann.ask("system.topic.create", {"topic": "/old/new"})) == ("enforce", None)
    assert takes_bad(ann, "old")
    assert settings(ann.ask("system.topic.alter", {"topic": "old", "schema_policy": "enforce"})) == ("enforce", True)
    assert not takes_bad(ann, "old")
