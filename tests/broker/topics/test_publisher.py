"""Publishing to durable topics: stored in order, answered when stored, refused as a whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.conftest import Keeping
from tests.broker.kit import ID, ID2, ID3, World, block_of, own_id

from penstock.broker.topics.topics import AutoCreate
from penstock.core.errors import DiskFull, StorageFailed
from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, SchemaRef, partition_of

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk

FULL = DiskFull("no room")
ORDER = Message(
    payload=b"\x00body\n\xff",
    type="order.created",
    key=b"customer-7",
    attributes={"traceparent": "00-ab-cd-01", "empty": ""},
    producer_name="till 3",
    schema=SchemaRef(12, 3),
)


def place(answer: Any) -> tuple[int, int]:
    assert "error" not in answer, answer
    return answer["partition"], answer["offset"]


def refused(answer: Any, code: str) -> str:
    assert answer["error"]["code"] == code, answer
    return str(answer["error"]["message"])


def topics_of(world: World) -> list[str]:
    return [str(topic.name) for topic in world.data.catalog.list_topics()]


# publish


def test_a_message_to_an_unknown_topic_creates_it_and_is_answered_with_its_place(kept: World) -> None:
    answer = kept.connect().publish("orders.made", b"one")
    assert set(answer) == {"partition", "offset", "id", "duplicate"}
    assert (place(answer), answer["duplicate"]) == ((0, 0), False)
    assert topics_of(kept) == ["/default/orders.made"]
    assert kept.stored("orders.made") == [b"one"]


def test_the_id_in_the_answer_is_the_id_in_the_log(kept: World) -> None:
    ann = kept.connect()
    answers = [ann.publish("a", bytes([number])) for number in range(3)]
    ids = [record.id.hex() for record in kept.log("a").records()]
    assert [answer["id"].replace("-", "") for answer in answers] == ids


def test_a_batch_is_stored_in_order_and_only_those_with_ids_are_answered(kept: World) -> None:
    ann = kept.connect()
    lines = [f"publish:a:1.0.0:{own_id(n)}\n{n}" if n % 2 else f"publish:a:1.0.0\n{n}" for n in range(10)]
    answers = ann.send(*lines)
    assert kept.stored("a") == [b"%d" % n for n in range(10)]
    assert [text.split(":")[3].split("\n")[0] for text in answers] == [own_id(n) for n in range(1, 10, 2)]
    assert [json.loads(text.partition("\n")[2])["offset"] for text in answers] == [1, 3, 5, 7, 9]


def test_several_spellings_and_versions_of_one_topic_keep_their_order(kept: World) -> None:
    ann = kept.connect()
    heads = ["Orders.Made:1.0.0", "/default/orders.made:2.1.0", "orders.made:1.0.0", "/Default/ORDERS.made:1.0.0"]
    ann.send(*(f"publish:{heads[n % 4]}\n{n}" for n in range(40)))
    assert kept.stored("orders.made") == [b"%d" % n for n in range(40)]
    assert topics_of(kept) == ["/default/orders.made"]


def test_two_topics_in_one_piece_are_two_logs(kept: World) -> None:
    kept.connect().send(*(f"publish:{'ab'[n % 2]}:1.0.0\n{n}" for n in range(6)))
    assert (kept.stored("a"), kept.stored("b")) == ([b"0", b"2", b"4"], [b"1", b"3", b"5"])


def test_a_message_with_a_parent_id_is_kept_like_any_other(kept: World) -> None:
    (answer,) = kept.connect().send(f"publish:a:1.0.0:{ID}:{ID2}\nhi")
    assert json.loads(answer.partition("\n")[2])["offset"] == 0
    assert kept.stored("a") == [b"hi"]


def test_the_service_name_of_a_publisher_is_kept_with_its_messages(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.service.register", {"name": "till", "description": "d"})
    ann.send("publish:a:1.0.0\n1", "publish:a:1.0.0\n2", f"publish:a:1.0.0:{ID}:{ID2}\n3")
    assert [record.message.producer_name for record in kept.log("a").records()] == ["till"] * 3


def test_live_subscribers_of_a_kept_topic_see_a_message_only_when_it_is_stored(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    bob.subscribe("a.#")
    ann.publish("a.b", b"before")
    bob.take()
    kept.hold()
    ann.post(f"publish:a.b:1.0.0:{ID}\nhi", f"publish:a.b:1.0.0:{ID2}:{ID3}\nho")
    assert (ann.take(), bob.take(), len(kept.appends)) == ([], [], 2)
    kept.do()
    assert bob.take() == ["publish:a.b:1.0.0:<uuid>\nhi"]
    kept.do()
    assert bob.take() == ["publish:a.b:1.0.0:<uuid>\nho"]
    assert len(ann.take()) == 2


def test_what_fails_is_answered_with_the_error_also_without_an_id_and_seen_by_nobody(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    bob.subscribe("a")
    ann.publish("a", b"first")
    bob.take()
    kept.hold()
    ann.post(f"publish:a:1.0.0:{ID}\n1", "publish:a:1.0.0\n2")
    kept.do(error=FULL)
    kept.release()
    answers = ann.take()
    assert [text.partition("\n")[0] for text in answers] == [f"response:a:1.0.0:{ID}", "response:a:1.0.0:<uuid>"]
    assert all('"code":"DISK_FULL"' in text for text in answers)
    assert bob.take() == []
    assert kept.stored("a") == [b"first"]


def test_after_a_full_disk_publishing_goes_on_by_itself_and_acks_never_stop(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.publish("a", b"1")
    bob.consume("a", subscription="s", since="earliest")
    kept.hold()
    ann.post(f"publish:a:1.0.0:{ID}\n2")
    kept.do(error=FULL)
    kept.release()
    assert refused(ann.answer(), "DISK_FULL") == "no room"
    assert bob.offsets() == [0]
    assert bob.call("ack", "a", {"subscription": "s", "offsets": [0]})["acked"] == 1
    assert place(ann.publish("a", b"3")) == (0, 1)
    assert bob.payloads() == [b"3"]


def test_a_partition_that_failed_for_good_takes_nothing_more_and_the_others_live_on(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    bob.consume("a", subscription="s", since="earliest")
    keys = {partition_of(key, 2): key for key in (b"k%d" % n for n in range(20))}
    for key in keys.values():
        ann.append("a", Message(payload=b"before", key=key))
    kept.log("a", 1)._fail(OSError(5, "Input/output error"))
    assert place(ann.append("a", Message(payload=b"after", key=keys[0]))) == (0, 1)
    assert "takes no more appends" in refused(ann.append("a", Message(payload=b"no", key=keys[1])), "STORAGE_FAILED")
    assert sorted(bob.payloads()) == [b"after", b"before", b"before"]
    assert bob.call("ack", "a", {"subscription": "s", "partition": 1, "offsets": [0]})["acked"] == 1
    described = ann.ask("system.topic.describe", {"topic": "a"})
    assert [log["failure"] is None for log in described["logs"]] == [True, False]


def test_a_block_of_which_one_partition_fails_is_answered_with_the_error_and_the_rest_of_it_is_stored(
    kept: World,
) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    keys = {partition_of(key, 2): key for key in (b"k%d" % n for n in range(20))}
    kept.log("a", 1)._fail(OSError(5, "Input/output error"))
    answer = ann.append("a", Message(payload=b"0", key=keys[0]), Message(payload=b"1", key=keys[1]))
    refused(answer, "STORAGE_FAILED")
    assert (kept.stored("a", 0), kept.stored("a", 1)) == ([b"0"], [])


# topics that come to be


def test_two_who_publish_while_the_topic_is_being_created_are_stored_in_the_order_they_came(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    kept.hold()
    ann.post(f"publish:a:1.0.0:{ID}\n1")
    bob.post(f"publish:a:1.0.0:{ID}\n2")
    ann.post(f"append:a:1.0.0:{ID2}\n".encode() + block_of(b"3"))
    assert (len(kept.works), kept.appends) == (1, [])
    kept.release()
    assert kept.stored("a") == [b"1", b"2", b"3"]
    assert [place(ann.answer()), place(bob.answer()), place(ann.answer(ID2))] == [(0, 0), (0, 1), (0, 2)]


def test_whoever_publishes_to_a_topic_that_cannot_be_created_is_told_why_and_may_try_again(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    kept.hold()
    ann.post(f"publish:a:1.0.0:{ID}\n1")
    bob.post(f"append:a:1.0.0:{ID}\n".encode() + block_of(b"2"))
    kept.do(error=FULL)
    assert refused(ann.answer(), "DISK_FULL") == refused(bob.answer(), "DISK_FULL") == "no room"
    kept.release()
    assert place(ann.publish("a", b"3")) == (0, 0)


def test_a_topic_that_somebody_creates_as_live_meanwhile_refuses_and_is_live_from_then_on(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    kept.hold()
    ann.post(f'request:system.topic.create:1.0.0:{ID}\n{{"topic":"a","dispatch":"live"}}')
    bob.post(f"publish:a:1.0.0:{ID}\n1", f"publish:a:1.0.0:{ID2}:{ID}\n2")
    bob.post(f"append:a:1.0.0:{ID3}\n".encode() + block_of(b"3"))
    kept.release()
    assert ann.answer()["dispatch"] == "live"
    for each in (ID, ID2):
        assert "try again" in refused(bob.answer(each), "SERVICE_UNAVAILABLE")
    refused(bob.answer(ID3), "TOPIC_NOT_SUPPORTED")
    refused(bob.publish("a"), "NO_ROUTE_FOUND")


def test_an_explicitly_live_topic_goes_to_whoever_listens_and_keeps_nothing(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "dispatch": "live"})
    refused(ann.publish("a"), "NO_ROUTE_FOUND")
    bob.subscribe("a")
    assert ann.publish("a") == {"status": "success"}
    assert bob.take() == ["publish:a:1.0.0:<uuid>\nhi"]
    assert "live topic" in refused(ann.append("a", b"x"), "TOPIC_NOT_SUPPORTED")
    assert "live topic" in refused(ann.call("message", "a", b"{}\nx"), "TOPIC_NOT_SUPPORTED")
    assert "live topic" in refused(bob.consume("a", subscription="s"), "TOPIC_NOT_SUPPORTED")
    assert "live topic" in refused(ann.ask("system.producer.register", {"topic": "a"}), "TOPIC_NOT_SUPPORTED")


def test_with_auto_create_live_unknown_topics_are_live_and_created_ones_are_kept(keeping: Keeping) -> None:
    world = keeping(auto_create=AutoCreate.LIVE)
    ann, bob = world.connect(), world.connect()
    refused(ann.publish("a"), "NO_ROUTE_FOUND")
    bob.subscribe("a")
    assert ann.publish("a") == {"status": "success"}
    for answer in (ann.append("a", b"x"), bob.consume("a", subscription="s"), bob.consume("a", since="earliest")):
        assert "penstock topic create" in refused(answer, "TOPIC_NOT_SUPPORTED")
    assert topics_of(world) == []
    ann.ask("system.topic.create", {"topic": "b"})
    assert place(ann.publish("b")) == (0, 0)


def test_with_auto_create_off_only_topics_that_somebody_created_are_taken(keeping: Keeping) -> None:
    world = keeping(auto_create=AutoCreate.OFF)
    ann = world.connect()
    for answer in (ann.publish("a"), ann.append("a", b"x"), ann.consume("a", subscription="s")):
        assert "penstock topic create" in refused(answer, "TOPIC_NOT_SUPPORTED")
    (answered,) = ann.send(f"publish:a:1.0.0:{ID}:{ID2}\nhi")
    assert "TOPIC_NOT_SUPPORTED" in answered
    assert topics_of(world) == []
    ann.ask("system.topic.create", {"topic": "a"})
    assert place(ann.publish("a")) == (0, 0)


def test_a_topic_that_is_published_to_again_after_its_deletion_is_a_new_one(kept: World) -> None:
    ann = kept.connect()
    ann.publish("a", b"old")
    token = ann.ask("system.topic.delete", {"topic": "a"})["confirm"]
    kept.hold()
    ann.post(f'request:system.topic.delete:1.0.0:{ID}\n{{"topic":"a","confirm":"{token}"}}')
    ann.post(f"publish:a:1.0.0:{ID2}\nnew")
    kept.release()
    assert ann.answer() == {"status": "success"}
    assert place(ann.answer(ID2)) == (0, 0)
    assert kept.stored("a") == [b"new"]


# append


def test_every_field_of_an_appended_message_survives(kept: World) -> None:
    answer = kept.connect().append("orders.made", ORDER, Message(payload=b""))
    assert (place(answer), answer["count"], answer["duplicates"]) == ((0, 0), 2, [])
    first, second = kept.log("orders.made").records()
    assert first.message == ORDER
    assert second.message == Message(payload=b"")
    assert first.publish_time_ms == second.publish_time_ms == 1_700_000_000_000
    assert [answer["parts"][0][:3], answer["parts"][0][3].replace("-", "")] == [[0, 0, 2], first.id.hex()]


def test_ids_offsets_and_times_that_a_block_brings_along_are_not_kept(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.append("a", ORDER, b"x")
    bob.consume("a", subscription="s", since="earliest", format="records")
    ((_, block),) = bob.blocks()
    before = list(kept.log("a").records())
    kept.after(5_000)
    ann.call("append", "b", bytes(block.raw))
    after = list(kept.log("b").records())
    assert [record.message for record in after] == [record.message for record in before]
    assert [record.offset for record in after] == [0, 1]
    assert {record.publish_time_ms for record in after} == {1_700_000_005_000}
    assert not {record.id for record in before} & {record.id for record in after}


def test_an_append_without_an_id_is_stored_and_not_answered(kept: World) -> None:
    assert kept.connect().send(b"append:a:1.0.0\n" + block_of(b"x")) == []
    assert kept.stored("a") == [b"x"]


def test_live_subscribers_get_the_payloads_of_a_block_one_by_one(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    bob.subscribe("/shop/orders.made")
    ann.append("/shop/orders.made", ORDER, b"x", b"")
    assert [frame.payload for frame in bob.got] == [ORDER.payload, b"x", b""]
    assert {frame.header.topic for frame in bob.got} == {"/shop/orders.made"}
    assert len({frame.header.request_id for frame in bob.got}) == 3


def _flipped(block: bytes) -> bytes:
    return block[:-1] + bytes([block[-1] ^ 1])


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (_flipped, "MALFORMED_MESSAGE", "record 1 at byte"),
        (lambda block: block[:-3], "MALFORMED_MESSAGE", "record 1 at byte"),
        (lambda block: block + b"\0" * 30, "MALFORMED_MESSAGE", "record 2 at byte"),
        (lambda _: b"", "INVALID_REQUEST", "at least one message"),
        (lambda _: b"hello, broker", "MALFORMED_MESSAGE", "record 0 at byte 0"),
        (lambda block: bytes(len(block)), "MALFORMED_MESSAGE", "record 0 at byte 0"),
    ],
    ids=["a checksum", "cut off", "more behind it", "nothing", "text", "zeros"],
)
def test_a_block_that_is_not_right_is_refused_and_nothing_of_it_is_stored(
    kept: World, spoil: Callable[[bytes], bytes], code: str, words: str
) -> None:
    ann = kept.connect()
    ann.publish("a", b"first")
    answer = ann.call("append", "a", spoil(block_of(b"1", b"2")))
    assert words in refused(answer, code)
    assert kept.stored("a") == [b"first"]
    assert place(ann.publish("a")) == (0, 1)


def test_a_block_with_a_payload_over_the_topics_limit_is_refused_by_its_number(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "payload_bytes_max": 10})
    answer = ann.append("a", b"x" * 10, b"x" * 11)
    assert "message 1 of the block: a payload has at most 10 bytes, not 11" in refused(answer, "PAYLOAD_TOO_LARGE")
    assert "PAYLOAD_TOO_LARGE" in json.dumps(ann.publish("a", b"x" * 11))
    assert kept.stored("a") == []


def test_a_block_over_the_limit_of_the_log_is_refused(keeping: Keeping) -> None:
    limits = Limits(payload_bytes_max=1000, block_bytes_max=2000, segment_bytes_max=4096, segment_bytes_first=4096)
    world = keeping(storage=limits)
    answer = world.connect().append("a", *[b"x" * 500] * 4)
    assert "a block has at most 2000 bytes" in refused(answer, "PAYLOAD_TOO_LARGE")
    assert world.stored("a") == []


def test_a_block_of_several_producers_is_refused(kept: World) -> None:
    ann = kept.connect()
    one, other = ann.register("a"), ann.register("a")
    answer = ann.append("a", *(Message(payload=b"x", producer_id=each, request_id=1) for each in (one, other)))
    assert "one producer" in refused(answer, "INVALID_REQUEST")
    assert kept.stored("a") == []


@pytest.mark.parametrize("numbers", [(1, 1), (2, 1), (1, 2, 4, 3), (3, 0), (0, 3)])
def test_a_block_whose_numbers_do_not_rise_is_refused_by_the_message(kept: World, numbers: tuple[int, ...]) -> None:
    ann = kept.connect()
    mine = ann.register("a")
    answer = ann.append("a", *(Message(payload=b"x", producer_id=mine, request_id=each) for each in numbers))
    assert "request_id" in refused(answer, "INVALID_REQUEST")
    assert kept.stored("a") == []
    assert ann.append("a", Message(payload=b"x", producer_id=mine, request_id=1))["offset"] == 0


# message


def test_one_message_with_metadata_is_stored_with_all_of_it(kept: World) -> None:
    ann = kept.connect()
    given = {"attributes": {"a": "b"}, "key": "k", "type": "t", "schema_id": 5, "schema_version": 2}
    answer = ann.call("message", "a", json.dumps(given).encode() + b"\nline\nline")
    assert (place(answer), answer["duplicate"]) == ((0, 0), False)
    (record,) = kept.log("a").records()
    wanted = Message(payload=b"line\nline", type="t", key=b"k", attributes={"a": "b"}, schema=SchemaRef(5, 2))
    assert record.message == wanted


def test_a_key_that_is_no_text_is_given_and_shown_in_base64(kept: World) -> None:
    ann = kept.connect()
    ann.call("message", "a", b'{"key_base64":"/wA="}\n')
    (record,) = kept.log("a").records()
    assert record.message.key == b"\xff\x00"
    ann.consume("a", subscription="s", since="earliest")
    ((facts, payload),) = ann.messages()
    assert (facts["key_base64"], "key" in facts, payload) == ("/wA=", False, b"")


@pytest.mark.parametrize(
    ("payload", "code", "words"),
    [
        (b"no newline", "MALFORMED_MESSAGE", "a line of JSON, a newline and the payload"),
        (b"{nonsense\nx", "MALFORMED_MESSAGE", "Invalid JSON"),
        (b"[1]\nx", "INVALID_REQUEST", "metadata must be a JSON object"),
        (b'{"offset":1}\nx', "INVALID_REQUEST", "'offset'"),
        (b'{"attributes":[]}\nx', "INVALID_REQUEST", "attributes"),
        (b'{"attributes":{"a":1}}\nx', "INVALID_REQUEST", "attribute 'a'"),
        (b'{"key":1}\nx', "INVALID_REQUEST", "key"),
        (b'{"key":"a","key_base64":"YQ=="}\nx', "INVALID_REQUEST", "not both"),
        (b'{"key_base64":"%"}\nx', "INVALID_REQUEST", "key_base64"),
        (b'{"type":7}\nx', "INVALID_REQUEST", "type"),
        (b'{"schema_id":"x"}\nx', "INVALID_REQUEST", "schema"),
        (b'{"producer_id":-1}\nx', "INVALID_REQUEST", "producer_id"),
        (b'{"request_id":true}\nx', "INVALID_REQUEST", "request_id"),
        (b'{"producer_name":null}\nx', "INVALID_REQUEST", "producer_name"),
    ],
)
def test_metadata_that_cannot_be_is_refused_by_name(kept: World, payload: bytes, code: str, words: str) -> None:
    ann = kept.connect()
    ann.publish("a", b"first")
    assert words in refused(ann.call("message", "a", payload), code)
    assert kept.stored("a") == [b"first"]


# partitions


def test_a_key_always_goes_to_the_same_partition_and_that_is_its_hash_modulo_their_number(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 4})
    keys = [b"customer-%d" % n for n in range(50)]
    answer = ann.append("a", *(Message(payload=key, key=key) for key in keys * 2))
    for partition in range(4):
        mine = [key for key in keys * 2 if partition_of(key, 4) == partition]
        assert kept.stored("a", partition) == mine
    assert sum(part[2] for part in answer["parts"]) == 100
    assert place(answer) == (partition_of(keys[0], 4), 0)


def test_an_empty_key_is_a_key(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 4})
    for _ in range(3):
        assert ann.append("a", Message(payload=b"x", key=b""))["partition"] == partition_of(b"", 4)


def test_messages_without_a_key_stay_together_and_blocks_take_turns(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 3})
    for number in range(6):
        ann.append("a", *[b"%d" % number] * 2)
    assert sorted(kept.stored("a", each) for each in range(3)) == [
        [b"%d" % n] * 2 + [b"%d" % (n + 3)] * 2 for n in range(3)
    ]


def test_published_messages_take_turns_too(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    places = [place(ann.publish("a")) for _ in range(4)]
    assert sorted(places) == [(0, 0), (0, 1), (1, 0), (1, 1)]


# rates


def test_a_topic_with_a_rate_takes_no_more_than_that_in_a_second(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "rate_max": 3})
    place(ann.append("a", b"1", b"2"))
    refused(ann.append("a", b"3", b"4"), "QUOTA_EXCEEDED")
    place(ann.publish("a", b"3"))
    refused(ann.publish("a", b"4"), "QUOTA_EXCEEDED")
    place(ann.publish("b", b"x"))
    kept.after(1_000)
    place(ann.append("a", b"4", b"5", b"6"))
    assert kept.stored("a") == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_rate_that_is_altered_holds_at_once_and_after_a_restart(kept: World) -> None:
    ann = kept.connect()
    ann.publish("a")
    ann.ask("system.topic.alter", {"topic": "a", "rate_max": 1})
    place(ann.publish("a"))
    refused(ann.publish("a"), "QUOTA_EXCEEDED")
    kept.restart()
    ann = kept.connect()
    place(ann.publish("a"))
    refused(ann.publish("a"), "QUOTA_EXCEEDED")
    ann.ask("system.topic.alter", {"topic": "a", "rate_max": None})
    place(ann.publish("a"))


def test_the_rate_of_a_namespace_holds_for_topics_that_come_to_be_by_themselves(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.namespace", {"namespace": "shop", "rate_max": 1})
    place(ann.publish("/shop/a"))
    place(ann.publish("/shop/a"))  # the one that created it came before it had a rate
    refused(ann.publish("/shop/a"), "QUOTA_EXCEEDED")


# what outlives what


def test_what_a_client_sent_before_it_left_is_stored_all_the_same(kept: World) -> None:
    ann = kept.connect()
    kept.hold()
    ann.post(f"publish:a:1.0.0:{ID}\n1")
    ann.post(b"append:a:1.0.0\n" + block_of(b"2"))
    ann.leave()
    kept.release()
    assert kept.stored("a") == [b"1", b"2"]


def test_offsets_go_on_after_a_restart(kept: World) -> None:
    kept.connect().publish("a", b"1")
    kept.restart(reopen=True)
    assert place(kept.connect().publish("a", b"2")) == (0, 1)
    assert kept.stored("a") == [b"1", b"2"]


def test_the_disks_answers_come_in_any_order_of_logs(kept: World) -> None:
    ann = kept.connect()
    for topic in "ab":
        ann.publish(topic, b"0")
    kept.hold()
    ann.post(f"publish:a:1.0.0:{ID}\n1", f"publish:b:1.0.0:{ID2}\n2")
    kept.do(kept.appends[1])
    assert (ann.answer(), place(ann.answer(ID2))) == (None, (0, 1))
    kept.do(error=StorageFailed("gone"))
    refused(ann.answer(), "STORAGE_FAILED")


def test_the_rate_of_a_topic_is_what_was_stored_in_the_last_second(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", *[b"x"] * 7)
    kept.after(1_000)
    assert ann.ask("system.topic.describe", {"topic": "a"})["rate"] == 7
    kept.after(1_000)
    assert ann.ask("system.topic.describe", {"topic": "a"})["rate"] == 0
    assert kept.topic("a").messages == 7


def test_a_draft_is_what_the_log_gets(kept: World) -> None:
    ann = kept.connect()
    ann.publish("a")
    kept.hold()
    ann.post(b"append:a:1.0.0\n" + block_of(b"1", b"2"))
    (append,) = kept.appends
    assert (append.log, append.client, append.draft.count) == (kept.log("a"), ann.id, 2)
    assert isinstance(append.draft, Draft)
    assert kept.topic("a").name == TopicName.parse("a")
    kept.release()
