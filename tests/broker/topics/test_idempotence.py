"""Idempotent producers: a message sent twice is stored once, and one connection at a time owns a producer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.broker.kit import ID, ID2, ID3, ID4, Peer, World, block_of, numbered
from tests.broker.topics.test_publisher import place, refused

from penstock.core.errors import DiskFull
from penstock.core.ids import format_id
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, partition_of
from penstock.storage.catalog.topics import Retention, TopicSettings
from penstock.storage.producer_windows import WINDOW

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk

FULL = DiskFull("no room")


def send(peer: Peer, block: bytes, topic: str = "a", request_id: str = ID) -> Any:
    return peer.call("append", topic, block, request_id=request_id)


def post(peer: Peer, block: bytes, request_id: str) -> None:
    peer.post(f"append:a:1.0.0:{request_id}\n".encode() + block)


# what is sent twice


def test_a_block_that_is_sent_again_is_answered_with_its_first_place_and_not_stored_again(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    block = numbered(mine, 1, b"1", b"2", b"3")
    assert (place(send(ann, block)), place(send(ann, numbered(mine, 4, b"4")))) == ((0, 0), (0, 3))
    again = send(ann, block)
    assert (place(again), again["duplicate"], again["count"], again["parts"]) == ((0, 0), True, 3, [])
    assert again["duplicates"] == [[0, 0, 0], [1, 0, 1], [2, 0, 2]]
    assert again["id"] == format_id(next(iter(kept.log("a").records())).id)
    assert kept.stored("a") == [b"1", b"2", b"3", b"4"]


def test_of_a_block_that_is_partly_known_only_the_rest_is_stored(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    send(ann, numbered(mine, 1, b"1", b"2"))
    answer = send(ann, numbered(mine, 2, b"2", b"3", b"4"))
    assert (place(answer), answer["duplicate"]) == ((0, 1), True)
    assert answer["duplicates"] == [[0, 0, 1]]
    assert [part[:3] for part in answer["parts"]] == [[0, 2, 2]]
    assert kept.stored("a") == [b"1", b"2", b"3", b"4"]


def test_numbers_may_leave_gaps_and_the_gaps_may_be_filled_later(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    send(ann, numbered(mine, 5, b"5"))
    assert send(ann, numbered(mine, 2, b"2"))["duplicate"] is False
    assert send(ann, numbered(mine, 5, b"5"))["duplicate"] is True
    assert send(ann, numbered(mine, 2, b"2"))["duplicate"] is True
    assert kept.stored("a") == [b"5", b"2"]


def test_a_message_is_recognised_like_a_block(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    line = json.dumps({"producer_id": mine, "request_id": 9}).encode() + b"\nx"
    first, again = ann.call("message", "a", line), ann.call("message", "a", line)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["id"] == first["id"]
    assert kept.stored("a") == [b"x"]


@pytest.mark.parametrize(
    ("field", "value"), [("producer_name", 5), ("producer_name", None), ("producer_name", ["x"]), ("producer_id", [])]
)
def test_a_registered_producers_message_is_refused_by_the_field_that_cannot_be(
    kept: World, field: str, value: object
) -> None:
    ann = kept.connect()
    facts = {"producer_id": ann.register("a", name="alice"), field: value}
    assert field in refused(ann.call("message", "a", json.dumps(facts).encode() + b"\nx"), "INVALID_REQUEST")
    assert kept.stored("a") == []


def test_a_message_bears_the_name_that_its_producer_is_registered_under(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a", name="alice")
    for name in ({}, {"producer_name": "alice"}):
        ann.call("message", "a", json.dumps({"producer_id": mine} | name).encode() + b"\nx")
    other = json.dumps({"producer_id": mine, "producer_name": "mallory"}).encode() + b"\nx"
    assert "'alice'" in refused(ann.call("message", "a", other), "INVALID_REQUEST")
    assert [each.message.producer_name for each in kept.log("a").records()] == ["alice", "alice"]


def test_what_is_not_numbered_is_never_taken_for_a_repetition(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    for message in (Message(payload=b"x", producer_id=mine), Message(payload=b"x", request_id=7)):
        assert [ann.append("a", message)["duplicate"] for _ in range(2)] == [False, False]
    assert len(kept.stored("a")) == 4


def test_a_repetition_while_the_first_is_on_its_way_waits_for_it(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    kept.hold()
    for request_id in (ID, ID2):
        post(ann, numbered(mine, 1, b"1", b"2"), request_id)
    post(ann, numbered(mine, 3, b"3"), ID3)
    assert len(kept.appends) == 1
    kept.release()
    answers = [ann.answer(each) for each in (ID, ID2, ID3)]
    assert [(place(each), each["duplicate"]) for each in answers] == [((0, 0), False), ((0, 0), True), ((0, 2), False)]
    assert kept.stored("a") == [b"1", b"2", b"3"]


def test_blocks_that_repeat_nothing_do_not_wait_for_each_other(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    kept.hold()
    post(ann, numbered(mine, 1, b"1"), ID)
    post(ann, numbered(mine, 2, b"2"), ID2)
    assert len(kept.appends) == 2
    kept.release()
    assert kept.stored("a") == [b"1", b"2"]


def test_a_repetition_of_what_failed_is_stored_then(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    kept.hold()
    post(ann, numbered(mine, 1, b"1"), ID)
    post(ann, numbered(mine, 1, b"1"), ID2)
    kept.do(error=FULL)
    refused(ann.answer(), "DISK_FULL")
    kept.release()
    assert ann.answer(ID2)["duplicate"] is False
    assert send(ann, numbered(mine, 1, b"1"), request_id=ID3)["duplicate"] is True
    assert kept.stored("a") == [b"1"]


def test_a_repetition_by_another_connection_waits_too(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    mine = ann.register("a", name="till")
    kept.hold()
    post(ann, numbered(mine, 1, b"1"), ID)
    ann.leave()
    bob.post(f'request:system.producer.register:1.0.0:{ID}\n{{"topic":"a","name":"till"}}')
    kept.do_works()
    assert bob.answer()["last_request_id"] == 1
    post(bob, numbered(mine, 1, b"1"), ID2)
    assert bob.answer(ID2) is None
    kept.release()
    assert bob.answer(ID2)["duplicate"] is True
    assert kept.stored("a") == [b"1"]


def test_across_partitions_every_message_has_its_first_place(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 3})
    mine = ann.register("a")
    keys = tuple(b"k%d" % n for n in range(12))
    block = numbered(mine, 1, *keys, keys=keys)
    send(ann, block)
    again = send(ann, block)
    assert again["duplicate"] is True
    for (row, partition, offset), key in zip(again["duplicates"], keys, strict=True):
        assert partition == partition_of(key, 3)
        assert kept.stored("a", partition)[offset] == keys[row]
    assert sum(len(kept.stored("a", each)) for each in range(3)) == 12


def test_what_one_partition_refused_is_stored_by_the_repetition_and_the_rest_is_not(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    mine = ann.register("a")
    keys = tuple(b"k%d" % n for n in range(8))
    block = numbered(mine, 1, *keys, keys=keys)
    kept.hold()
    post(ann, block, ID)
    one, other = kept.appends
    kept.do(other, error=FULL)
    assert ann.answer() is None
    kept.do(one)
    refused(ann.answer(), "DISK_FULL")
    kept.release()
    again = send(ann, block, request_id=ID2)
    assert {partition for _, partition, _ in again["duplicates"]} == {0}
    assert {part[0] for part in again["parts"]} == {1}
    assert [sorted(kept.stored("a", each)) for each in (0, 1)] == [
        [key for key in keys if partition_of(key, 2) == each] for each in (0, 1)
    ]


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_repetition_is_recognised_after_a_restart(kept: World, partitions: int, clean: bool) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": partitions})
    mine = ann.register("a", name="till")
    keys = tuple(b"k%d" % n for n in range(10))
    first = numbered(mine, 1, *keys, keys=keys)
    before = send(ann, first)
    send(ann, numbered(mine, 11, b"11"))
    kept.restart(clean=clean, reopen=True)
    saved = kept.data.catalog.load_checkpoint(kept.topic("a").catalog_topic, 0)
    assert (saved is not None) == clean
    ann = kept.connect()
    answer = ann.ask("system.producer.register", {"topic": "a", "name": "till"})
    assert (answer["producer_id"], answer["last_request_id"]) == (mine, 11)
    again = send(ann, first)
    assert (place(again), again["duplicate"]) == (place(before), True)
    assert send(ann, numbered(mine, 11, b"11", b"12"))["duplicate"] is True
    assert sum(len(kept.stored("a", each)) for each in range(partitions)) == 12


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_repetition_is_recognised_after_retention_has_taken_the_message(
    kept: World, partitions: int, clean: bool
) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": partitions})
    mine = ann.register("a", name="till")
    keys = tuple(b"k%d" % n for n in range(10))
    first = numbered(mine, 1, *keys, keys=keys)
    before = send(ann, first)
    kept.restart(clean=clean, reopen=True)
    ann = kept.connect()
    for partition in range(partitions):  # nobody asks for producers in this run
        log = kept.log("a", partition)
        kept.data.writer.run(log.roll)
        for _ in range(3):
            kept.data.writer.append(log, Draft.of([Message(payload=bytes(100))]))
            kept.data.writer.run(log.roll)
    kept.data.alter_topic(TopicName.parse("a"), TopicSettings(retention=Retention(count=1)))
    assert kept.data.retain() >= 2 * partitions
    kept.restart(clean=clean, reopen=True)
    assert all(kept.log("a", each).first_offset > 0 for each in range(partitions))
    ann = kept.connect()
    answer = ann.ask("system.producer.register", {"topic": "a", "name": "till"})
    assert (answer["producer_id"], answer["last_request_id"]) == (mine, 10)
    again = send(ann, first)
    assert (again["duplicate"], again["offset"], again["parts"]) == (True, before["offset"], [])


def test_what_came_after_the_checkpoint_is_recognised_too(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a", name="till")
    send(ann, numbered(mine, 1, b"1"))
    kept.restart(clean=True)
    ann = kept.connect()
    ann.register("a", name="till")
    send(ann, numbered(mine, 2, b"2"))
    ann.publish("a", b"of nobody")
    kept.restart(reopen=True)
    ann = kept.connect()
    ann.register("a", name="till")
    assert [send(ann, numbered(mine, n, b"x"))["duplicate"] for n in (1, 2, 3)] == [True, True, False]


def test_a_checkpoint_does_not_reach_over_what_was_not_heard_of(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a", name="till")
    send(ann, numbered(mine, 1, b"1"))
    kept.hold()
    post(ann, numbered(mine, 2, b"2"), ID)
    (append,) = kept.appends
    kept.data.writer.append(append.log, append.draft)  # stored, and the broker dies before it hears of it
    kept.broker.close()
    kept.restart(reopen=True)
    ann = kept.connect()
    assert ann.ask("system.producer.register", {"topic": "a", "name": "till"})["last_request_id"] == 2
    assert send(ann, numbered(mine, 2, b"2"))["duplicate"] is True
    assert kept.stored("a") == [b"1", b"2"]


def test_checkpoints_are_saved_now_and_then_without_being_asked(kept: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.topics.topics._CHECKPOINT_EVERY", 5)
    ann = kept.connect()
    mine = ann.register("a")
    for first in range(1, 7):
        send(ann, numbered(mine, first, b"x"))
    saved = kept.data.catalog.load_checkpoint(kept.topic("a").catalog_topic, 0)
    assert saved is not None
    assert int(saved.next_offset) == 5
    assert saved.runs[mine] == ((1, 0, 5),)


def test_at_least_the_last_numbers_of_a_window_are_recognised(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    size = 1_000
    for first in range(1, WINDOW + 5 * size, size):
        send(ann, numbered(mine, first, *[b"x"] * size))
    stored = len(kept.stored("a"))
    last = stored - WINDOW + 1
    assert send(ann, numbered(mine, last, *[b"x"] * size))["duplicate"] is True
    assert len(kept.stored("a")) == stored


# registration


def test_a_name_has_one_number_for_ever_and_another_for_another_topic(kept: World) -> None:
    ann = kept.connect()
    first = ann.register("a", name="till")
    assert ann.register("a", name="till") == first
    assert ann.register("a", name="other") != first
    assert ann.register("b", name="till") != first
    kept.restart(reopen=True)
    assert kept.connect().register("a", name="till") == first


def test_without_a_name_every_number_is_new_and_may_be_taken_up_again(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    mine = ann.register("a")
    assert bob.register("a") != mine
    send(ann, numbered(mine, 1, b"1", b"2"))
    answer = bob.ask("system.producer.register", {"topic": "a", "producer_id": mine})
    assert (answer["producer_id"], answer["last_request_id"]) == (mine, 2)
    assert [text.split("\n")[0] for text in ann.take()] == ["publish:system.producer.fenced:1.0.0"]


def test_the_number_of_a_named_producer_is_not_to_be_had_without_its_name(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    mine = ann.register("a", name="till")
    answer = bob.ask("system.producer.register", {"topic": "a", "producer_id": mine})
    assert "has a name: register under it" in refused(answer, "NOT_OWNER")
    assert place(send(ann, numbered(mine, 1, b"x"))) == (0, 0)


def test_an_exclusive_producer_fences_the_older_connection_which_is_told(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    mine = ann.register("a", name="till")
    assert bob.register("a", name="till") == mine
    (notice,) = ann.take()
    head, _, body = notice.partition("\n")
    assert head == "publish:system.producer.fenced:1.0.0"
    assert json.loads(body) == {"topic": "/default/a", "producer_id": mine, "name": "till"}
    assert "another connection has registered it" in refused(send(ann, numbered(mine, 1, b"x")), "NOT_OWNER")
    assert place(send(bob, numbered(mine, 1, b"x"))) == (0, 0)


def test_shared_producers_take_turns_and_an_exclusive_one_ends_them_all(kept: World) -> None:
    ann, bob, cat = kept.connect(), kept.connect(), kept.connect()
    mine = ann.register("a", name="till", access="shared")
    bob.register("a", name="till", access="shared")
    assert ann.take() == []
    assert [place(send(each, numbered(mine, n, b"x"))) for n, each in ((1, ann), (2, bob))] == [(0, 0), (0, 1)]
    assert send(bob, numbered(mine, 1, b"x"))["duplicate"] is True
    cat.register("a", name="till")
    for each in (ann, bob):
        assert len(each.take()) == 1
        refused(send(each, numbered(mine, 3, b"x")), "NOT_OWNER")


def test_registering_again_on_the_same_connection_fences_nobody(kept: World) -> None:
    ann = kept.connect()
    mine = ann.register("a", name="till")
    ann.register("a", name="till")
    assert ann.take() == []
    place(send(ann, numbered(mine, 1, b"x")))


def test_a_producer_that_comes_back_after_another_took_its_place_is_not_let_in(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.register("a", name="till", session="one")
    ann.leave()
    bob.register("a", name="till", session="two")
    cat = kept.connect()
    back = {"topic": "a", "name": "till", "session": "one", "resume": True}
    assert "taken over" in refused(cat.ask("system.producer.register", back), "NOT_OWNER")
    assert bob.take() == []
    bob.leave()
    assert "error" not in cat.ask("system.producer.register", back | {"session": "two"})


def test_a_number_that_was_never_registered_here_is_refused(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    refused(send(ann, numbered(7, 1, b"x")), "NOT_OWNER")
    mine = ann.register("a")
    refused(send(bob, numbered(mine, 1, b"x")), "NOT_OWNER")
    refused(send(ann, numbered(mine, 1, b"x"), "b"), "NOT_OWNER")
    assert kept.stored("a") == []


def test_a_producer_goes_with_its_connection(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    mine = ann.register("a", name="till")
    ann.leave()
    refused(send(bob, numbered(mine, 1, b"x")), "NOT_OWNER")
    producers = kept.topic("a").producers
    assert producers is not None
    assert producers.owners == {}


def test_a_connection_that_left_before_it_had_its_number_owns_nothing(kept: World) -> None:
    ann = kept.connect()
    ann.publish("a")
    kept.hold()
    ann.post(f'request:system.producer.register:1.0.0:{ID}\n{{"topic":"a","name":"till"}}')
    ann.leave()
    kept.release()
    producers = kept.topic("a").producers
    assert producers is not None
    assert producers.owners == {}


def test_registering_creates_the_topic_and_says_what_a_producer_must_know(kept: World) -> None:
    ann = kept.connect()
    answer = ann.ask("system.producer.register", {"topic": "a", "name": "till"})
    assert answer["producer_id"] > 0
    assert (answer["name"], answer["last_request_id"], answer["partitions"]) == ("till", 0, 1)
    assert answer["payload_bytes_max"] == 1 << 20


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "topic"),
        ({"topic": 5}, "topic"),
        ({"topic": "no spaces"}, "topic"),
        ({"topic": "a", "name": ""}, "name"),
        ({"topic": "a", "name": "x" * 256}, "producer name"),
        ({"topic": "a", "name": "a\0b"}, "producer name"),
        ({"topic": "a", "name": "idempotency-key"}, "the broker's own"),
        ({"topic": "a", "name": "idempotency-key", "access": "shared"}, "the broker's own"),
        ({"topic": "a", "name": "dead-letters s 1 0"}, "the broker's own"),
        ({"topic": "a", "access": "both"}, "access"),
        ({"topic": "a", "producer_id": 0}, "producer_id"),
        ({"topic": "a", "producer_id": "1"}, "producer_id"),
        ({"topic": "a", "resume": 1}, "resume"),
        ({"topic": "a", "session": 1}, "session"),
        ({"topic": "a", "nmae": "x"}, "nmae"),
        ({"topic": "system.x"}, "cannot be created: system topics are the broker's own"),
    ],
)
def test_a_registration_that_cannot_be_is_refused_by_name_and_creates_nothing(
    kept: World, fields: dict[str, Any], words: str
) -> None:
    answer = kept.connect().ask("system.producer.register", fields)
    assert words in refused(answer, "INVALID_REQUEST")
    assert kept.data.catalog.list_topics() == ()


def test_a_number_that_cannot_be_given_is_an_error(kept: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise FULL

    ann = kept.connect()
    monkeypatch.setattr(kept.data.catalog, "producer_id", fail)
    refused(ann.ask("system.producer.register", {"topic": "a", "name": "till"}), "DISK_FULL")
    monkeypatch.undo()
    ann.register("a", name="till")


def test_numbers_of_one_producer_on_two_topics_are_apart(kept: World) -> None:
    ann = kept.connect()
    one, other = ann.register("a", name="till"), ann.register("b", name="till")
    place(send(ann, numbered(one, 1, b"x")))
    assert send(ann, numbered(other, 1, b"y"), "b")["duplicate"] is False
    assert (
        send(ann, block_of(Message(payload=b"x", producer_id=one, request_id=1)), request_id=ID4)["duplicate"] is True
    )
