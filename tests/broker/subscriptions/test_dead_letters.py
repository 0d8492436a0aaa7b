"""Dead letters: each exhausted message is in the dead-letter topic once, whatever fails in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import Keeping
from tests.broker.kit import Peer, World, numbered
from tests.broker.subscriptions.test_service import S, ack, cursor, describe, fill
from tests.broker.topics.test_publisher import ORDER, refused

from penstock.broker.topics.topics import AutoCreate
from penstock.core.errors import DiskFull, StorageFailed
from penstock.core.limits import ATTRIBUTE_BYTES_MAX
from penstock.core.names import TopicName
from penstock.record.message import Message
from penstock.storage.catalog.topics import Dispatch

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk

FULL = DiskFull("no room")
DLQ = "/default-dlq/a"
OURS = (
    "x-original-topic",
    "x-original-subscription",
    "x-original-topic-offset",
    "x-original-producer-id",
    "x-delivery-attempt",
    "x-failure-reason",
)


def consumer(world: World, topic: str = "a", **options: Any) -> Peer:
    """Subscribe with options under which a message becomes a dead letter at its first nack."""
    peer = world.connect()
    chosen: dict[str, Any] = {"subscription": "s", "since": "earliest", "redeliveries": 0} | options
    assert "error" not in peer.consume(topic, **chosen)
    return peer


def nack(peer: Peer, *offsets: int, topic: str = "a", **more: Any) -> Any:
    return peer.call("nack", topic, S | {"offsets": list(offsets)} | more)


def letters(world: World, topic: str = DLQ) -> list[tuple[int, str]]:
    """The original offset and the reason of each dead letter."""
    found = [record.message.attributes for record in world.log(topic).records()]
    return [(int(each["x-original-topic-offset"]), each["x-failure-reason"]) for each in found]


def test_a_dead_letter_is_the_message_and_says_where_it_came_from(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("/shop/orders.made")
    order = replace(ORDER, producer_id=mine, request_id=1)
    ann.append("/shop/orders.made", b"fine")
    ann.append("/shop/orders.made", order)
    bob = consumer(kept, "/shop/orders.made")
    nack(bob, 1, topic="/shop/orders.made", reason="no such customer")
    (letter,) = kept.log("/shop-dlq/orders.made").records()
    message = letter.message
    assert (message.payload, message.key, message.type, message.schema) == (
        ORDER.payload,
        ORDER.key,
        ORDER.type,
        ORDER.schema,
    )
    assert message.attributes == {
        "traceparent": "00-ab-cd-01",
        "empty": "",
        "x-original-topic": "/shop/orders.made",
        "x-original-subscription": "s",
        "x-original-topic-offset": "1",
        "x-original-producer-id": str(mine),
        "x-delivery-attempt": "1",
        "x-failure-reason": "no such customer",
    }
    kept.after(100)
    assert cursor(kept, "/shop/orders.made") == (0, [(1, 2)], {})


def test_every_redelivery_comes_first_and_then_the_dead_letter(kept: World) -> None:
    fill(kept, 1)
    bob = consumer(kept, redeliveries=2, backoff_ms=10)
    attempts = []
    while found := bob.messages():
        attempts += [facts["delivery_attempt"] for facts, _ in found]
        nack(bob, 0, reason=f"try {len(attempts)}")
        kept.after(1_000)
    assert attempts == [1, 2, 3]
    assert letters(kept) == [(0, "try 3")]
    (letter,) = kept.log(DLQ).records()
    assert letter.message.attributes["x-delivery-attempt"] == "3"
    assert describe(kept.connect())["state"] == ["caught up"]


def test_what_is_never_acknowledged_dies_too_and_says_so(kept: World) -> None:
    fill(kept, 2)
    consumer(kept, ack_timeout_ms=500)
    kept.after(500)
    assert letters(kept) == [(0, "not acknowledged within 500 ms"), (1, "not acknowledged within 500 ms")]


def test_a_partition_is_named_in_the_dead_letter(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    places = [ann.publish("a", b"%d" % n)["partition"] for n in range(4)]
    bob = consumer(kept)
    for partition in (0, 1):
        nack(bob, 0, 1, partition=partition)
    found = [record.message for record in kept.log(DLQ).records()]
    assert sorted(each.attributes["x-original-topic"] for each in found) == sorted(
        f"/default/a-part-{n}" for n in places
    )
    assert sorted(each.payload for each in found) == [b"0", b"1", b"2", b"3"]


def test_consumers_of_dead_letters_get_them_at_once(kept: World) -> None:
    fill(kept, 1)
    bob, cat = consumer(kept), kept.connect()
    cat.consume(DLQ, subscription="undertaker")
    nack(bob, 0)
    ((facts, payload),) = cat.messages()
    assert (payload, facts["attributes"]["x-original-topic-offset"]) == (b"0", "0")


def test_dead_letters_have_no_dead_letters_of_their_own(kept: World) -> None:
    bob = kept.connect()
    answer = bob.consume(DLQ, subscription="s", exhausted="dead_letter")
    assert "exhausted" in refused(answer, "INVALID_REQUEST")
    bob.consume(DLQ, subscription="s")
    assert describe(bob, DLQ)["options"]["exhausted"] == "block"


def test_the_longest_names_have_dead_letters(kept: World) -> None:
    topic = f"/{'n' * 60}/{'t' * 255}"
    ann = kept.connect()
    ann.publish(topic)
    bob = kept.connect()
    assert bob.consume(topic, subscription="s" * 128, since="earliest", redeliveries=0)["created"] is True
    bob.call("nack", topic, {"subscription": "s" * 128, "offsets": [0]})
    assert len(kept.stored(f"/{'n' * 60}-dlq/{'t' * 255}")) == 1


@pytest.mark.parametrize("auto_create", AutoCreate)
def test_dead_letters_have_a_topic_whether_or_not_topics_come_by_themselves(
    keeping: Keeping, auto_create: AutoCreate
) -> None:
    world = keeping(auto_create=auto_create)
    world.connect().ask("system.topic.create", {"topic": "a", "payload_bytes_max": 2_000_000})
    world.connect().publish("a")
    nack(consumer(world), 0)
    assert letters(world) == [(0, "refused by the consumer")]
    assert world.topic(DLQ).settings.payload_bytes_max == 2_000_000


def test_many_die_together_and_each_is_there_once(kept: World) -> None:
    fill(kept, 100)
    bob = consumer(kept)
    assert nack(bob, *range(0, 100, 2)) == {"nacked": 50, "ignored": 0}
    assert nack(bob, *range(99, 0, -2))["nacked"] == 50
    assert sorted(offset for offset, _ in letters(kept)) == list(range(100))
    kept.after(100)
    assert cursor(kept) == (100, [], {})


# exactly once


def test_a_letter_that_could_not_be_stored_is_tried_again_until_it_is(kept: World) -> None:
    ann = fill(kept, 2)
    bob = consumer(kept)
    nack(bob, 0)
    kept.hold()
    bob.post('nack:a:1.0.0\n{"subscription":"s","offsets":[1],"reason":"bad"}')
    kept.do_works()
    (append,) = kept.appends
    kept.do(append, error=FULL)
    kept.release()
    assert "1 on their way to the dead letters of partition 0" in describe(ann)["state"]
    assert "in trouble: no room" in describe(ann)["state"]
    kept.after(1_000)
    assert letters(kept)[1:] == [(1, "bad")]
    assert describe(ann)["state"] == ["caught up"]
    kept.after(200)
    assert cursor(kept) == (2, [], {})


@pytest.mark.parametrize("step", range(6))
def test_whatever_step_fails_the_letter_is_there_once_in_the_end(kept: World, step: int) -> None:
    """Steps that fail: reading the message, creating the topic, naming the producer, reading its records, storing,
    saving."""
    fill(kept, 1)
    bob = consumer(kept)
    kept.hold()
    bob.post('nack:a:1.0.0\n{"subscription":"s","offsets":[0],"reason":"bad"}')
    for _ in range(step):
        if kept.open:
            kept.do()
    if kept.open:
        kept.do(error=FULL)
    kept.release()
    kept.after(3_000)
    assert letters(kept) == [(0, "bad")]
    assert cursor(kept) == (1, [], {})
    assert describe(kept.connect())["state"] == ["caught up"]


def test_a_message_that_cannot_be_read_for_a_while_is_not_lost(kept: World) -> None:
    fill(kept, 1)
    bob = consumer(kept)
    kept.hold()
    bob.post('nack:a:1.0.0\n{"subscription":"s","offsets":[0]}')
    kept.do(error=StorageFailed("too many open files"))
    kept.release()
    kept.after(2_000)
    assert letters(kept) == [(0, "refused by the consumer")]
    assert describe(kept.connect())["lost"] == 0


def test_a_message_that_is_damaged_when_it_dies_is_told_as_damaged(kept: World) -> None:
    kept.connect().append("a", b"payload 0", b"payload 1")
    bob = consumer(kept)
    bob.take()
    (segment,) = Path(kept.log("a").path).glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[data.index(b"payload 0")] ^= 1
    segment.write_bytes(data)
    bob.post('nack:a:1.0.0\n{"subscription":"s","offsets":[0]}')
    (notice,) = [frame for frame in bob.take_frames() if frame.header.topic == "system.subscription.gap"]
    told = json.loads(notice.payload)
    assert (told["start"], told["stop"]) == (0, 1)
    assert told["reason"].startswith("damaged: ")
    assert describe(kept.connect())["lost"] == 1


def _after_the_letter(world: World) -> None:
    """Advance until the dead letter is stored; its cursor is not saved yet."""
    while not world.appends:
        world.do()
    world.do(world.appends[0])


def _before_it_is_heard_of(world: World) -> None:
    while not world.appends:
        world.do()
    (append,) = world.appends
    world.data.writer.append(append.log, append.draft)


def _before_the_letter(world: World) -> None:
    while not world.appends:
        world.do()


@pytest.mark.parametrize("dies", [_before_the_letter, _before_it_is_heard_of, _after_the_letter])
@pytest.mark.parametrize("reopen", [False, True])
def test_a_broker_that_dies_on_the_way_stores_the_letter_once(
    kept: World, dies: Callable[[World], None], reopen: bool
) -> None:
    fill(kept, 3)
    bob = consumer(kept)
    nack(bob, 2)
    kept.hold()
    bob.post('nack:a:1.0.0\n{"subscription":"s","offsets":[0,1],"reason":"bad"}')
    dies(kept)
    kept.restart(reopen=reopen)
    assert cursor(kept)[0] == 0
    assert consumer(kept).offsets() == []
    kept.after(2_000)
    assert sorted(offset for offset, _ in letters(kept)) == [0, 1, 2]
    assert cursor(kept) == (3, [], {})


def test_a_topic_that_is_made_again_has_letters_of_its_own(kept: World) -> None:
    ann = fill(kept, 1)
    nack(consumer(kept), 0, reason="first")
    token = ann.ask("system.topic.delete", {"topic": "a"})["confirm"]
    ann.ask("system.topic.delete", {"topic": "a", "confirm": token})
    fill(kept, 1)
    nack(consumer(kept), 0, reason="second")
    assert letters(kept) == [(0, "first"), (0, "second")]


def test_a_subscription_that_is_made_again_has_letters_of_its_own(kept: World) -> None:
    ann = fill(kept, 1)
    nack(consumer(kept), 0, reason="first")
    ann.ask("system.subscription.delete", {"topic": "a", "subscription": "s"})
    nack(consumer(kept), 0, reason="second")
    assert letters(kept) == [(0, "first"), (0, "second")]


def test_two_subscriptions_bury_the_same_message_each_for_itself(kept: World) -> None:
    fill(kept, 1)
    bob, cat = consumer(kept), consumer(kept, subscription="t")
    nack(bob, 0, reason="bob")
    cat.call("nack", "a", {"subscription": "t", "offsets": [0], "reason": "cat"})
    assert letters(kept) == [(0, "bob"), (0, "cat")]


def test_a_deleted_grave_is_dug_again(kept: World) -> None:
    ann = fill(kept, 2)
    bob = consumer(kept)
    nack(bob, 0)
    token = ann.ask("system.topic.delete", {"topic": DLQ})["confirm"]
    ann.ask("system.topic.delete", {"topic": DLQ, "confirm": token})
    nack(bob, 1)
    assert letters(kept) == [(1, "refused by the consumer")]


def test_nobody_makes_a_grave_live(kept: World) -> None:
    ann = fill(kept, 1)
    answer = ann.ask("system.topic.create", {"topic": DLQ, "dispatch": "live"})
    assert "where dead letters go" in refused(answer, "INVALID_REQUEST")
    nack(consumer(kept), 0)
    assert letters(kept) == [(0, "refused by the consumer")]


def test_a_grave_that_an_earlier_release_made_live_holds_nothing_up_for_ever(kept: World) -> None:
    fill(kept, 1)
    kept.data.catalog.create_topic(TopicName.parse(DLQ), dispatch=Dispatch.LIVE)
    kept.restart()
    ann = kept.connect()
    nack(consumer(kept), 0)
    assert any("live topic" in reason for reason in describe(ann)["state"])
    ann.ask("system.topic.delete", {"topic": DLQ})
    kept.after(1_000)
    assert letters(kept) == [(0, "refused by the consumer")]


# letters that do not fit


def test_as_many_attributes_as_fit_are_kept_and_always_ours(kept: World) -> None:
    ann = kept.connect()
    many = Message(payload=b"1", attributes={f"a{n}": "v" for n in range(255)} | {"x-failure-reason": "theirs"})
    large = Message(payload=b"2", attributes={"small": "v", "large": "x" * (ATTRIBUTE_BYTES_MAX - 100)})
    ann.append("a", many, large)
    nack(consumer(kept), 0, 1, reason="ours")
    first, second = [record.message.attributes for record in kept.log(DLQ).records()]
    assert len(first) == 256
    assert all(name in each for name in OURS for each in (first, second))
    assert first["x-failure-reason"] == second["x-failure-reason"] == "ours"
    assert second["small"] == "v"
    assert "large" not in second


def test_a_long_reason_is_cut(kept: World) -> None:
    fill(kept, 1)
    nack(consumer(kept), 0, reason="€" * 5_000)
    assert letters(kept) == [(0, "€" * 1_024)]


def test_a_letter_fits_although_its_topic_takes_no_larger_message_than_this_one(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "segment_bytes_max": 4096})
    ann.append("a", bytes(3_900))
    ann.append("a", b"behind")
    nack(consumer(kept), 0)
    assert letters(kept) == [(0, "refused by the consumer")]
    kept.after(100)
    assert cursor(kept) == (1, [], {})


def test_a_letter_is_no_subject_to_the_limit_of_its_grave(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": DLQ, "payload_bytes_max": 100})
    ann.append("a", bytes(5_000))
    nack(consumer(kept), 0)
    assert letters(kept) == [(0, "refused by the consumer")]
    assert "at most 100 bytes" in refused(ann.append(DLQ, bytes(101)), "PAYLOAD_TOO_LARGE")


def test_what_can_never_be_a_letter_is_poison_that_says_why_and_can_be_skipped(
    kept: World, caplog: pytest.LogCaptureFixture
) -> None:
    ann = kept.connect()
    ann.ask("system.namespace", {"namespace": "default-dlq", "segment_bytes_max": 4096})
    ann.ask("system.topic.create", {"topic": "a", "payload_bytes_max": 100_000})
    ann.append("a", b"1")
    ann.append("a", b"2")
    bob = consumer(kept, window={"messages": 1})
    nack(bob, 0, reason="no")
    kept.after(1_000)
    (state,) = [each for each in describe(ann)["state"] if "poison" in each]
    assert "blocked on poison offset 0 of partition 0" in state
    assert "no; it cannot become a dead letter" in state
    assert "payload_bytes_max" in state
    assert "skip it, or resume" in state
    assert len([each for each in caplog.records if "cannot become a dead letter" in each.message]) == 1
    ann.ask("system.subscription.skip", {"topic": "a", "subscription": "s", "offsets": [0]})
    assert not [each for each in describe(ann)["state"] if "poison" in each]
    kept.after(100)
    assert cursor(kept) == (1, [], {})


def test_what_could_not_be_a_letter_is_one_once_that_is_mended_and_it_is_resumed(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.namespace", {"namespace": "default-dlq", "segment_bytes_max": 4096})
    ann.ask("system.topic.create", {"topic": "a", "payload_bytes_max": 100_000})
    ann.append("a", b"1")
    bob = consumer(kept)
    nack(bob, 0)
    ann.ask("system.namespace", {"namespace": "default-dlq", "segment_bytes_max": 1_000_000})
    ann.ask("system.subscription.resume", {"topic": "a", "subscription": "s"})
    nack(bob, 0, reason="again")
    assert letters(kept) == [(0, "again")]


# block and drop


def test_with_block_those_behind_wait_until_it_is_skipped(kept: World) -> None:
    ann = fill(kept, 3)
    bob = consumer(kept, exhausted="block", window={"messages": 1})
    nack(bob, 0, reason="bad")
    bob.take_frames()
    kept.after(25_000)
    assert bob.offsets() == []
    assert "poison offset 0" in describe(ann)["state"][0]
    ann.ask("system.subscription.skip", {"topic": "a", "subscription": "s", "offsets": [0]})
    assert bob.offsets() == [1]
    assert ack(bob, offsets=[1])["acked"] == 1


def test_with_block_it_is_tried_again_when_the_subscription_is_resumed(kept: World) -> None:
    ann = fill(kept, 1)
    bob = consumer(kept, exhausted="block")
    nack(bob, 0)
    bob.take_frames()
    ann.ask("system.subscription.resume", {"topic": "a", "subscription": "s"})
    assert bob.offsets() == [0]
    assert ack(bob, offsets=[0])["acked"] == 1


def test_with_drop_it_counts_as_done(kept: World) -> None:
    ann = fill(kept, 2)
    bob = consumer(kept, exhausted="drop")
    nack(bob, 0)
    found = describe(ann)
    assert (found["dropped"], found["partitions"][0]["floor"]) == (1, 1)
    assert [str(topic.name) for topic in kept.data.catalog.list_topics()] == ["/default/a"]


def test_a_burial_that_is_overtaken_by_a_seek_changes_nothing(kept: World) -> None:
    fill(kept, 2)
    bob = consumer(kept)
    bob.take_frames()
    kept.hold()
    bob.post('nack:a:1.0.0\n{"subscription":"s","offsets":[0]}')
    bob.post('seek:a:1.0.0\n{"subscription":"s","position":"earliest"}')
    kept.release()
    assert bob.offsets() == [0, 1]
    assert ack(bob, ranges=[[0, 2]])["acked"] == 2
    assert cursor(kept) == (2, [], {})


def test_numbers_of_dead_letters_belong_to_the_broker(kept: World) -> None:
    fill(kept, 1)
    nack(consumer(kept), 0)
    (letter,) = kept.log(DLQ).records()
    thief = kept.connect()
    taken = thief.ask("system.producer.register", {"topic": DLQ, "producer_id": letter.message.producer_id})
    assert isinstance(taken["error"], dict)
    answer = thief.call("append", DLQ, numbered(letter.message.producer_id, 2, b"forged"))
    refused(answer, "NOT_OWNER")
