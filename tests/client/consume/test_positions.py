"""Positions at which a consumer begins, as a program gives them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import penstock
from penstock.client.consume.positions import position_field
from penstock.core.errors import InvalidRequest
from penstock.testing import RunningBroker

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("earliest", "earliest"),
        (42, 42),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        (NOON, "2026-01-31T12:00:00+00:00"),
        (NOON.astimezone(timezone(timedelta(hours=5))), "2026-01-31T12:00:00+00:00"),
        ({0: "latest", 1: NOON}, {"0": "latest", "1": "2026-01-31T12:00:00+00:00"}),
    ],
)
def test_a_place_is_told_as_the_broker_knows_it(given: Any, told: Any) -> None:
    assert position_field(given, "start") == told


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (NOON.replace(tzinfo=None), "start: 2026-01-31 12:00:00 has no time zone"),
        ("soon", "start: 'soon' is no place in a log"),
        (["orders"], r"start is earliest, latest, an offset, .* not \['orders'\]"),
        (True, "start is earliest"),
        (1.5, "start is earliest"),
        (None, "start is earliest"),
        ({0: "soon"}, r"start\[0\]: 'soon' is no place"),
    ],
)
def test_what_is_no_place_is_refused_with_the_name_of_the_argument(given: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        position_field(given, "start")


def test_a_consumer_begins_at_a_time_and_seeks_to_one(keeper: RunningBroker) -> None:
    with penstock.connect(keeper.url) as client:
        with client.producer("places.times") as producer:
            producer.send(b"old")
        began = datetime.now(UTC)
        with client.consumer("places.times", "s", start=began - timedelta(hours=1)) as consumer:
            first = consumer.receive(timeout=60)
            consumer.seek(began + timedelta(hours=1))
            consumer.seek(began - timedelta(hours=1))
            again = consumer.receive(timeout=60)
    assert first is not None
    assert again is not None
    assert (first.payload, again.payload, first.offset) == (b"old", b"old", again.offset)


@pytest.mark.parametrize("topics", [["a", "b"], ("a",), b"a", None])
def test_several_topics_are_refused_with_what_to_do(keeper: RunningBroker, topics: Any) -> None:
    with penstock.connect(keeper.url) as client:
        with pytest.raises(InvalidRequest, match=r"topic is one name, .*: make a consumer for each topic"):
            client.consumer(topics, "s")
        with pytest.raises(InvalidRequest, match=r"topic is one name, .*: make a producer for each topic"):
            client.producer(topics)
