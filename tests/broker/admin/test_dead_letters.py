"""Redrive and drop of dead letters: each is sent back once, whatever stops in between."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.conftest import Keeping
from tests.broker.kit import ID, Peer, World
from tests.broker.subscriptions.test_dead_letters import DLQ, consumer, nack
from tests.broker.topics.test_publisher import refused

from penstock.broker.reads.scan import resume_token
from penstock.core.dead_letter_attributes import redrive_producer_name
from penstock.core.errors import DiskFull, StorageFailed
from penstock.core.ids import format_id
from penstock.core.names import TopicName
from penstock.record.message import Message

pytestmark = pytest.mark.slow  # many brokers, each with a disk


def dead(world: World, count: int = 6, *, partitions: int = 1) -> Peer:
    """Create a topic whose messages are all dead letters, except the first. Their reason is the offset modulo 2."""
    ann = world.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": partitions})
    for number in range(count + 1):
        ann.append("a", b"%d" % number)
    bob = consumer(world, window={"messages": 1000})
    for partition in range(partitions):
        end = int(world.log("a", partition).next_offset)
        for offset in range(1 if partition == 0 else 0, end):
            nack(bob, offset, partition=partition, reason=f"reason {offset % 2}")
    bob.leave()
    return ann


def ask(peer: Peer, what: str, **fields: Any) -> Any:
    return peer.ask(f"system.deadletter.{what}", {"topic": "a"} | fields)


def count(world: World, topic: str = "a") -> int:
    return sum(int(log.next_offset) for log in world.topic(topic).logs)


def test_topics_with_dead_letters_are_listed_with_how_many_are_left(kept: World) -> None:
    ann = dead(kept)
    (found,) = ann.ask("system.deadletter.list")["dead_letters"]
    assert (found["topic"], found["dead_letters"], found["left"], found["messages"]) == ("/default/a", DLQ, 6, 6)
    assert ann.ask("system.deadletter.list", {"after": "/default/a"})["dead_letters"] == []
    assert ann.ask("system.deadletter.list", {"namespace": "shop"})["dead_letters"] == []


def test_those_that_are_left_are_shown_with_why_they_failed(kept: World) -> None:
    ann = dead(kept)
    answer = ask(ann, "browse")
    assert [each["reason"] for each in answer["messages"]] == [f"reason {number % 2}" for number in range(1, 7)]
    first = answer["messages"][0]
    assert (first["payload"], first["original_offset"], first["subscription"]) == ("1", "1", "s")
    assert (first["redrives"], first["verdict"]) == (0, "redrive")
    assert [each["offset"] for each in ask(ann, "browse", reason="*1")["messages"]] == [0, 2, 4]
    assert ask(ann, "browse", subscription="other")["messages"] == []
    assert ask(ann, "browse", type="t*")["messages"] == []


@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_every_letter_is_sent_back_once_in_calls_of_any_size(kept: World, limit: int) -> None:
    ann = dead(kept, 9)
    before, redriven = count(kept), 0
    resume: dict[str, str] = {}
    for _ in range(20):
        answer = ask(ann, "redrive", limit=limit, **resume)
        redriven += answer["redriven"]
        assert answer["redriven"] <= limit
        resume = {"resume": answer["resume"]}
        if answer["end"]:
            break
    assert (redriven, answer["left"], count(kept) - before) == (9, 0, 9)
    back = [record.message for record in kept.log("a").records()][-9:]
    assert sorted(each.payload for each in back) == [b"%d" % number for number in range(1, 10)]
    assert all(each.attributes == {"x-redrive-count": "1"} for each in back)
    assert ask(ann, "redrive")["redriven"] == 0


def test_letters_of_several_partitions_are_all_sent_back(kept: World) -> None:
    ann = dead(kept, 12, partitions=3)
    letters = count(kept, DLQ)
    before = count(kept)
    answer = ask(ann, "redrive")
    assert (answer["redriven"], answer["left"], count(kept) - before) == (letters, 0, letters)


def test_what_is_stored_and_not_settled_is_recognised_the_next_time(kept: World) -> None:
    """If the cursor cannot be saved, a letter that was sent is not sent again."""
    ann = dead(kept, 5)
    before = count(kept)
    kept.hold()
    ann.post('request:system.deadletter.redrive:1.0.0:00000000-0000-4000-8000-000000000001\n{"topic": "a"}')
    while not kept.appends:
        kept.do(kept.works[0])
    kept.do(kept.appends[0])
    kept.restart()
    ann = kept.connect()
    assert ann.ask("system.deadletter.list")["dead_letters"][0]["left"] == 5
    answer = ask(ann, "redrive")
    assert (answer["redriven"], answer["repeated"], answer["left"]) == (5, 5, 0)
    assert count(kept) - before == 5


def test_a_redrive_that_stops_tells_how_far_it_came_and_goes_on(keeping: Keeping) -> None:
    world = keeping()
    ann = dead(world, 300)
    before = count(world)
    world.hold()
    ann.post('request:system.deadletter.redrive:1.0.0:00000000-0000-4000-8000-000000000001\n{"topic": "a"}')
    appended = 0
    while appended < 2:
        if world.appends:
            appended += 1
            world.do(world.appends[0], DiskFull("no room") if appended == 2 else None)
        else:
            world.do(world.works[0])
    answer = ann.answer("00000000-0000-4000-8000-000000000001")
    assert (answer["redriven"], answer["stopped"]["code"], answer["end"]) == (256, "DISK_FULL", False)
    world.release()
    assert ask(ann, "redrive", resume=answer["resume"])["redriven"] == 44
    assert count(world) - before == 300


def test_where_nothing_could_be_done_the_reason_is_the_answer(kept: World) -> None:
    ann = dead(kept, 3)
    kept.hold()
    ann.post('request:system.deadletter.redrive:1.0.0:00000000-0000-4000-8000-000000000001\n{"topic": "a"}')
    while not kept.appends:
        kept.do(kept.works[0])
    kept.do(kept.appends[0], StorageFailed("broken"))
    refused(ann.answer("00000000-0000-4000-8000-000000000001"), "STORAGE_FAILED")
    kept.release()


def test_they_are_sent_in_the_name_of_a_producer_that_nobody_else_can_have(kept: World) -> None:
    ann = dead(kept, 2)
    ask(ann, "redrive", limit=1)
    topic = kept.topic(DLQ).catalog_topic
    name = redrive_producer_name(TopicName.parse(DLQ), 0, 1, topic.created_ms)
    number = kept.data.catalog.producer_id(kept.topic("a").catalog_topic, name)
    (last,) = list(kept.log("a").records())[-1:]
    assert (last.message.producer_id, last.message.request_id) == (number, 1)
    for access in ("shared", "exclusive"):
        asked = {"topic": "a", "name": name, "access": access}
        assert "the broker's own" in refused(ann.ask("system.producer.register", asked), "INVALID_REQUEST")


def test_one_that_was_sent_back_too_often_is_left(kept: World) -> None:
    ann = dead(kept, 1)
    for number in range(3):
        assert ask(ann, "redrive")["redriven"] == 1
        bob = consumer(kept)
        nack(bob, 2 + number)
        bob.leave()
    answer = ask(ann, "redrive")
    assert (answer["redriven"], answer["too_often"], answer["left"]) == (0, 1, 1)
    assert ask(ann, "redrive", redrives_max=4)["redriven"] == 1


def test_what_is_no_dead_letter_of_the_topic_is_left(kept: World) -> None:
    ann = dead(kept, 1)
    ann.append(DLQ, b"put there by hand")
    answer = ask(ann, "redrive")
    assert (answer["redriven"], answer["strangers"], answer["left"]) == (1, 1, 1)
    (shown,) = ask(ann, "browse")["messages"]
    assert (shown["original_topic"], shown["verdict"]) == ("", "left: not a dead letter of this topic")


def test_one_that_the_topic_refuses_does_not_hold_up_the_others(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"0")
    for payload in (b"short", b"x" * 3000, b"short too"):
        ann.append("a", payload)
    bob = consumer(kept)
    nack(bob, 1, 2, 3)
    bob.leave()
    ann.ask("system.topic.alter", {"topic": "a", "payload_bytes_max": 1000})
    answer = ask(ann, "redrive")
    assert (answer["redriven"], answer["refused"], answer["left"], answer["end"]) == (2, 1, 1, True)
    assert (answer["refusals"][0]["offset"], answer["refusals"][0]["code"]) == (1, "PAYLOAD_TOO_LARGE")


def test_every_letter_that_the_schema_policy_refuses_is_told_with_its_own_reason(kept: World) -> None:
    """Some or all of the letters sent together are refused."""
    ann = dead(kept, 3)
    ann.ask("system.topic.alter", {"topic": "a", "schema_policy": "enforce"})
    before = count(kept)
    answer = ask(ann, "redrive")
    assert (answer["redriven"], answer["refused"], answer["left"], answer["end"]) == (0, 3, 3, True)
    assert [(each["offset"], each["code"]) for each in answer["refusals"]] == [
        (number, "SCHEMA_REJECTED") for number in range(3)
    ]
    assert all(each["message"].startswith("the message names no schema") for each in answer["refusals"])
    assert count(kept) == before


# limits of a call


def test_what_comes_after_the_first_of_several_calls_is_not_meant_where_they_say_until_when(kept: World) -> None:
    ann = dead(kept, 4)
    first = {what: ask(ann, what, limit=1) for what in ("browse", "redrive")}
    bob = consumer(kept)
    nack(bob, 5)  # the letter that was sent back fails once more
    bob.leave()
    more = {name: first["browse"][name] for name in ("resume", "until")}
    assert [each["offset"] for each in ask(ann, "browse", **more)["messages"]] == [1, 2, 3]
    assert [each["offset"] for each in ask(ann, "browse", resume=more["resume"])["messages"]] == [1, 2, 3, 4]
    more = {name: first["redrive"][name] for name in ("resume", "until")}
    answer = ask(ann, "redrive", **more)
    assert (answer["redriven"], answer["left"], answer["end"], answer["until"]) == (3, 1, True, more["until"])
    assert ask(ann, "drop", until=more["until"])["dropped"] == 0
    assert ask(ann, "drop")["dropped"] == 1


def test_a_call_ends_where_an_earlier_one_stopped(kept: World) -> None:
    ann = dead(kept)
    until = ask(ann, "browse", limit=2)["resume"]
    assert [each["offset"] for each in ask(ann, "browse", until=until)["messages"]] == [0, 1]
    assert ask(ann, "drop", until=until)["dropped"] == 2
    assert ask(ann, "drop", until=until)["dropped"] == 0


def test_letters_that_are_settled_are_not_looked_at_again(kept: World) -> None:
    ann = dead(kept)
    ask(ann, "drop", limit=4)
    for what in ("browse", "redrive"):
        assert ask(ann, what, scan=2)["scanned"] == 2
    assert (ask(ann, "browse")["scanned"], ask(ann, "browse")["end"]) == (0, True)


def test_a_letter_can_be_fetched_whole_whether_it_is_left_or_not(kept: World) -> None:
    ann = kept.connect()
    payload, attributes = b"y" * 3000, {"x-original-topic": "/default/a", "more": "v" * 20_000}
    ann.append("a", b"0")
    ann.append(DLQ, Message(payload=payload, attributes=attributes))
    (shown,) = ask(ann, "browse")["messages"]
    assert (shown["payload_cut"], shown["attributes_cut"]) == (True, True)
    ask(ann, "drop")
    fetched = ask(ann, "get", offset=0)
    assert (fetched["payload"], fetched["attributes"]) == (payload.decode(), attributes)
    assert ask(ann, "get", offset=0, payload_from=2998)["payload_base64"] == "eXk="
    (letter,) = kept.log(DLQ).records()
    assert ask(ann, "get", id=format_id(letter.id))["offset"] == 0
    refused(ask(ann, "get", offset=1), "OFFSET_OUT_OF_RANGE")
    for wrong in ({}, {"offset": -1}, {"offset": "0"}, {"offset": 0, "partition": 1}, {"offset": 0, "more": 1}):
        refused(ask(ann, "get", **wrong), "INVALID_REQUEST")


def test_a_verdict_is_about_as_many_redrives_as_are_asked_for(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"0")
    ann.append(DLQ, Message(payload=b"", attributes={"x-original-topic": "/default/a", "x-redrive-count": "3"}))
    verdicts = [ask(ann, "browse", redrives_max=number)["messages"][0]["verdict"] for number in (3, 4)]
    assert verdicts == ["left: sent back too often", "redrive"]


def test_what_a_letter_says_of_itself_is_told_however_little_room_there_is(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"0")
    attributes = {"x-original-topic": "/default/a", "x-failure-reason": "r" * 100_000}
    ann.append(DLQ, Message(payload=b"\x01" * 900_000, attributes=attributes))
    (shown,) = ask(ann, "browse", preview_bytes=65536)["messages"]
    assert (shown["reason"], shown["verdict"]) == ("r" * 1024, "redrive")
    assert [each["offset"] for each in ask(ann, "browse", reason="r*r")["messages"]] == [0]


WRONG: dict[str, tuple[Any, ...]] = {
    "limit": (0, -1, 10_001, 2**70, 1.5, "1", True, None, [1], {}),
    "scan": (0, 100_001, 2**70, "1", None),
    "partition": (1, -1, "0", 2**70, None, True),
    "type": (1, None, ["t"], {}, "x" * 257),
    "reason": (1, None, ["t"], "x" * 257),
    "subscription": (1, None, "x" * 257),
    "resume": ("", "x", 1, None, "A" * 20_000, "\u00e9"),
    "until": ("", "x", 1, None, "A" * 20_000, "\u00e9"),
    "topic": ("", "a b", 1, None, "../a"),
}


@pytest.mark.parametrize("what", ["browse", "redrive", "drop"])
def test_what_is_wrong_with_a_field_is_said_of_that_field(kept: World, what: str) -> None:
    ann = dead(kept, 1)
    for field, value in ((field, value) for field, values in WRONG.items() for value in values):
        answer = ask(ann, what, **{field: value})
        assert field in refused(answer, "INVALID_REQUEST"), value
        assert len(str(answer)) < 1500
    assert ann.ask("system.deadletter.list")["dead_letters"][0]["left"] == 1


@pytest.mark.parametrize("what", ["browse", "redrive", "drop"])
def test_a_token_that_somebody_made_up_leads_nowhere(kept: World, what: str) -> None:
    ann = dead(kept, 2)
    letters, other = kept.topic(DLQ), kept.topic("a")
    for name in ("resume", "until"):
        for wrong in (resume_token(other, {0: 1}), resume_token(letters, {0: -1}), resume_token(letters, {0: 1, 1: 1})):
            assert name in refused(ask(ann, what, **{name: wrong}), "INVALID_REQUEST")
    refused(ask(ann, what, resume=resume_token(letters, {0: 2**62})), "OFFSET_OUT_OF_RANGE")
    assert ask(ann, what, until=resume_token(letters, {0: 2**62}), limit=1)["matched"] == 1


def test_letters_are_dropped_by_what_is_wrong_with_them(kept: World) -> None:
    ann = dead(kept)
    before = count(kept)
    answer = ask(ann, "drop", reason="reason 1")
    assert (answer["dropped"], answer["left"], answer["end"]) == (3, 3, True)
    assert [each["offset"] for each in ask(ann, "browse")["messages"]] == [1, 3, 5]
    kept.restart(reopen=True)
    ann = kept.connect()
    assert ask(ann, "drop", limit=2)["dropped"] == 2
    assert ask(ann, "drop")["dropped"] == 1
    assert ask(ann, "drop")["dropped"] == 0
    assert count(kept) == before


REDRIVE = f'request:system.deadletter.redrive:1.0.0:{ID}\n{{"topic": "a"}}'
DROP = f'request:system.deadletter.drop:1.0.0:{ID}\n{{"topic": "a"}}'


def test_a_redrive_under_way_sends_nothing_back_that_was_dropped_meanwhile(kept: World) -> None:
    ann, bob = dead(kept, 300), kept.connect()
    before = count(kept)
    kept.hold()
    ann.post(REDRIVE)
    while not kept.appends:
        kept.do(kept.works[0])
    bob.post(DROP)
    kept.do_works()
    assert bob.answer()["dropped"] == 300
    kept.release()
    answer = ann.answer()
    assert (answer["redriven"], answer["left"], answer["end"]) == (256, 0, True), "those that were on their way"
    assert count(kept) - before == 256


@pytest.mark.parametrize("steps", range(4))
def test_what_is_dropped_before_it_is_sent_stays_dropped_wherever_the_redrive_is(kept: World, steps: int) -> None:
    ann, bob = dead(kept, 5), kept.connect()
    before = count(kept)
    kept.hold()
    ann.post(REDRIVE)
    for _ in range(steps):
        kept.do(kept.works[0])
    assert not kept.appends, "it has not come to that"
    bob.post(DROP)
    while (dropped := bob.answer()) is None:
        kept.do(kept.works[-1])
    kept.release()
    assert (dropped["dropped"], ann.answer()["redriven"], count(kept) - before) == (5, 0, 0)


def test_two_who_drop_at_once_drop_each_letter_once(kept: World) -> None:
    ann, bob = dead(kept, 5), kept.connect()
    kept.hold()
    ann.post(DROP)
    bob.post(DROP)
    kept.release()
    assert ann.answer()["dropped"] + bob.answer()["dropped"] == 5


def test_somebody_who_hangs_up_ends_it_and_what_was_done_stays(kept: World) -> None:
    ann = dead(kept, 300)
    kept.hold()
    ann.post('request:system.deadletter.redrive:1.0.0:00000000-0000-4000-8000-000000000001\n{"topic": "a"}')
    while not kept.appends:
        kept.do(kept.works[0])
    ann.leave()
    kept.release()
    bob = kept.connect()
    assert bob.ask("system.deadletter.list")["dead_letters"][0]["left"] == 44
    assert kept.broker.durable is not None
    assert kept.broker.durable.scans.open == 0


def test_what_cannot_be_is_refused(kept: World) -> None:
    ann = dead(kept, 1)
    for what in ("browse", "redrive", "drop"):
        assert "itself" in refused(ask(ann, what, topic=DLQ), "INVALID_REQUEST")
        refused(ask(ann, what, topic="b"), "TOPIC_NOT_SUPPORTED")
        refused(ask(ann, what, limit=0), "INVALID_REQUEST")
        refused(ask(ann, what, type="x" * 300), "INVALID_REQUEST")
        refused(ask(ann, what, resume="x"), "INVALID_REQUEST")
        refused(ask(ann, what, until="x"), "INVALID_REQUEST")
        refused(ask(ann, what, other=1), "INVALID_REQUEST")
    for what in ("browse", "redrive"):
        for wrong in (0, 1001, "1", None):
            assert "redrives_max" in refused(ask(ann, what, redrives_max=wrong), "INVALID_REQUEST")
    confirm = ann.ask("system.topic.delete", {"topic": "a"})["confirm"]
    ann.ask("system.topic.delete", {"topic": "a", "confirm": confirm})
    refused(ask(ann, "redrive"), "TOPIC_NOT_SUPPORTED")
    assert ask(ann, "drop")["dropped"] == 1
