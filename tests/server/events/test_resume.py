"""A reader that is killed again and again, while others publish and the broker itself is killed too."""

from __future__ import annotations

import contextlib
import random
import threading
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.kit import child_environment
from tests.server.events.sse import DEADLINE_SECONDS, Event, Reader
from tests.server.http_kit import Client

import penstock
from penstock.testing import RunningBroker

TOPICS: Final = ("orders", "orders.paid", "orders.sent")
KILLS: Final = 100
PATH: Final = "/api/events?topic=%23&typeMatcher=%5Eorder%5C.&from=earliest"


def port_of(broker: RunningBroker) -> int:
    return int(broker.ready["http_port"])


def beat(broker: RunningBroker) -> None:
    """Kill the broker, and start it again with the same data at another port."""
    broker.kill()
    broker.start()


@dataclass
class Publisher:
    """A thread that publishes until it is stopped, and repeats unanswered messages: each has a key, so that it is
    stored once."""

    broker: RunningBroker
    number: int
    acknowledged: dict[str, str] = field(default_factory=dict)
    """The id of each acknowledged payload, without those of the type that the reader filters out."""

    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        count = 0
        while not self.stop.is_set():
            # Where the broker is killed, an answer may also break off behind its first line.
            with contextlib.suppress(OSError, HTTPException), Client(port_of(self.broker)) as http:
                while not self.stop.is_set():
                    self._send(http, count)
                    count += 1

    def _send(self, http: Client, count: int) -> None:
        payload = f"{self.number}-{count}"
        kind = "order.created" if count % 3 else "noise"
        topic = TOPICS[count % len(TOPICS)]
        answer = http.ask("POST", f"/api/events?topic={topic}&type={kind}", payload.encode(), Idempotency_Key=payload)
        if answer.status == 503:
            raise OSError("the broker stops")
        assert answer.status == 200, answer.body
        if kind != "noise":
            self.acknowledged[payload] = answer.json["id"]


def partitioned(url: str) -> None:
    with penstock.connect(url) as client:
        client.ask("system.topic.create", {"topic": TOPICS[1], "partitions": 3})


@pytest.mark.slow
def test_a_reader_killed_a_hundred_times_misses_nothing_and_gets_nothing_twice(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(7)
    environment = child_environment(tmp_path_factory)
    with RunningBroker("--http-port", "0", data=tmp_path / "data", environment=environment) as broker:
        partitioned(broker.url)
        publishers = [Publisher(broker, number) for number in range(3)]
        threads = [threading.Thread(target=each.run, daemon=True) for each in publishers]
        try:
            for thread in threads:
                thread.start()
            got, last = followed(broker, chance)
        finally:
            for each in publishers:
                each.stop.set()
            for thread in threads:
                thread.join(DEADLINE_SECONDS)
        check(got + rest(port_of(broker), last), publishers)


def followed(broker: RunningBroker, chance: random.Random) -> tuple[list[Event], str]:
    got: list[Event] = []
    last = ""
    for kill in range(KILLS):
        if kill in (KILLS // 3, 2 * KILLS // 3):
            beat(broker)
        found, last = read_some(port_of(broker), last, chance)
        got += found
    return got, last


def read_some(port: int, last: str, chance: random.Random) -> tuple[list[Event], str]:
    """A few events, or none, or bytes of half an event; then the reader is gone. What it knows is the last id."""
    headers: dict[str, Any] = {"Last_Event_ID": last} if last else {}
    wanted = chance.choice((0, 1, 1, 2, 8))
    found: list[Event] = []
    with Reader(port, PATH, **headers) as reader:
        reader.parser.last_id = reader.parser._id = last
        for body in reader.bodies():
            found += reader.parser.receive(body[: chance.randrange(len(body) + 1)] if len(found) >= wanted else body)
            if len(found) >= wanted:
                break
        return found, reader.parser.last_id


def rest(port: int, last: str) -> list[Event]:
    headers: dict[str, Any] = {"Last_Event_ID": last} if last else {}
    with Reader(port, f"{PATH}&follow=false", **headers) as reader:
        return list(reader)


def check(got: list[Event], publishers: list[Publisher]) -> None:
    wanted = {payload: id_ for each in publishers for payload, id_ in each.acknowledged.items()}
    ids = [each.id for each in got]
    assert ids == sorted(set(ids)), "in order, and nothing twice"
    assert {each.type for each in got} == {"order.created"}
    shown = {each.data: each.id for each in got}
    assert len(shown) == len(got), "what was sent again is there once"
    assert wanted.items() <= shown.items(), "everything that was answered"
    assert len(shown) - len(wanted) <= len(publishers), "and nothing but that, and what was on its way at the end"
    assert len(wanted) > KILLS
