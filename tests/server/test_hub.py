"""The hub: what one connection's end, silence or slowness means to the others."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.server.conftest import Connect
from tests.server.kit import (
    DEADLINE_SECONDS,
    ID,
    OTHER_ID,
    BrokerProcess,
    Link,
    Start,
    TcpClient,
    WsClient,
    eventually,
    framed,
)

from penstock.broker.broker import Broker
from penstock.core.clock import SystemClock
from penstock.core.errors import ServiceUnavailable
from penstock.core.limits import Limits, WireLimits
from penstock.core.names import TopicName
from penstock.record.block import Draft, read_draft
from penstock.record.message import Message
from penstock.server.background.registry_tasks import resolved
from penstock.server.hub import Hub
from penstock.server.main import now_ms
from penstock.server.session import Session
from penstock.storage.log.group_commit import PendingAppend
from penstock.storage.store import Store
from penstock.testing import ManualClock, ScriptedStream

Tcp = Callable[..., TcpClient]


# blocks that belong together


def test_a_batch_for_several_partitions_that_the_queue_has_no_room_for_leaves_nothing(tmp_path: Path) -> None:
    """Simulate an overloaded disk, whose queue has room for one part of the batch and not for the next."""
    asyncio.run(_overloaded(tmp_path))


async def _overloaded(root: Path) -> None:
    limits, topic = Limits(disk_reserve_bytes=1, queue_bytes_max=2_000), TopicName.parse("p")
    held, full = threading.Event(), threading.Event()
    handed: list[Callable[[Sequence[PendingAppend]], None]] = []
    with Store.open(root, create=True, limits=limits, deliver=lambda tickets: handed[0](tickets)) as store:
        store.create_topic(topic, partitions=4)
        broker = Broker(WireLimits(), SystemClock(), random.Random(1), now_ms=now_ms(), store=store)
        hub = Hub(broker, WireLimits(), now_ms, store.writer)
        handed.append(hub.committed)
        assert broker.durable is not None
        publishing, state = broker.durable.publisher, broker.durable.topics.find(topic)

        def stored(numbers: range) -> asyncio.Future[object]:
            answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            keyed = [Message(payload=bytes(100), key=b"%d" % each) for each in numbers]
            hub.apply(publishing.store(state, read_draft(Draft.of(keyed)), partial(resolved, answer)))
            return answer

        def hold() -> None:
            held.set()
            full.wait(DEADLINE_SECONDS)

        busy = threading.Thread(target=store.writer.run, args=(hold,))
        busy.start()
        held.wait(DEADLINE_SECONDS)
        try:
            taken = [stored(range(each, each + 8)) for each in range(10)]
        finally:
            full.set()
        busy.join()
        answers = await asyncio.gather(*taken)
        places = [log.next_offset for log in state.logs]
        refused = [each for each in answers if isinstance(each, ServiceUnavailable)]
        assert 0 < len(refused) < 10, "some of it was too much"
        assert sum(places) == 8 * (10 - len(refused))
        await hub.drain(0)


# waiting for those who are behind, with a clock of our own


class Timer:
    def __init__(self, due: float, call: Callable[[], object]) -> None:
        self.due = due
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clockwork:
    """The part of an event loop that the hub needs, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[Timer] = []

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: object) -> Timer:
        self._timers.append(Timer(self.now + seconds, lambda: call(*arguments)))
        return self._timers[-1]

    def call_soon(self, call: Callable[..., object], *arguments: object) -> Timer:
        return self.call_later(0, call, *arguments)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [each for each in self._timers if each.due <= until]:
            timer = min(due, key=lambda each: each.due)
            self._timers.remove(timer)
            self.now = max(self.now, timer.due)
            if not timer.cancelled:
                timer.call()
        self.now = until


class House:
    """A hub with a publisher and some subscribers, all scripted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, subscribers: int) -> None:
        self.loop = Clockwork()
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self.loop)
        limits = WireLimits(output_bytes_max=8 << 20, output_wait_ms=100)
        broker = Broker(limits, ManualClock(), random.Random(1))
        self.hub = Hub(broker, limits, lambda: int(self.loop.now * 1000))
        self.publisher, self._publishing = self._connected()
        self.subscribers = [self._connected() for _ in range(subscribers)]
        for session, _ in self.subscribers:
            session.received(framed(b"subscribe:hub.house:1.0.0\n"))
        self.loop.advance(0)  # a machine that stood still had to do some of it in a second turn

    def _connected(self) -> tuple[Session, ScriptedStream]:
        transport = ScriptedStream()
        session = self.hub.connect(transport, "here")
        assert session is not None
        return session, transport

    def publish(self) -> None:
        assert not self.waits, "whoever is paused sends nothing"
        self.publisher.received(framed(b"publish:hub.house:1.0.0\n" + bytes(100)))
        self.loop.advance(0)

    @property
    def waits(self) -> bool:
        return not self._publishing.reading


def test_a_publisher_waits_for_one_that_is_behind_until_it_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(monkeypatch, 1)
    ((subscriber, _),) = house.subscribers
    subscriber.fell_behind()
    house.publish()
    assert house.waits
    house.loop.advance(0.05)
    assert house.waits
    subscriber.caught_up()
    assert not house.waits


def test_a_publisher_waits_no_longer_than_it_must_and_not_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(monkeypatch, 1)
    ((subscriber, _),) = house.subscribers
    subscriber.fell_behind()
    house.publish()
    house.loop.advance(0.101)
    assert not house.waits
    house.publish()
    assert not house.waits


def test_one_that_caught_up_and_falls_behind_again_has_all_its_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(monkeypatch, 1)
    ((subscriber, _),) = house.subscribers
    subscriber.fell_behind()
    house.publish()
    house.loop.advance(0.01)
    subscriber.caught_up()
    house.loop.advance(0.089)
    subscriber.fell_behind()
    house.publish()
    house.loop.advance(0.002)
    assert house.waits
    assert not subscriber.stalled
    house.loop.advance(0.1)
    assert not house.waits


def test_a_publisher_waits_for_all_that_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(monkeypatch, 2)
    (one, _), (other, _) = house.subscribers
    one.fell_behind()
    other.fell_behind()
    house.publish()
    one.caught_up()
    assert house.waits
    other.caught_up()
    assert not house.waits


def test_many_that_fall_behind_one_after_another_cost_a_publisher_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(monkeypatch, 50)
    waited = 0.0
    for subscriber, _ in house.subscribers:
        subscriber.fell_behind()
        house.publish()
        while house.waits:
            house.loop.advance(0.01)
            waited += 0.01
    assert waited < 1.0


def test_a_session_with_too_much_queued_ends_and_no_publisher_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(monkeypatch, 2)
    (slow, transport), (other, _) = house.subscribers
    slow.fell_behind()
    transport.queued = (8 << 20) + 1
    house.publish()
    assert transport.closed is not None
    assert transport.closed.code == "QUOTA_EXCEEDED"
    assert not house.waits
    assert not other.ending
    assert len(house.hub) == 2


def let_go(monkeypatch: pytest.MonkeyPatch) -> tuple[House, ScriptedStream]:
    """Let a subscriber fall too far behind; return its transport, over which it still gets the reason."""
    house = House(monkeypatch, 1)
    ((slow, transport),) = house.subscribers
    slow.fell_behind()
    transport.queued = (8 << 20) + 1
    house.publish()
    assert transport.closed is not None
    return house, transport


def test_one_that_is_let_go_is_cut_off_when_it_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    house, transport = let_go(monkeypatch)
    for _ in range(3):
        transport.queued -= 1 << 20
        house.loop.advance(1.01)
        assert not transport.aborted
    house.loop.advance(1.01)
    assert transport.aborted


def test_one_that_is_let_go_does_not_stay_by_reading_a_little_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    house, transport = let_go(monkeypatch)
    for _ in range(10):
        assert not transport.aborted
        transport.queued -= 1
        house.loop.advance(1.01)
    assert transport.aborted


# with a real broker


def test_the_requester_is_told_at_once_when_its_server_goes(connect: Connect) -> None:
    server, client = connect(), connect()
    server.subscribe("hub.gone", "request")
    client.send(f"request:hub.gone:1.0.0:{ID}::60000", b"?")
    assert server.receive().payload == b"?"
    began = time.monotonic()
    server.close()
    answer = client.receive()
    assert (answer.error, answer.request_id) == ("SERVICE_UNAVAILABLE", ID)
    assert time.monotonic() - began < DEADLINE_SECONDS, "and not when the request would have timed out"


def test_an_answer_reaches_its_requester_under_the_requesters_own_id(connect: Connect, tcp: Tcp) -> None:
    server, client = connect(), tcp()
    server.subscribe("hub.serve", "request")
    client.send(f"request:hub.serve:1.0.0:{ID}::60000", b"?")
    asked = server.receive()
    assert asked.request_id != ID
    server.send(f"response:hub.serve:1.0.0:{asked.request_id}", b"\xff!")
    answer = client.receive()
    assert (answer.action, answer.request_id, answer.payload) == ("response", ID, b"\xff!")


def test_nobody_can_answer_for_another(tcp: Tcp) -> None:
    server, client, thief = tcp(), tcp(), tcp()
    server.subscribe("hub.theft", "request")
    client.send(f"request:hub.theft:1.0.0:{ID}::60000", b"?")
    asked = server.receive().request_id
    assert thief.ask(f"response:hub.theft:1.0.0:{asked}", b"mine").error == "INVALID_REQUEST_ID"
    server.send(f"response:hub.theft:1.0.0:{asked}", b"right")
    assert client.receive().payload == b"right"
    assert server.ask(f"response:hub.theft:1.0.0:{asked}", b"twice").error == "INVALID_REQUEST_ID"


def test_the_answer_to_a_requester_that_has_gone_is_dropped_in_silence(tcp: Tcp) -> None:
    server, client = tcp(), tcp()
    server.subscribe("hub.left", "request")
    client.send(f"request:hub.left:1.0.0:{ID}::60000", b"?")
    asked = server.receive().request_id
    client.close()
    server.send(f"response:hub.left:1.0.0:{asked}", b"too late")
    assert server.answers()


def test_a_client_that_stays_silent_is_asked_and_then_let_go(start: Start) -> None:
    broker = start(limits={"heartbeat_retry_ms": 1000, "heartbeat_deregister_ms": 8000})
    with TcpClient(broker.tcp_port) as one, WsClient(broker.ws_port) as two:
        for client in (one, two):
            client.subscribe("hub.silent")
        for client in (one, two):
            asked = client.receive()
            assert (asked.action, asked.topic) == ("request", "system.heartbeat")
            client.send(f"response:system.heartbeat:1.0.0:{asked.request_id}", b"{}")
        for client in (one, two):
            found = client.receive_until_end()
            assert [each.topic for each in found] == ["system.heartbeat", "error"]
            assert found[-1].error == "TIMEOUT"
    with TcpClient(broker.tcp_port) as other:
        assert other.ask(f"publish:hub.silent:1.0.0:{ID}").error == "NO_ROUTE_FOUND"


def test_a_slow_subscriber_is_told_why_and_let_go(start: Start) -> None:
    broker = start("--log-level", "info", limits={"output_bytes_max": 2 << 20})
    for transport, port in ((TcpClient, broker.tcp_port), (WsClient, broker.ws_port)):
        with TcpClient(broker.tcp_port) as publisher, transport(port) as slow:
            slow.subscribe("hub.slow")
            _flood(publisher, "hub.slow", broker, 30)
            found = slow.receive_until_end()
            assert {each.action for each in found[:-1]} == {"publish"}
            assert found[-1].error == "QUOTA_EXCEEDED"
            assert "Too slow" in found[-1].json["error"]["message"]


def _flood(publisher: TcpClient, topic: str, broker: BrokerProcess, mib: int) -> None:
    """Publish until the broker has queued too much for subscribers that do not read."""
    before = broker.log().count("Too slow")
    for _ in range(mib * 8):
        publisher.send(f"publish:{topic}:1.0.0", bytes(128 << 10))
        if broker.log().count("Too slow") > before:
            return
    raise AssertionError("nobody was too slow")


def test_a_subscriber_that_pauses_for_a_moment_loses_nothing(connect: Connect, tcp: Tcp) -> None:
    publisher, subscriber = tcp(), connect()
    subscriber.subscribe("hub.pause")
    count = 300

    def publish() -> None:
        for number in range(count):
            publisher.send("publish:hub.pause:1.0.0", number.to_bytes(4, "big") + bytes(20_000))

    thread = threading.Thread(target=publish)
    thread.start()
    eventually(lambda: not thread.is_alive() or publisher, "it has begun")
    found = [int.from_bytes(subscriber.receive().payload[:4], "big") for _ in range(count)]
    thread.join()
    assert found == list(range(count))


def test_a_subscriber_that_publishes_gets_its_own_message_too(connect: Connect) -> None:
    client = connect()
    client.subscribe("hub.own")
    client.send(f"publish:hub.own:1.0.0:{ID}", b"mine")
    assert {client.receive().action for _ in range(2)} == {"publish", "response"}


def test_topics_reach_across_transports_whatever_their_letter_case(
    tcp: Tcp, broker: BrokerProcess, connect: Connect
) -> None:
    publisher, subscriber = tcp(), connect()
    subscriber.subscribe("HUB.Case.+")
    publisher.send("Publish:hub.CASE.one:1.0.0", b"1")
    found = subscriber.receive()
    assert (found.topic.lower(), found.payload) == ("hub.case.one", b"1")


def test_what_was_sent_before_leaving_is_all_handled(start: Start) -> None:
    """Messages with a parent id are handled one by one, which takes more than one turn."""
    broker = start("--log-level", "info")
    with TcpClient(broker.tcp_port) as subscriber:
        subscriber.subscribe("hub.last")
        with TcpClient(broker.tcp_port) as publisher:
            each = f"publish:hub.last:1.0.0:{ID}:{OTHER_ID}"
            publisher.raw(b"".join(framed(f"{each}\n{number}".encode()) for number in range(5000)))
            publisher.socket.shutdown(socket.SHUT_WR)
            assert len(publisher.receive_until_end()) == 5000
        assert [int(subscriber.receive().payload) for _ in range(5000)] == list(range(5000))
        eventually(lambda: _active(subscriber) == 1, "it is gone")


def test_a_client_whose_answers_nobody_reads_is_let_go(start: Start) -> None:
    """Publish where nobody subscribes, without reading the answers: the publisher is slow, too."""
    broker = start("--log-level", "info", limits={"output_bytes_max": 1 << 20, "payload_bytes_max": 1 << 20})
    for transport, port in ((TcpClient, broker.tcp_port), (WsClient, broker.ws_port)):
        with transport(port) as client:
            before = broker.rss_bytes()
            chunk = client.frame(b"publish:hub.nobody:1.0.0\n") * 1000
            with suppress(ConnectionError, TimeoutError):  # what comes after the end is read, and not looked at
                client.raw(chunk * 2000)
            assert broker.rss_bytes() - before < 32 << 20
            assert client.receive_until_end()
    assert broker.log().count("Too slow") == 2


def test_ten_thousand_comings_and_goings_leave_nothing_behind(start: Start) -> None:
    broker = start("--log-level", "error")

    def rounds(count: int) -> None:
        for number in range(count):
            transport, port = ((TcpClient, broker.tcp_port), (WsClient, broker.ws_port))[number % 2]
            with transport(port) as client:
                client.subscribe(f"hub.coming{number % 7}.+")
                client.send(f"request:hub.coming1.x:1.0.0:{ID}")

    rounds(500)
    before = broker.rss_bytes()
    rounds(1500)
    assert broker.rss_bytes() - before < 6 << 20
    with TcpClient(broker.tcp_port) as client:
        eventually(lambda: _active(client) == 1, "all are gone")
        assert client.ask(f"request:system.topic.list:1.0.0:{ID}").json == {"topics": []}


def _active(client: Link) -> int:
    found = client.ask(f"request:system.metrics:1.0.0:{OTHER_ID}", b'{"filter":"^connection.active$"}')
    return int(found.json["metrics"]["connection.active"])


def test_a_listing_of_very_many_subscriptions_fits_into_one_answer(tcp: Tcp) -> None:
    client = tcp()
    for number in range(999):
        client.raw(client.frame(f"subscribe:hub.many{number}.{'x' * 200}:1.0.0\n".encode()))
    answer = client.ask(f"request:system.topic.list:1.0.0:{ID}")
    assert len(answer.payload) < 1 << 20
    assert len(answer.json["topics"]) <= 1000
    own = client.ask(f"request:system.service.subscriptions:1.0.0:{ID}")
    assert len(json.loads(own.payload)["subscriptions"]) == 999
