"""The log of schema mismatches: their number, the first one's reason, and none left out."""

from __future__ import annotations

import json
import logging

import pytest
from tests.broker.kit import Peer, World

from penstock.broker.topics.schema_mismatches import EVERY_MS
from penstock.record.message import Message, SchemaRef

AGE = json.dumps({"type": "object", "properties": {"age": {"type": "integer"}}})
BAD = b'{"age": "seven"}'


@pytest.fixture
def world(kept: World) -> World:
    """A broker with a disk."""
    return kept


@pytest.fixture
def schema(ann: Peer) -> SchemaRef:
    for topic in ("people", "others"):
        ann.ask("system.topic.create", {"topic": topic, "schema_policy": "warn", "schema_payloads": True})
        made = ann.ask("system.schema.register", {"subject": f"{topic}-value", "type": "JSON", "schema": AGE})
    return SchemaRef(made["id"], made["version"])


class Told:
    """Log lines, as (topic, messages)."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "penstock.broker.topics.schema_mismatches")
        self._caplog = caplog

    def lines(self) -> list[str]:
        found = [
            each.getMessage()
            for each in self._caplog.records
            if each.name == "penstock.broker.topics.schema_mismatches"
        ]
        self._caplog.clear()
        return found


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


def send(ann: Peer, schema: SchemaRef, count: int, topic: str = "people", payload: bytes = BAD) -> None:
    ann.append(topic, *(Message(payload=payload, schema=schema) for _ in range(count)))


def test_the_first_is_told_at_once_and_the_rest_when_the_interval_is_over(
    world: World, ann: Peer, schema: SchemaRef, told: Told
) -> None:
    send(ann, schema, 2)
    (line,) = told.lines()
    assert line.startswith("2 messages of /default/people did not match its schemas; first: at /age: ")
    for _ in range(7):
        send(ann, schema, 1)
    assert told.lines() == []
    world.after(EVERY_MS)
    (line,) = told.lines()
    assert line.startswith("7 messages of /default/people did not match its schemas in the last 10 s; first: at /age: ")
    world.after(5 * EVERY_MS)
    assert told.lines() == []
    send(ann, schema, 1)
    (line,) = told.lines()
    assert line.startswith("1 message of /default/people did not match its schemas; first: ")


def test_every_message_is_counted_once_whatever_the_time(
    world: World, ann: Peer, schema: SchemaRef, told: Told
) -> None:
    total = 0
    for number in range(1, 12):
        send(ann, schema, number)
        send(ann, schema, number, payload=b'{"age": 7}')
        total += number
        world.after(EVERY_MS // 3)
    world.after(2 * EVERY_MS)
    lines = told.lines()
    assert sum(int(line.split()[0]) for line in lines) == total
    assert 3 <= len(lines) <= 6


def test_topics_are_told_of_one_by_one_and_nothing_is_lost_when_one_goes_or_the_broker_stops(
    world: World, ann: Peer, schema: SchemaRef, told: Told
) -> None:
    for topic in ("people", "others"):
        send(ann, schema, 1, topic)
        send(ann, schema, 3, topic)
    assert [line.split()[3] for line in told.lines()] == ["/default/people", "/default/others"]
    answer = ann.ask("system.topic.delete", {"topic": "people"})
    ann.ask("system.topic.delete", {"topic": "people", "confirm": answer["confirm"]})
    assert [line.split(" did")[0] for line in told.lines()] == ["3 messages of /default/people"]
    assert world.broker.durable is not None
    world.broker.durable.schema_enforcer.mismatch_log.close()
    assert [line.split(" did")[0] for line in told.lines()] == ["3 messages of /default/others"]
