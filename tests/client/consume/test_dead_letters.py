"""Dead letters, with a real broker: each is sent back once, at whichever step a redrive is interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import penstock
from penstock.client.consume.dead_letters import DeadLetters, Which, listed
from penstock.client.consume.reader import TopicReader
from penstock.client.sync import Client
from penstock.core.dead_letter_attributes import REDRIVES
from penstock.core.errors import PenstockError, QuotaExceeded, TopicNotSupported
from penstock.record.message import SchemaRef
from penstock.testing import RunningBroker

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk

ALL = Which()


@pytest.fixture
def client(keeper: RunningBroker) -> Iterator[Client]:
    with penstock.connect(keeper.url) as connected:
        yield connected


def bury(client: Client, topic: str, payloads: list[bytes], **attributes: str) -> None:
    """Write dead letters of a topic, as the broker does."""
    client.ask("system.topic.create", {"topic": topic})
    bury_more(client, topic, payloads, **attributes)


def bury_more(client: Client, topic: str, payloads: list[bytes], **attributes: str) -> None:
    namespace, name = topic[1:].split("/")
    ours = {"x-original-topic": topic, "x-original-subscription": "s", "x-failure-reason": "bad"}
    with client.producer(f"/{namespace}-dlq/{name}") as producer:
        producer.send_many(payloads, attributes=ours | attributes)


def kept(client: Client, topic: str) -> list[Any]:
    with TopicReader(client, topic) as reading:
        return [message for messages in reading for message in messages]


def left(client: Client, topic: str) -> int:
    (found,) = [each["left"] for each in listed(client) if each["topic"] == topic]
    return int(found)


def offsets(letters: DeadLetters) -> list[int]:
    return [letter.offset for letter in letters.letters(ALL)]


def test_a_message_that_failed_goes_back_as_it_was(client: Client) -> None:
    topic = "/letters/original"
    client.ask("system.topic.create", {"topic": topic, "partitions": 3})
    options = {"start": "earliest", "redeliveries": 0}
    with client.producer(topic, name="shop") as producer, client.consumer(topic, "s", **options) as consumer:
        attributes = {"traceparent": "00-1", "x-originality": "kept"}
        producer.send(b"\x00payload", key=b"\xffkey", type="order", attributes=attributes, schema=SchemaRef(7, 2))
        message = consumer.receive(timeout=20)
        assert message is not None
        consumer.nack(message, reason="no such customer")
        until = time.monotonic() + 20
        while client.ask("system.subscription.describe", {"topic": topic, "subscription": "s"})["lag"]:
            assert time.monotonic() < until
    letters = DeadLetters(client, topic)
    (letter,) = letters.letters(ALL)
    assert letter.message.attributes["x-original-topic"].endswith(f"-part-{message.partition}")
    assert (letter.original_topic, letter.original_offset, letter.attempts) == (topic, "0", "1")
    assert (letter.subscription, letter.reason, letter.redrives) == ("s", "no such customer", 0)
    assert letters.redrive(ALL).redriven == 1
    first, again = kept(client, topic)
    for field in ("payload", "key", "type", "schema", "producer_name", "partition"):
        assert getattr(again, field) == getattr(first, field)
    for field in ("payload", "key", "type", "schema", "producer_name"):
        assert getattr(letter.message, field) == getattr(first, field)
    assert again.attributes == attributes | {REDRIVES: "1"}
    assert left(client, topic) == 0


def test_each_is_sent_once_also_if_the_broker_is_killed_in_between() -> None:
    topic = "/letters/stopped"
    with RunningBroker() as broker, ThreadPoolExecutor() as pool:
        with penstock.connect(broker.url) as client, penstock.connect(broker.url, timeout=15) as other:
            bury(client, topic, [b"%d" % number for number in range(3000)])
            interrupted = DeadLetters(other, topic)
            redriving = pool.submit(interrupted.redrive, ALL, rate=250)
            until = time.monotonic() + 60
            while client.ask("system.topic.describe", {"topic": topic})["logs"][0]["next_offset"] < 300:
                assert time.monotonic() < until
            broker.kill()
            with pytest.raises(PenstockError):
                redriving.result()
        assert 0 < interrupted.progress.redriven < 3000
        broker.start()
        with penstock.connect(broker.url) as client:
            done = DeadLetters(client, topic).redrive(ALL)
            assert done.redriven - done.repeated <= 3000 - interrupted.progress.redriven
            assert [int(message.payload) for message in kept(client, topic)] == list(range(3000))
            assert DeadLetters(client, topic).redrive(ALL).redriven == 0


def test_what_does_not_match_is_left_and_can_be_sent_later(client: Client) -> None:
    topic = "/letters/some"
    bury(client, topic, [b"1", b"2"], **{"x-failure-reason": "timeout"})
    with client.producer("/letters-dlq/some") as producer:
        producer.send(b"3", attributes={"x-original-topic": topic, "x-failure-reason": "broken"})
        producer.send(b"4", attributes={"x-original-topic": topic, "x-failure-reason": "timeout"})
    letters = DeadLetters(client, topic)
    assert letters.redrive(Which(reason="time*"), limit=2).redriven == 2
    assert offsets(letters) == [2, 3]
    assert DeadLetters(client, topic).redrive(Which(reason="time*")).redriven == 1
    assert offsets(letters) == [2]
    assert DeadLetters(client, topic).redrive(ALL).redriven == 1
    assert [message.payload for message in kept(client, topic)] == [b"1", b"2", b"4", b"3"]


def test_a_letter_that_was_sent_back_too_often_or_is_none_is_left_and_counted(client: Client) -> None:
    topic = "/letters/loop"
    bury(client, topic, [b"again"], **{REDRIVES: "3"})
    with client.producer("/letters-dlq/loop") as producer:
        producer.send(b"of another", attributes={"x-original-topic": "/letters/other"})
        producer.send(b"no letter")
        producer.send(b"odd", attributes={"x-original-topic": topic, REDRIVES: "many"})
    letters = DeadLetters(client, topic)
    assert [letter.verdict for letter in letters.plan(ALL)] == [
        "left: sent back too often",
        "left: not a dead letter of this topic",
        "left: not a dead letter of this topic",
        "redrive",
    ]
    done = letters.redrive(ALL)
    assert (done.redriven, done.too_often, done.strangers) == (1, 1, 2)
    assert left(client, topic) == 3
    assert next(letters.plan(ALL, redrives_max=4)).verdict == "redrive"
    assert DeadLetters(client, topic).redrive(ALL, redrives_max=4).redriven == 1
    assert [message.attributes[REDRIVES] for message in kept(client, topic)] == ["1", "4"]


def test_the_count_comes_first_so_that_it_is_never_the_one_that_is_left_out(client: Client) -> None:
    topic = "/letters/many"
    bury(client, topic, [b"x"], **{f"a{number}": "v" for number in range(250)})
    assert DeadLetters(client, topic).redrive(ALL).redriven == 1
    (message,) = kept(client, topic)
    assert next(iter(message.attributes)) == REDRIVES
    assert len(message.attributes) == 251


def test_what_cannot_be_stored_is_left_and_the_rest_is_settled(client: Client) -> None:
    topic = "/letters/large"
    bury(client, topic, [b"1", b"x" * 100, b"3"])
    client.ask("system.topic.alter", {"topic": topic, "payload_bytes_max": 10})
    letters = DeadLetters(client, topic)
    done = letters.redrive(ALL)
    assert (done.redriven, done.refused) == (2, 1)
    assert [(each.partition, each.offset, each.code) for each in done.refusals] == [(0, 1, "PAYLOAD_TOO_LARGE")]
    assert [letter.message.payload for letter in letters.letters(ALL)] == [b"x" * 100]


def test_so_many_are_sent_back_whatever_is_refused_before_them(client: Client) -> None:
    topic = "/letters/past"
    bury(client, topic, [b"x" * 100] * 12 + [b"1", b"2", b"3"])
    client.ask("system.topic.alter", {"topic": topic, "payload_bytes_max": 10})
    letters = DeadLetters(client, topic)
    done = letters.redrive(ALL, limit=2)
    assert (done.redriven, done.refused, len(done.refusals)) == (2, 12, 10)
    assert offsets(letters) == [*range(12), 14]


def test_what_stops_a_round_is_raised_and_what_was_done_is_told(client: Client) -> None:
    topic = "/letters/quota"
    bury(client, topic, [b"%d" % number for number in range(300)])
    client.ask("system.topic.alter", {"topic": topic, "rate_max": 1})
    letters = DeadLetters(client, topic)
    with pytest.raises(QuotaExceeded):
        letters.redrive(ALL)
    assert letters.progress.redriven == 256 == len(kept(client, topic))
    assert left(client, topic) == 44


def test_a_letter_has_all_of_its_message_however_large_that_is(client: Client) -> None:
    topic = "/letters/long"
    payloads = [b"short", b"\xff" * 3_000_000, b"y" * 100_000]
    attributes = {"many": "v" * 20_000, "x-failure-reason": "r" * 5_000}
    client.ask("system.topic.create", {"topic": "/letters-dlq/long", "payload_bytes_max": 4_000_000})
    bury(client, topic, payloads, **attributes)
    found = list(DeadLetters(client, topic).letters(ALL))
    assert [letter.message.payload for letter in found] == payloads
    for letter in found:
        assert letter.message.attributes.items() >= attributes.items()
        assert (letter.reason, letter.verdict) == ("r" * 1_024, "redrive")


def test_however_many_there_are_each_is_shown_once_and_none_that_came_meanwhile(client: Client) -> None:
    topic = "/letters/pages"
    bury(client, topic, [b"%d" % number for number in range(2500)])
    letters = DeadLetters(client, topic)
    shown = letters.letters(ALL)
    first = next(shown)
    bury_more(client, topic, [b"late"])
    assert [first.offset, *(letter.offset for letter in shown)] == list(range(2500))
    assert [letter.offset for letter in letters.letters(ALL, 1001)] == list(range(1001))
    assert len(offsets(letters)) == 2501


def test_none_is_dropped_that_was_not_counted(client: Client) -> None:
    topic = "/letters/counted"
    bury(client, topic, [b"1", b"2", b"3"])
    letters = DeadLetters(client, topic)
    some, all_ = letters.find(ALL, 1), letters.find(ALL)
    bury_more(client, topic, [b"late"])
    assert (some.count, all_.count) == (1, 3)
    letters.drop(some)
    letters.drop(some)
    assert (letters.progress.dropped, offsets(letters)) == (1, [1, 2, 3])
    letters.drop(all_)
    assert (letters.progress.dropped, offsets(letters)) == (3, [3])
    assert letters.find(Which(reason="none")).count == 0


def test_letters_without_a_type_or_a_reason_can_be_chosen(client: Client) -> None:
    topic = "/letters/nameless"
    bury(client, topic, [b"1"])
    with client.producer("/letters-dlq/nameless", type="t") as producer:
        producer.send(b"2", attributes={"x-original-topic": topic})
    letters = DeadLetters(client, topic)

    def chosen(which: Which) -> list[int]:
        return [letter.offset for letter in letters.letters(which)]

    assert (chosen(Which(type="")), chosen(Which(reason=""))) == ([0], [1])
    assert (chosen(Which(subscription="")), chosen(Which(subscription="s"))) == ([1], [0])


def test_letters_of_a_topic_that_was_made_again_are_others(client: Client) -> None:
    topic = "/letters/anew"
    bury(client, topic, [b"old"])
    assert DeadLetters(client, topic).redrive(ALL).redriven == 1
    facts = client.ask("system.topic.delete", {"topic": "/letters-dlq/anew"})
    client.ask("system.topic.delete", {"topic": "/letters-dlq/anew", "confirm": facts["confirm"]})
    with client.producer("/letters-dlq/anew") as producer:
        producer.send(b"new", attributes={"x-original-topic": topic})
    assert DeadLetters(client, topic).redrive(ALL).redriven == 1
    assert [message.payload for message in kept(client, topic)] == [b"old", b"new"]


def test_dead_letters_may_be_partitioned(client: Client) -> None:
    client.ask("system.topic.create", {"topic": "/letters-dlq/parts", "partitions": 4})
    client.ask("system.topic.create", {"topic": "/letters/parts", "partitions": 2})
    with client.producer("/letters-dlq/parts") as producer:
        attributes = {"x-original-topic": "/letters/parts-part-1"}
        producer.send_many([b"%d" % number for number in range(40)], keys=[b"%d" % number for number in range(40)])
        producer.send_many(
            [b"%d" % number for number in range(40)],
            keys=[b"%d" % number for number in range(40)],
            attributes=attributes,
        )
    done = DeadLetters(client, "/letters/parts").redrive(ALL)
    assert (done.redriven, done.strangers) == (40, 40)
    assert sorted(int(message.payload) for message in kept(client, "/letters/parts")) == list(range(40))
    assert left(client, "/letters/parts") == 40


def test_dropped_ones_are_not_left_and_looking_changes_nothing(client: Client) -> None:
    topic = "/letters/dropped"
    bury(client, topic, [b"1", b"2", b"3"])
    letters = DeadLetters(client, "/letters-dlq/dropped")
    assert (str(letters.original), str(letters.topic)) == (topic, "/letters-dlq/dropped")
    assert len(list(letters.plan(ALL))) == 3
    found = letters.find(ALL, 2)
    assert client.ask("system.subscription.list", {"topic": "/letters-dlq/dropped"})["subscriptions"] == []
    letters.drop(found)
    assert [letter.message.payload for letter in letters.letters(ALL)] == [b"3"]
    (row,) = [row for row in listed(client) if row["topic"] == topic]
    assert (row["left"], row["messages"]) == (1, 3)


def test_a_rate_is_kept(client: Client) -> None:
    bury(client, "/letters/slow", [b"x"] * 20)
    began = time.monotonic()
    assert DeadLetters(client, "/letters/slow").redrive(ALL, rate=50).redriven == 20
    assert time.monotonic() - began >= 0.3


def test_where_nothing_ever_failed_there_is_nothing(client: Client) -> None:
    letters = DeadLetters(client, "/letters/none")
    for ask in (lambda: next(letters.letters(ALL)), lambda: letters.find(ALL), lambda: letters.redrive(ALL)):
        with pytest.raises(TopicNotSupported, match="/letters/none has no dead letters"):
            ask()
    with pytest.raises(TopicNotSupported):
        client.ask("system.topic.describe", {"topic": "/letters-dlq/none"})
