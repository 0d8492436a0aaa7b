"""Kept topics in a real process: many at once, kill -9, slow consumers, and clients that leave in the middle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.kit import (
    ID,
    OTHER_ID,
    BrokerProcess,
    Link,
    Message,
    Start,
    TcpClient,
    eventually,
    framed,
    message,
)

from penstock.record.block import Block, Draft, parse_block

KEPT = ("--auto-create", "reliable")
MIB = 1 << 20


def own_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def ask(link: Link, action: str, topic: str, payload: bytes | object = b"", request_id: str = ID) -> Any:
    """The answer under this id; what else comes before it is passed over."""
    given = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    link.send(f"{action}:{topic}:1.0.0:{request_id}", given)
    while (heard := link.receive()).request_id != request_id or heard.action != "response":
        pass
    return heard.json


def consume(link: Link, topic: str, **options: Any) -> Any:
    """`since` is `from`, which is no name in Python."""
    if "since" in options:
        options["from"] = options.pop("since")
    return ask(link, "subscribe", topic, options)


def blocks(link: Link) -> Iterator[tuple[int, Block]]:
    """Return the blocks among the records: partition and block, with every checksum verified."""
    while True:
        heard: Message = link.receive()
        if heard.action == "records":
            assert heard.request_id is not None
            yield int(heard.request_id[-12:], 16), parse_block(heard.payload)


def read_all(link: Link, topic: str, name: str, count: int) -> list[bytes]:
    """Read so many payloads in records format, and acknowledge each block."""
    found: list[bytes] = []
    for partition, block in blocks(link):
        found += [record.message.payload for record in block]
        offsets = [int(block.offsets.start), int(block.offsets.stop)]
        fields = {"subscription": name, "partition": partition, "ranges": [offsets]}
        link.send(f"ack:{topic}:1.0.0", json.dumps(fields).encode())
        if len(found) >= count:
            return found
    raise AssertionError


@pytest.fixture
def kept(start: Start) -> BrokerProcess:
    return start(*KEPT)


def test_many_in_flight_at_once_are_all_answered_and_all_read_back_in_order(kept: BrokerProcess) -> None:
    total, window = 20_000, 1_024
    with TcpClient(kept.tcp_port) as publisher, TcpClient(kept.tcp_port) as reader:
        consume(reader, "orders.made", subscription="s", since="earliest", format="records", window={"messages": 5_000})
        sent = 0
        offsets: list[int] = []
        while len(offsets) < total:
            room = min(window - (sent - len(offsets)), total - sent)
            if room:
                numbers = range(sent, sent + room)
                heads = (message(f"publish:orders.made:1.0.0:{own_id(n)}", b"%d" % n) for n in numbers)
                publisher.raw(b"".join(map(framed, heads)))
                sent += room
            answer = publisher.receive()
            assert answer.request_id == own_id(len(offsets))
            offsets.append(answer.json["offset"])
        assert offsets == list(range(total))
        assert read_all(reader, "orders.made", "s", total) == [b"%d" % n for n in range(total)]
        about = {"topic": "orders.made", "subscription": "s"}
        eventually(
            lambda: ask(publisher, "request", "system.subscription.describe", about)["lag"] == 0,
            "everything is settled",
        )


def test_a_killed_broker_has_kept_all_that_it_answered(start: Start) -> None:
    first = start(*KEPT)
    with TcpClient(first.tcp_port) as client:
        registered = ask(client, "request", "system.producer.register", {"topic": "a", "name": "till"})
        producer = registered["producer_id"]
        payloads = [b"%d" % n for n in range(500)]
        block = bytes(Draft.of_payloads(payloads, producer_id=producer, first_request_id=1).data)
        stored = ask(client, "append", "a", block)
        assert (stored["offset"], stored["count"], stored["duplicate"]) == (0, 500, False)
        consume(client, "a", subscription="s", since="earliest", window={"messages": 100})
        for _ in range(100):
            client.receive()
        assert ask(client, "ack", "a", {"subscription": "s", "ranges": [[0, 10], [20, 30]]})["acked"] == 20
        nacked = {"subscription": "s", "offsets": [12], "delay_ms": 60_000}
        assert ask(client, "nack", "a", nacked)["nacked"] == 1
        first.process.kill()
        first.process.wait()
    second = start(*KEPT, folder=first.folder)
    with TcpClient(second.tcp_port) as client:
        again = ask(client, "request", "system.producer.register", {"topic": "a", "name": "till"})
        assert (again["producer_id"], again["last_request_id"]) == (producer, 500)
        repeated = ask(client, "append", "a", block)
        assert (repeated["offset"], repeated["duplicate"]) == (0, True)
        assert ask(client, "publish", "a", b"after")["offset"] == 500
        about = {"topic": "a", "subscription": "s"}
        (lane,) = ask(client, "request", "system.subscription.describe", about)["partitions"]
        assert (lane["floor"], lane["acked_above"], lane["failing"]) == (10, [[20, 30]], 1)
        consume(client, "a", subscription="s", window={"messages": 20})
        heard = [client.receive() for _ in range(20)]
        facts = [json.loads(each.payload.partition(b"\n")[0]) for each in heard]
        assert [each["msg_id"]["topic_offset"] for each in facts] == [*range(10, 20), *range(30, 40)]
        assert [each["delivery_attempt"] for each in facts] == [1, 1, 2, *[1] * 17]


def test_a_broker_that_is_told_to_stop_saves_what_nobody_asked_to_have_confirmed(start: Start) -> None:
    first = start(*KEPT)
    with TcpClient(first.tcp_port) as client:
        for number in range(5):
            ask(client, "publish", "a", b"%d" % number)
        consume(client, "a", subscription="s", since="earliest")
        for _ in range(5):
            client.receive()
        client.send("ack:a:1.0.0", b'{"subscription":"s","ranges":[[0,5]]}')
        assert ask(client, "request", "system.heartbeat") == {"status": "success"}
        assert first.stop() == 0
    second = start(*KEPT, folder=first.folder)
    with TcpClient(second.tcp_port) as client:
        about = {"topic": "a", "subscription": "s"}
        assert ask(client, "request", "system.subscription.describe", about)["lag"] == 0


def test_a_slow_consumer_takes_its_window_and_nothing_else(kept: BrokerProcess) -> None:
    payload = bytes(1_000)
    block = bytes(Draft.of_payloads([payload] * 1_000).data)
    with (
        TcpClient(kept.tcp_port) as slow,
        TcpClient(kept.tcp_port) as asleep,
        TcpClient(kept.tcp_port) as quick,
        TcpClient(kept.tcp_port) as publisher,
    ):
        consume(slow, "a", subscription="slow", format="records", window={"messages": 100_000, "bytes": MIB})
        consume(asleep, "a", since="earliest", window={"messages": 10})
        consume(quick, "a", subscription="quick", format="records", window={"messages": 10_000})
        for _ in range(10):
            ask(publisher, "append", "a", block)
        read_all(quick, "a", "quick", 10_000)
        before = kept.rss_bytes()
        for _ in range(90):
            ask(publisher, "append", "a", block)
        assert len(read_all(quick, "a", "quick", 90_000)) >= 90_000
        assert kept.rss_bytes() - before < 64 * MIB, "of 90 MB that were published"
        about = {"topic": "a", "subscription": "slow"}
        described = ask(publisher, "request", "system.subscription.describe", about)
        assert described["lag"] == 100_000
        assert described["consumers"][0]["in_flight_bytes"] <= MIB
        assert ask(slow, "request", "system.heartbeat", request_id=OTHER_ID) == {"status": "success"}


def test_a_client_that_leaves_in_the_middle_of_an_append_stores_nothing_of_it(kept: BrokerProcess) -> None:
    block = bytes(Draft.of_payloads([bytes(1_000)] * 500).data)
    frame = framed(message(f"append:a:1.0.0:{ID}", block))
    for cut in (len(frame) // 2, len(frame) - 1, 100, 10):
        with TcpClient(kept.tcp_port) as client:
            client.raw(frame[:cut])
    with TcpClient(kept.tcp_port) as client:
        assert ask(client, "publish", "a", b"whole")["offset"] == 0


def test_a_client_that_leaves_before_it_is_answered_has_stored_it_once(kept: BrokerProcess) -> None:
    with TcpClient(kept.tcp_port) as client:
        registered = ask(client, "request", "system.producer.register", {"topic": "a", "name": "till"})
        block = bytes(Draft.of_payloads([b"x"] * 10, producer_id=registered["producer_id"], first_request_id=1).data)
        client.send(f"append:a:1.0.0:{ID}", block)
    with TcpClient(kept.tcp_port) as client:
        ask(client, "request", "system.producer.register", {"topic": "a", "name": "till"})
        again = ask(client, "append", "a", block)
        assert (again["offset"], again["count"]) == (0, 10)
        described = ask(client, "request", "system.topic.describe", {"topic": "a"})
        assert described["messages"] == 10


def test_a_full_queue_for_the_disk_makes_publishers_wait_and_loses_nothing(start: Start) -> None:
    broker = start(*KEPT)
    block = bytes(Draft.of_payloads([bytes(1_000)] * 1_000).data)
    with TcpClient(broker.tcp_port) as client:
        ids = [own_id(number) for number in range(60)]
        for request_id in ids:
            client.send(f"append:a:1.0.0:{request_id}", block)
        answers = [client.receive() for _ in ids]
    assert [each.request_id for each in answers] == ids
    assert [each.json["offset"] for each in answers] == [number * 1_000 for number in range(60)]
