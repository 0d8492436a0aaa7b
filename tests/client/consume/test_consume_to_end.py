"""Consuming up to the end, with a real broker: it ends when everything before the end is acknowledged, not earlier."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.client.consume.consume_to_end import CatchUpConsumer
from penstock.client.sync import Client, Consumer
from penstock.testing import RunningBroker

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk


@pytest.fixture
def client(keeper: RunningBroker) -> Iterator[Client]:
    with penstock.connect(keeper.url) as connected:
        yield connected


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.consume.consume_to_end._PATIENCE_SECONDS", 0.0)


def fill(client: Client, topic: str, count: int) -> None:
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % number for number in range(count)])


def caught_up(client: Client, consumer: Consumer[Any], topic: str, on_wait: Callable[[str], None]) -> list[int]:
    """Consume and acknowledge; return the offsets."""
    found: list[int] = []
    for batch in CatchUpConsumer(client, consumer, topic, on_wait=on_wait):
        found += batch.offsets
        consumer.ack(batch)
    return found


def silent(reason: str) -> None:
    """Ignore a reported wait: none is expected, but a busy machine may cause one."""


def test_it_ends_when_all_that_was_there_is_acknowledged(client: Client) -> None:
    fill(client, "catching.ends", 5_000)
    with client.consumer("catching.ends", "s", start="earliest", window=100) as consumer:
        assert consumer.created
        assert caught_up(client, consumer, "catching.ends", silent) == list(range(5_000))
        assert caught_up(client, consumer, "catching.ends", silent) == []
    with client.consumer("catching.ends", "s") as consumer:
        assert not consumer.created


def test_it_ends_also_while_more_and_more_comes(client: Client) -> None:
    fill(client, "catching.steady", 10)
    over = threading.Event()

    def more() -> None:
        with client.producer("catching.steady") as producer:
            while not over.is_set():
                producer.send("x")
                time.sleep(0.001)

    writer = threading.Thread(target=more)
    with client.consumer("catching.steady", "s", start="earliest") as consumer:
        writer.start()
        try:
            found = caught_up(client, consumer, "catching.steady", silent)
        finally:
            over.set()
            writer.join()
    assert found == list(range(len(found)))
    assert len(found) >= 10


def test_what_another_consumer_has_in_flight_is_waited_for_and_may_come_here(
    client: Client, keeper: RunningBroker
) -> None:
    fill(client, "catching.shared", 10)
    options: dict[str, Any] = {"type": "shared", "start": "earliest"}
    other = client.consumer("catching.shared", "s", window=3, **options)
    held = [other.receive(20) for _ in range(3)]
    told: list[str] = []

    def leave(reason: str) -> None:
        told.append(reason)
        other.close()

    with penstock.connect(keeper.url) as another, another.consumer("catching.shared", "s", **options) as mine:
        found = caught_up(another, mine, "catching.shared", leave)
    assert sorted(found) == list(range(10))
    assert {message.offset for message in held if message is not None} <= set(found)
    assert told == ["others have what is left, or it is to be delivered again later"]


def test_why_it_waits_is_said(client: Client) -> None:
    fill(client, "catching.paused", 3)
    told: list[str] = []
    with client.consumer("catching.paused", "s", start="earliest") as consumer:
        consumer.pause()
        consumer.seek("earliest")

        def resume(reason: str) -> None:
            told.append(reason)
            consumer.resume()

        assert caught_up(client, consumer, "catching.paused", resume) == [0, 1, 2]
    assert told[0] == "paused: resume it"


class Stalled:
    """A client and its consumer whose subscription gets no message, and has another state each time."""

    subscription = "s"

    def __init__(self, *states: str) -> None:
        self._states = iter(("moving", *states))

    def ask(self, _topic: str, _fields: object) -> dict[str, Any]:
        state = next(self._states, None)
        return {"state": [state], "partitions": [{"partition": 0, "floor": int(state is None), "next_offset": 1}]}

    def receive_batch(self, _seconds: float) -> None:
        raise TimeoutError


def test_a_reason_that_differs_in_nothing_but_times_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PATIENCE_SECONDS", "_LOOK_SECONDS"):
        monkeypatch.setattr(f"penstock.client.consume.consume_to_end.{name}", -1.0)
    early, late = (f"blocked on poison offset 6 of partition 0 since 2026-11-18T14:17:{at}Z" for at in ("36.9", "37.0"))
    short, long = (f"window full: ann has acknowledged nothing for {seconds} s" for seconds in ("12", "1,013"))
    other = late.replace("offset 6", "offset 7")
    stalled: Any = Stalled(early, late, early, short, long, other)
    told: list[str] = []
    assert list(CatchUpConsumer(stalled, stalled, "t", on_wait=told.append)) == []
    assert told == [early, short, other]
