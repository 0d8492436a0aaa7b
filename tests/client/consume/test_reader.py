"""Reading from one position to another, with a real broker: it ends where it should, even if messages are missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import penstock
from penstock.client.consume.reader import TopicReader
from penstock.client.sync import Client
from penstock.core.errors import InvalidRequest, OffsetOutOfRange, TopicNotSupported
from penstock.core.positions import AtOffset, Latest
from penstock.testing import RunningBroker

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk


@pytest.fixture
def client(keeper: RunningBroker) -> Iterator[Client]:
    with penstock.connect(keeper.url) as connected:
        yield connected


def fill(client: Client, topic: str, count: int) -> None:
    with client.producer(topic) as producer:
        producer.send_many(
            [b"%d" % number for number in range(count)], keys=[b"%d" % number for number in range(count)]
        )


def numbers(reading: TopicReader) -> list[int]:
    with reading:
        return [int(message.payload) for messages in reading for message in messages]


def test_it_ends_where_the_topic_ended_when_it_began(client: Client) -> None:
    fill(client, "reading.ends", 1000)
    reading = TopicReader(client, "reading.ends")
    fill(client, "reading.ends", 5)
    assert numbers(reading) == list(range(1000))


def test_more_than_a_window_is_read(client: Client) -> None:
    fill(client, "reading.long", 60_000)
    assert numbers(TopicReader(client, "reading.long", start="1")) == list(range(1, 60_000))


def test_it_follows_up_to_a_stop_that_is_yet_to_come(client: Client) -> None:
    fill(client, "reading.follows", 3)
    reading = TopicReader(client, "reading.follows", stop=AtOffset(5), follow=True)  # type: ignore[arg-type]
    writer = threading.Thread(target=fill, args=(client, "reading.follows", 9))
    with reading:
        batches = iter(reading)
        assert len(next(batches)) == 3
        writer.start()
        assert [message.offset for messages in batches for message in messages] == [3, 4]
        writer.join()
    assert numbers(TopicReader(client, "reading.follows", stop=Latest(), follow=True)) == [0, 1, 2, *range(9)]


def test_the_end_is_found_where_nothing_matches(client: Client) -> None:
    fill(client, "reading.filtered", 100)
    assert numbers(TopicReader(client, "reading.filtered", keys=["1?"])) == list(range(10, 20))
    assert numbers(TopicReader(client, "reading.filtered", types=["none"])) == []


def test_nothing_is_left_of_it(client: Client) -> None:
    fill(client, "reading.gone", 10)
    assert numbers(TopicReader(client, "reading.gone")) == list(range(10))
    assert client.ask("system.topic.describe", {"topic": "reading.gone"})["subscriptions"] == []


def test_what_cannot_be_read_is_refused(client: Client) -> None:
    client.ask("system.topic.create", {"topic": "reading.refused", "partitions": 2})
    with pytest.raises(InvalidRequest, match="partitions 0 to 1, not 2"):
        TopicReader(client, "reading.refused", partition=2)
    with pytest.raises(InvalidRequest, match="name the partition"):
        TopicReader(client, "reading.refused", stop=AtOffset(5))  # type: ignore[arg-type]
    with pytest.raises(OffsetOutOfRange):
        TopicReader(client, "reading.refused", start="7", partition=1)
    with pytest.raises(TopicNotSupported):
        TopicReader(client, "reading.missing")
    assert numbers(TopicReader(client, "reading.refused")) == []
