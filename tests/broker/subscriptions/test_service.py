"""Durable subscriptions over the wire: deliveries and their forms, acks, and what outlives the broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.broker.conftest import Keeping
from tests.broker.kit import ID, ID2, ID3, Peer, World, own_id
from tests.broker.topics.test_publisher import ORDER, refused

from penstock.core.clock import iso_time
from penstock.core.errors import DiskFull, StorageFailed
from penstock.core.limits import Limits
from penstock.record.message import Message, partition_of

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk

SMALL = Limits(
    payload_bytes_max=1000,
    block_bytes_max=2000,
    segment_bytes_max=4096,
    segment_bytes_first=4096,
    disk_reserve_bytes=1,
)
S = {"subscription": "s"}


def fill(world: World, count: int, topic: str = "a", **options: Any) -> Peer:
    """Create a topic with messages whose payloads are their numbers."""
    ann = world.connect()
    if options:
        ann.ask("system.topic.create", {"topic": topic} | options)
    ann.append(topic, *(b"%d" % number for number in range(count)))
    return ann


def ack(peer: Peer, topic: str = "a", *, request_id: str = ID2, **fields: Any) -> Any:
    return peer.call("ack", topic, S | fields, request_id=request_id)


def describe(peer: Peer, topic: str = "a", name: str = "s") -> Any:
    about = {"topic": topic, "subscription": name}
    return peer.call("request", "system.subscription.describe", about, request_id=ID3)


def cursor(world: World, topic: str = "a", partition: int = 0) -> tuple[int, list[tuple[int, int]], dict[int, int]]:
    """The cursor on disk."""
    (found,) = world.data.catalog.list_subscriptions(world.topic(topic).catalog_topic)
    saved = world.data.catalog.load_cursors(found.subscription_uid)[partition]
    return int(saved.floor), [(int(each.start), int(each.stop)) for each in saved.acked], dict(saved.failures)


# subscribing


def test_a_new_subscription_gets_what_comes_and_says_what_it_is(kept: World) -> None:
    ann = fill(kept, 2)
    bob = kept.connect()
    answer = bob.consume("a", subscription="s", consumer="bob")
    assert answer == {
        "subscription": "s",
        "type": "exclusive",
        "created": True,
        "consumer": "bob",
        "active": True,
        "window": {"messages": 1000, "bytes": 1 << 20},
        "partitions": [{"partition": 0, "floor": 2}],
        "ack_timeout_ms": 30_000,
    }
    assert bob.payloads() == []
    ann.publish("a", b"new")
    assert bob.payloads() == [b"new"]


def test_a_message_comes_with_all_that_is_known_of_it(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    kept.broker.context.address = "host:7450"
    stored = ann.append("/shop/orders.made", ORDER)
    bob.consume("/Shop/Orders.made", subscription="s", since="earliest", request_id=ID2)
    (frame,) = bob.got
    assert frame.header.topic == "/Shop/Orders.made", "as the subscriber spelled it"
    assert frame.header.parent_id == ID2
    ((facts, payload),) = bob.messages()
    assert payload == ORDER.payload
    assert facts == {
        "request_id": 0,
        "msg_id": {
            "producer_id": 0,
            "topic_name": "/shop/orders.made",
            "broker_addr": "host:7450",
            "topic_offset": 0,
        },
        "publish_time": 1_700_000_000_000,
        "producer_name": "till 3",
        "subscription_name": "s",
        "attributes": {"traceparent": "00-ab-cd-01", "empty": ""},
        "id": stored["id"],
        "partition": 0,
        "type": "order.created",
        "delivery_attempt": 1,
        "key": "customer-7",
        "schema_id": 12,
        "schema_version": 3,
    }


def test_records_come_as_they_lie_on_disk_under_ids_that_name_the_partition(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 3})
    keys = [b"k%d" % n for n in range(9)]
    ann.append("a", *(Message(payload=key, key=key, type="t") for key in keys))
    bob.consume("a", subscription="s", since="earliest", format="records", request_id=ID2)
    assert {frame.header.parent_id for frame in bob.got} == {ID2}
    assert len({str(frame.header.request_id)[:-12] for frame in bob.got}) == 1
    found = dict(bob.blocks())
    for partition in range(3):
        mine = [key for key in keys if partition_of(key, 3) == partition]
        assert [record.message.payload for record in found[partition]] == mine
        first = kept.log("a", partition).read(0).block
        assert bytes(found[partition].raw) == bytes(first.raw)


def test_the_partition_of_a_partitioned_topic_is_in_the_message_id(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    bob.consume("a", subscription="s")
    partition = ann.publish("a")["partition"]
    ((facts, _),) = bob.messages()
    assert (facts["partition"], facts["msg_id"]["topic_name"]) == (partition, f"/default/a-part-{partition}")


def test_a_subscribe_without_an_id_is_served_all_the_same(kept: World) -> None:
    fill(kept, 1)
    bob = kept.connect()
    bob.post('subscribe:a:1.0.0\n{"subscription":"s","from":"earliest"}')
    (frame,) = bob.got
    assert frame.header.parent_id is None
    assert bob.payloads() == [b"0"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscription": ""}, "subscription"),
        ({"subscription": 7}, "subscription"),
        ({"subscription": "-x"}, "subscription"),
        ({"subscription": "reader~1"}, "subscription"),
        ({"subscription": "x" * 129}, "subscription"),
        ({"subscription": "s", "speed": 1}, "'speed'"),
        ({"subscription": "s", "type": "both"}, "type"),
        ({"subscription": "s", "type": None}, "type"),
        ({"subscription": "s", "from": 1.5}, "from"),
        ({"subscription": "s", "from": -1}, "offset"),
        ({"subscription": "s", "from": "yesterday"}, "from"),
        ({"subscription": "s", "from": True}, "from"),
        ({"subscription": "s", "window": 5}, "window"),
        ({"subscription": "s", "window": {"messages": 0}}, "window.messages"),
        ({"subscription": "s", "window": {"messages": 100_001}}, "window.messages"),
        ({"subscription": "s", "window": {"messages": "5"}}, "window.messages"),
        ({"subscription": "s", "window": {"bytes": 0}}, "bytes"),
        ({"subscription": "s", "window": {"kilos": 1}}, "'window.kilos'"),
        ({"subscription": "s", "format": "xml"}, "format"),
        ({"subscription": "s", "format": 1}, "format"),
        ({"subscription": "s", "filter": []}, "filter"),
        ({"subscription": "s", "filter": {"type": 5}}, "type"),
        ({"subscription": "s", "filter": {"type": [5]}}, "type"),
        ({"subscription": "s", "filter": {"type": [""]}}, "types"),
        ({"subscription": "s", "filter": {"key": ["x" * 256]}}, "keys"),
        ({"subscription": "s", "filter": {"key": ["x"] * 17}}, "keys"),
        ({"subscription": "s", "filter": {"color": "red"}}, "'color'"),
        ({"subscription": "s", "consumer": ""}, "consumer"),
        ({"subscription": "s", "consumer": "x" * 129}, "consumer"),
        ({"subscription": "s", "ack_timeout_ms": 0}, "ack_timeout_ms"),
        ({"subscription": "s", "ack_timeout_ms": 86_400_001}, "ack_timeout_ms"),
        ({"subscription": "s", "ack_timeout_ms": "30s"}, "ack_timeout_ms"),
        ({"subscription": "s", "backoff_ms": 60_001}, "backoff_ms"),
        ({"subscription": "s", "backoff_ms": -1}, "backoff_ms"),
        ({"subscription": "s", "backoff_ms_max": True}, "backoff_ms_max"),
        ({"subscription": "s", "redeliveries": 1001}, "redeliveries"),
        ({"subscription": "s", "redeliveries": None}, "redeliveries"),
        ({"subscription": "s", "exhausted": "explode"}, "exhausted"),
        ({"subscription": "s", "action": "publish"}, "'action'"),
        ({"from": "nowhere"}, "from"),
        ({"format": "records", "filter": 1}, "filter"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name_and_nothing_comes_of_it(
    kept: World, options: dict[str, Any], words: str
) -> None:
    bob = kept.connect()
    answer = bob.call("subscribe", "a", options)
    assert words in refused(answer, "INVALID_REQUEST")
    assert kept.data.catalog.list_topics() == ()
    assert bob.consume("a", subscription="s")["created"] is True


def test_a_durable_subscription_is_of_one_topic(kept: World) -> None:
    bob = kept.connect()
    for pattern in ("a.+", "#", "/shop/#"):
        assert "not of a pattern" in refused(bob.consume(pattern, subscription="s"), "INVALID_REQUEST")
    assert kept.data.catalog.list_topics() == ()


def test_the_broker_has_no_durable_subscriptions_to_its_own_topics(kept: World) -> None:
    assert "error" in kept.connect().consume("system.log", subscription="s")


def test_an_offset_that_is_not_there_is_refused_and_no_subscription_is_made(kept: World) -> None:
    fill(kept, 3)
    bob = kept.connect()
    assert "[0, 3)" in refused(bob.consume("a", subscription="s", since=4), "OFFSET_OUT_OF_RANGE")
    assert kept.data.catalog.list_subscriptions() == ()
    assert bob.consume("a", subscription="s", since=3)["created"] is True


def test_one_offset_is_no_place_in_several_partitions(kept: World) -> None:
    fill(kept, 3, partitions=2)
    bob = kept.connect()
    assert "2 partitions" in refused(bob.consume("a", subscription="s", since=0), "INVALID_REQUEST")
    assert kept.data.catalog.list_subscriptions() == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"type": "shared"},
        {"ack_timeout_ms": 1},
        {"backoff_ms": 2},
        {"backoff_ms_max": 3_000},
        {"redeliveries": 1},
        {"exhausted": "drop"},
        {"filter": {"type": ["x"]}},
        {"filter": {"key": ["x"]}},
    ],
)
def test_whoever_joins_a_subscription_does_not_change_it(kept: World, changed: dict[str, Any]) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.consume("a", subscription="s", type="failover", redeliveries=2, exhausted="block")
    answer = bob.consume("a", subscription="s", **changed)
    assert next(iter(changed)) in refused(answer, "INVALID_REQUEST")
    assert len(describe(ann)["consumers"]) == 1
    joined = bob.consume("a", subscription="s", type="failover", redeliveries=2)
    assert (joined["created"], joined["active"]) == (False, False)


def test_two_who_create_one_subscription_at_the_same_time_both_have_it(kept: World) -> None:
    ann, bob, cat = kept.connect(), kept.connect(), kept.connect()
    kept.hold()
    for peer, kind in ((ann, "shared"), (bob, "shared"), (cat, "failover")):
        peer.post(f'subscribe:a:1.0.0:{ID}\n{{"subscription":"s","type":"{kind}"}}')
    kept.release()
    assert [ann.answer()["created"], bob.answer()["created"]] == [True, False]
    assert "type" in refused(cat.answer(), "INVALID_REQUEST")


def test_the_topic_says_what_its_subscriptions_do_unless_they_say_otherwise(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "redeliveries": 3, "exhausted": "drop"})
    bob.consume("a", subscription="s")
    bob.consume("a", subscription="t", redeliveries=0, exhausted="block")
    assert [(describe(ann, "a", name)["options"][key]) for name in "st" for key in ("redeliveries", "exhausted")] == [
        3,
        "drop",
        0,
        "block",
    ]


def test_a_connection_consumes_a_subscription_once(kept: World) -> None:
    bob = kept.connect()
    bob.consume("a", subscription="s", type="shared")
    assert "already" in refused(bob.consume("a", subscription="s", consumer="other"), "INVALID_REQUEST")
    assert len(describe(bob)["consumers"]) == 1


def test_the_windows_of_a_connection_are_what_may_wait_for_it(keeping: Keeping) -> None:
    world = keeping(output_bytes_max=1 << 20, payload_bytes_max=1 << 18)
    bob = world.connect()
    sizes = [bob.consume("a", subscription=f"s{n}", window={"bytes": 300_000}) for n in range(3)]
    assert [each.get("window", {}).get("bytes") for each in sizes] == [300_000, (1 << 19) - 300_000, None]
    refused(sizes[2], "QUOTA_EXCEEDED")
    bob.call("unsubscribe", "a", {"subscription": "s0"})
    assert bob.consume("a", subscription="s2", window={"bytes": 300_000})["window"]["bytes"] == 300_000


def test_a_client_that_left_before_its_subscription_was_made_consumes_nothing(kept: World) -> None:
    fill(kept, 1)
    bob = kept.connect()
    kept.hold()
    bob.post(f'subscribe:a:1.0.0:{ID}\n{{"subscription":"s","from":"earliest"}}')
    bob.leave()
    kept.release()
    cat = kept.connect()
    assert describe(cat)["consumers"] == []
    assert cat.consume("a", subscription="s")["created"] is False
    assert cat.payloads() == [b"0"]


def test_a_topic_that_is_deleted_while_its_subscription_is_made_has_none(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.ask("system.topic.create", {"topic": "a"})
    kept.hold()
    bob.post(f'subscribe:a:1.0.0:{ID}\n{{"subscription":"s"}}')
    bob.post(f'subscribe:a:1.0.0:{ID2}\n{{"from":"earliest"}}')
    ann.post(f'request:system.topic.delete:1.0.0:{ID}\n{{"topic":"a"}}')
    kept.release()
    assert ann.answer() == {"status": "success"}
    assert "deleted" in refused(bob.answer(), "TOPIC_NOT_SUPPORTED")
    assert "deleted" in refused(bob.answer(ID2), "TOPIC_NOT_SUPPORTED")


# the four types, over connections


def test_a_second_consumer_of_an_exclusive_subscription_is_refused(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    ann.consume("a", subscription="s", consumer="ann")
    assert "'ann'" in refused(bob.consume("a", subscription="s", consumer="bob"), "NOT_OWNER")
    ann.leave()
    assert bob.consume("a", subscription="s", consumer="bob")["created"] is False


def test_whoever_comes_under_the_same_name_takes_over_and_may_be_taken_over_again(kept: World) -> None:
    fill(kept, 1)
    ann, bob = kept.connect(), kept.connect()
    ann.consume("a", subscription="s", since="earliest", consumer="me", request_id=ID3)
    assert ann.offsets() == [0]
    bob.consume("a", subscription="s", consumer="me")
    assert bob.offsets() == [0]
    (notice,) = ann.take()
    head, _, body = notice.partition("\n")
    assert head == "publish:system.subscription.ended:1.0.0"
    told = json.loads(body)
    assert (told["topic"], told["subscription"], told["subscribeId"]) == ("a", "s", ID3)
    assert "another connection" in told["reason"]
    assert "does not consume" in refused(ack(ann, offsets=[0]), "INVALID_REQUEST")
    assert ann.consume("a", subscription="s", consumer="me")["active"] is True
    assert ann.offsets() == [0]
    assert len(bob.take()) == 1


def test_when_the_active_one_goes_the_next_in_line_is_told_and_served(kept: World) -> None:
    fill(kept, 2)
    ann, bob = kept.connect(), kept.connect()
    assert ann.consume("a", subscription="s", type="failover", since="earliest", window={"messages": 1})["active"]
    assert not bob.consume("a", subscription="s", type="failover", request_id=ID3)["active"]
    ack(ann, offsets=[0])
    assert (ann.offsets(), bob.offsets()) == ([0, 1], [])
    ann.leave()
    assert bob.offsets() == [1]
    (notice,) = bob.take()
    head, _, body = notice.partition("\n")
    assert head == "publish:system.subscription.active:1.0.0"
    assert json.loads(body) == {"topic": "a", "subscription": "s", "subscribeId": ID3, "active": True}


def test_shared_messages_are_at_one_consumer_at_a_time_and_go_on_when_it_leaves(kept: World) -> None:
    ann, bob, cat = kept.connect(), kept.connect(), kept.connect()
    for peer in (ann, bob):
        peer.consume("a", subscription="s", type="shared", window={"messages": 5})
    cat.append("a", *[b"x"] * 10)
    hers, his = ann.offsets(), bob.offsets()
    assert sorted(hers + his) == list(range(10))
    assert len(hers) == len(his) == 5
    ack(bob, offsets=his)
    ann.leave()
    assert sorted(bob.offsets()) == sorted(hers)


def test_one_key_is_at_one_consumer_in_order(kept: World) -> None:
    ann, bob, cat = kept.connect(), kept.connect(), kept.connect()
    for peer in (ann, bob):
        peer.consume("a", subscription="s", type="key_shared", window={"messages": 3})
    keys = [b"k%d" % (n % 6) for n in range(60)]
    cat.append("a", *(Message(payload=b"%d" % n, key=key) for n, key in enumerate(keys)))
    seen: dict[str, list[int]] = {}
    owners: dict[str, set[str]] = {}
    moved = True
    while moved:
        moved = False
        for peer in (ann, bob):
            for facts, payload in peer.messages():
                moved = True
                seen.setdefault(facts["key"], []).append(int(payload))
                owners.setdefault(facts["key"], set()).add(peer.id)
                ack(peer, offsets=[facts["msg_id"]["topic_offset"]])
    assert sum(map(len, seen.values())) == 60
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert all(len(each) == 1 for each in owners.values())


def test_a_subscriber_sees_a_message_only_when_it_is_stored(kept: World) -> None:
    ann = fill(kept, 1)
    bob = kept.connect()
    bob.consume("a", subscription="s")
    kept.hold()
    ann.post(f"publish:a:1.0.0:{ID}\nhi")
    assert bob.payloads() == []
    kept.do()
    kept.do_works()
    assert bob.payloads() == [b"hi"]


def test_filters_leave_out_what_nobody_wants_and_settle_it(kept: World) -> None:
    ann, bob, cat = kept.connect(), kept.connect(), kept.connect()
    bob.consume("a", subscription="s", filter={"type": ["order.*"], "key": ["eu-*", "us-1"]})
    cat.consume("a", subscription="t", filter={"key": "eu-*"}, format="records")
    kinds = ["order.made", "order.gone", "bill", "order.x", "order.y"]
    keys = [b"eu-1", b"us-2", b"eu-2", b"us-1", None]
    rows = zip(range(5), kinds, keys, strict=True)
    ann.append("a", *(Message(payload=b"%d" % n, type=kind, key=key) for n, kind, key in rows))
    assert bob.payloads() == [b"0", b"3"]
    assert [record.message.payload for record in cat.records()] == [b"0", b"2"]
    ack(bob, offsets=[0, 3])
    assert describe(ann)["lag"] == 0
    assert cursor_floor(kept, "s") == 5


def cursor_floor(world: World, name: str) -> int:
    found = next(each for each in world.data.catalog.list_subscriptions() if each.name == name)
    return int(world.data.catalog.load_cursors(found.subscription_uid)[0].floor)


# acks


def test_single_ones_ranges_and_all_up_to_one_are_acknowledged(kept: World) -> None:
    fill(kept, 20)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    assert ack(bob, offsets=[3, 5]) == {"acked": 2, "already": 0, "ignored": 0}
    assert cursor(kept) == (0, [(3, 4), (5, 6)], {})
    assert ack(bob, ranges=[[2, 7], [10, 12]]) == {"acked": 5, "already": 2, "ignored": 0}
    assert cursor(kept) == (0, [(2, 7), (10, 12)], {})
    assert ack(bob, cumulative=8)["acked"] == 4
    assert cursor(kept) == (9, [(10, 12)], {})
    assert ack(bob, offsets=[9], ranges=[[12, 100]])["acked"] == 9
    assert cursor(kept) == (20, [], {})
    assert describe(bob)["state"] == ["caught up"]


def test_what_is_not_in_flight_here_is_ignored_and_said(kept: World) -> None:
    fill(kept, 4)
    bob, cat = kept.connect(), kept.connect()
    for peer in (bob, cat):
        peer.consume("a", subscription="s", since="earliest", type="shared", window={"messages": 1})
    (his,), (hers,) = bob.offsets(), cat.offsets()
    assert ack(bob, offsets=[hers, 3, 99]) == {"acked": 0, "already": 0, "ignored": 3}
    assert ack(bob, offsets=[his]) == {"acked": 1, "already": 0, "ignored": 0}
    assert ack(bob, offsets=[his])["already"] == 1


def test_cumulative_acks_are_for_those_who_are_alone(kept: World) -> None:
    fill(kept, 2)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", type="shared")
    assert "cumulative" in refused(ack(bob, cumulative=1), "INVALID_REQUEST")
    assert cursor(kept) == (0, [], {})


def test_what_a_cumulative_ack_speaks_of_and_is_not_in_flight_here_is_said(kept: World) -> None:
    fill(kept, 6)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", ack_timeout_ms=1_000, window={"messages": 4})
    assert bob.offsets() == [0, 1, 2, 3]
    assert ack(bob, offsets=[1])["acked"] == 1
    kept.after(1_001)
    assert ack(bob, cumulative=3) == {"acked": 0, "already": 1, "ignored": 3}
    assert cursor(kept)[:2] == (0, [(1, 2)])
    assert ack(bob, cumulative=99) == {"acked": 1, "already": 1, "ignored": 4}  # 5 has been delivered meanwhile


def test_a_cumulative_ack_of_one_who_waits_in_line_settles_nothing_and_says_so(kept: World) -> None:
    fill(kept, 3)
    bob, cat = kept.connect(), kept.connect()
    for peer in (bob, cat):
        peer.consume("a", subscription="s", since="earliest", type="failover")
    assert ack(bob, offsets=[0])["acked"] == 1
    assert ack(cat, cumulative=2) == {"acked": 0, "already": 1, "ignored": 2}
    assert ack(bob, cumulative=2) == {"acked": 2, "already": 1, "ignored": 0}


def test_extending_begins_the_time_anew(kept: World) -> None:
    fill(kept, 2)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", ack_timeout_ms=1_000, backoff_ms=0)
    assert bob.offsets() == [0, 1]
    kept.after(800)
    assert ack(bob, extend=[[1, 2]]) == {"extended": 1, "ignored": 0}
    kept.after(800)
    assert bob.offsets() == [0]
    assert ack(bob, extend=[[7, 9]]) == {"extended": 0, "ignored": 2}


def test_what_is_not_acknowledged_in_time_comes_again_with_its_number(kept: World) -> None:
    fill(kept, 1)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", ack_timeout_ms=1_000, backoff_ms=100)
    attempts = [facts["delivery_attempt"] for facts, _ in bob.messages()]
    for _ in range(3):
        kept.after(2_000)
        attempts += [facts["delivery_attempt"] for facts, _ in bob.messages()]
    assert attempts == [1, 2, 3, 4, 5]
    assert cursor(kept)[2] == {0: 4}


def test_a_nack_says_when_it_comes_again(kept: World) -> None:
    fill(kept, 2)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    refused_ = {"offsets": [0], "delay_ms": 5_000, "reason": "busy"}
    assert bob.call("nack", "a", S | refused_) == {"nacked": 1, "ignored": 0}
    assert cursor(kept)[2] == {0: 1}
    kept.after(4_999)
    assert bob.offsets() == []
    kept.after(1)
    ((facts, _),) = bob.messages()
    assert (facts["msg_id"]["topic_offset"], facts["delivery_attempt"]) == (0, 2)
    assert bob.call("nack", "a", S | {"ranges": [[0, 2]], "delay_ms": 0}) == {"nacked": 2, "ignored": 0}
    kept.after(0)
    assert bob.offsets() == [0, 1]


def test_an_ack_is_answered_only_when_the_cursor_is_saved(kept: World) -> None:
    fill(kept, 5)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    kept.hold()
    bob.post(f'ack:a:1.0.0:{ID}\n{{"subscription":"s","offsets":[0]}}')
    assert len(kept.works) == 1
    for number, offset in ((2, 1), (3, 2)):
        bob.post(f'ack:a:1.0.0:{own_id(number)}\n{{"subscription":"s","offsets":[{offset}]}}')
    assert (len(kept.works), bob.got) == (1, [])
    kept.do()
    assert bob.answer()["acked"] == 1
    assert cursor(kept)[0] == 1
    assert (bob.answer(ID2), len(kept.works)) == (None, 1), "those that came meanwhile are saved together"
    kept.do()
    assert (bob.answer(ID2)["acked"], bob.answer(ID3)["acked"], cursor(kept)[0]) == (1, 1, 3)
    assert kept.open == []


def test_an_ack_without_an_id_is_saved_soon(kept: World) -> None:
    fill(kept, 5)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    bob.post('ack:a:1.0.0\n{"subscription":"s","ranges":[[0,5]]}')
    assert cursor(kept)[0] == 0
    kept.after(100)
    assert cursor(kept)[0] == 5
    assert bob.got == []


def test_a_cursor_that_could_not_be_saved_is_an_error_and_saved_later(kept: World) -> None:
    fill(kept, 3)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    kept.hold()
    bob.post(f'ack:a:1.0.0:{ID}\n{{"subscription":"s","offsets":[0]}}')
    bob.post(f'ack:a:1.0.0:{ID2}\n{{"subscription":"s","offsets":[1]}}')
    kept.do(error=DiskFull("no room"))
    refused(bob.answer(), "DISK_FULL")
    assert (bob.answer(ID2), cursor(kept)[0]) == (None, 0)
    kept.release()
    kept.after(1_000)
    assert bob.answer(ID2)["acked"] == 1
    assert cursor(kept)[0] == 2


def test_a_slow_save_is_waited_for_without_asking_all_the_time(kept: World) -> None:
    fill(kept, 3)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    kept.hold()
    bob.post(f'ack:a:1.0.0:{ID}\n{{"subscription":"s","offsets":[0]}}')
    bob.post('ack:a:1.0.0\n{"subscription":"s","offsets":[1]}')
    kept.after(500)
    assert kept.broker.next_due_ms() > kept.now_ms
    assert len(kept.works) == 1
    kept.release()
    kept.after(100)
    assert cursor(kept)[0] == 2


@pytest.mark.parametrize("action", ["ack", "nack", "seek"])
@pytest.mark.parametrize(
    ("payload", "code", "words"),
    [
        (b"{nonsense", "MALFORMED_MESSAGE", "JSON"),
        (b"[]", "INVALID_REQUEST", "JSON object"),
        (b"", "INVALID_REQUEST", "subscription"),
        (b'{"subscription":5}', "INVALID_REQUEST", "subscription"),
        (b'{"subscription":"nope","offsets":[0],"position":0}', "INVALID_REQUEST", "option"),
        (b'{"subscription":"s","tpoic":1}', "INVALID_REQUEST", "'tpoic'"),
    ],
)
def test_bad_words_about_a_subscription_are_refused_and_change_nothing(
    kept: World, action: str, payload: bytes, code: str, words: str
) -> None:
    fill(kept, 3)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    before = describe(bob)
    assert words in refused(bob.call(action, "a", payload), code)
    assert describe(bob) == before


@pytest.mark.parametrize(
    ("action", "fields", "words"),
    [
        ("ack", {}, "offsets"),
        ("ack", {"offsets": 5}, "offsets"),
        ("ack", {"offsets": ["0"]}, "offset"),
        ("ack", {"offsets": [-1]}, "offset"),
        ("ack", {"offsets": [True]}, "offset"),
        ("ack", {"offsets": [1 << 63]}, "offset"),
        ("ack", {"ranges": [5]}, "range"),
        ("ack", {"ranges": [[1, 2, 3]]}, "range"),
        ("ack", {"ranges": [[2, 1]]}, "range"),
        ("ack", {"ranges": [[0.5, 1]]}, "offset"),
        ("ack", {"extend": 5}, "ranges"),
        ("ack", {"cumulative": "x"}, "cumulative"),
        ("ack", {"cumulative": -1}, "cumulative"),
        ("ack", {"cumulative": 0, "partition": 1}, "partition 1"),
        ("ack", {"offsets": [0], "extend": [[1, 2]]}, "offsets and extend"),
        ("ack", {"offsets": [0], "cumulative": 1}, "offsets and cumulative"),
        ("ack", {"ranges": [[0, 1]], "cumulative": 1}, "ranges and cumulative"),
        ("ack", {"cumulative": 0, "extend": [[1, 2]]}, "cumulative and extend"),
        ("ack", {"offsets": [0], "ranges": [[0, 1]], "cumulative": 0}, "offsets, ranges and cumulative"),
        ("ack", {"offsets": [0], "partition": 1}, "partition 1"),
        ("ack", {"offsets": [0], "partition": "0"}, "partition"),
        ("ack", {"offsets": [0], "partition": -1}, "partition"),
        ("nack", {}, "offsets"),
        ("nack", {"offsets": [0], "delay_ms": -1}, "delay_ms"),
        ("nack", {"offsets": [0], "delay_ms": 86_400_001}, "delay_ms"),
        ("nack", {"offsets": [0], "delay_ms": None}, "delay_ms"),
        ("nack", {"offsets": [0], "reason": 5}, "reason"),
        ("nack", {"offsets": [0], "reason": ""}, "reason"),
        ("nack", {"offsets": [0], "partition": 9}, "partition 9"),
        ("seek", {}, "position"),
        ("seek", {"position": None}, "position"),
        ("seek", {"position": "sometime"}, "position"),
        ("seek", {"position": -3}, "offset"),
        ("seek", {"position": 0, "partition": 1}, "partitions 0 to 0"),
        ("seek", {"position": 0, "partition": "x"}, "partition"),
    ],
)
def test_fields_that_cannot_be_are_refused_by_name_and_change_nothing(
    kept: World, action: str, fields: dict[str, Any], words: str
) -> None:
    fill(kept, 3)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    before = describe(bob)
    assert words in refused(bob.call(action, "a", S | fields), "INVALID_REQUEST")
    assert describe(bob) == before


@pytest.mark.parametrize("action", ["ack", "nack"])
def test_only_who_consumes_may_acknowledge(kept: World, action: str) -> None:
    fill(kept, 3)
    bob, cat = kept.connect(), kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    assert "does not consume" in refused(cat.call(action, "a", S | {"offsets": [0]}), "INVALID_REQUEST")
    assert "no subscription t; it has: s" in refused(
        bob.call(action, "a", {"subscription": "t", "offsets": [0]}), "INVALID_REQUEST"
    )
    assert "there is no topic" in refused(bob.call(action, "b", S | {"offsets": [0]}), "TOPIC_NOT_SUPPORTED").lower()
    assert describe(bob)["in_flight"] == 3


def test_an_error_does_not_repeat_at_length_what_was_said(kept: World) -> None:
    fill(kept, 1)
    bob = kept.connect()
    bob.consume("a", subscription="s")
    long = "x" * 100_000
    for action, fields in (
        ("subscribe", {"subscription": long}),
        ("subscribe", {"from": long}),
        ("subscribe", {"subscription": "s", "type": long}),
        ("ack", {"subscription": long, "offsets": [0]}),
        ("seek", {"subscription": "s", "position": long}),
        ("seek", {"subscription": long, "position": 0}),
        ("unsubscribe", {"subscription": "s", long: 1}),
    ):
        assert len(json.dumps(bob.call(action, "a", fields))) < 2_000, action


# leaving


def test_unsubscribing_gives_back_what_was_in_flight_and_keeps_the_subscription(kept: World) -> None:
    ann = fill(kept, 2)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    assert bob.offsets() == [0, 1]
    assert bob.call("unsubscribe", "a", S) == {"status": "success"}
    assert bob.call("unsubscribe", "a", S) == {"status": "failure"}
    ann.publish("a")
    assert bob.got == []
    assert describe(ann)["state"] == ["no consumer is connected"]
    assert bob.consume("a", subscription="s")["created"] is False
    assert bob.offsets() == [0, 1, 2]


def test_a_reader_has_its_own_place_which_nobody_keeps(kept: World) -> None:
    ann = fill(kept, 3)
    bob, cat = kept.connect(), kept.connect()
    first, second = bob.consume("a", since="earliest"), cat.consume("a", since=1)
    assert first["subscription"] != second["subscription"]
    assert (bob.offsets(), cat.offsets()) == ([0, 1, 2], [1, 2])
    assert ack(bob, subscription=first["subscription"], ranges=[[0, 3]])["acked"] == 3
    assert kept.data.catalog.list_subscriptions() == ()
    assert ann.ask("system.subscription.list")["subscriptions"] == []
    bob.leave()
    assert len(kept.topic("a").subscriptions) == 1
    cat.call("unsubscribe", "a", {"subscription": second["subscription"]})
    assert kept.topic("a").subscriptions == {}
    ann.publish("a")
    assert cat.got == []


def test_a_reader_and_a_subscription_are_never_taken_for_each_other(kept: World) -> None:
    fill(kept, 1)
    bob, cat = kept.connect(), kept.connect()
    cat.consume("a", subscription="reader-1", since="earliest")
    bob.consume("a", since="earliest")
    assert set(kept.topic("a").subscriptions) == {"reader-1", "reader~1"}
    assert cat.call("ack", "a", {"subscription": "reader-1", "offsets": [0]})["acked"] == 1
    bob.leave()
    assert set(kept.topic("a").subscriptions) == {"reader-1"}


@pytest.mark.parametrize("topic", ["pause", "resume", "delete"])
def test_nobody_pauses_or_deletes_a_reader(kept: World, topic: str) -> None:
    ann = fill(kept, 1)
    bob = kept.connect()
    name = bob.consume("a", since="earliest")["subscription"]
    answer = ann.ask(f"system.subscription.{topic}", {"topic": "a", "subscription": name})
    assert "reader" in refused(answer, "INVALID_REQUEST")
    bob.take_frames()
    assert ack(bob, subscription=name, offsets=[0])["acked"] == 1


# seek


def test_a_subscription_goes_where_it_is_told(kept: World) -> None:
    ann = kept.connect()
    ids, times = [], []
    for number in range(6):
        ids.append(ann.publish("a", b"%d" % number)["id"])
        times.append(kept.clock.now_ns() // 1_000_000)
        kept.after(1_000)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    ack(bob, ranges=[[0, 6]])
    bob.take_frames()
    places = {"earliest": 0, "latest": 6, 4: 4, "5": 5, ids[3]: 3, iso_time(times[2]): 2}
    for position, offset in places.items():
        answer = bob.call("seek", "a", S | {"position": position})
        assert answer == {"subscription": "s", "positions": {"0": offset}}
        assert bob.offsets() == list(range(offset, 6))
        assert cursor(kept) == (offset, [], {})
    assert "[0, 6)" in refused(bob.call("seek", "a", S | {"position": 7}), "OFFSET_OUT_OF_RANGE")


def test_one_partition_is_sought_and_the_others_stay(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    for _ in range(6):
        ann.publish("a")
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    for partition in (0, 1):
        ack(bob, partition=partition, ranges=[[0, 3]])
    answer = bob.call("seek", "a", S | {"position": 1, "partition": 1})
    assert answer["positions"] == {"1": 1}
    assert [(facts["partition"], facts["msg_id"]["topic_offset"]) for facts, _ in bob.messages()] == [(1, 1), (1, 2)]
    assert "2 partitions" in refused(bob.call("seek", "a", S | {"position": 1}), "INVALID_REQUEST")
    assert bob.call("seek", "a", S | {"position": "earliest"})["positions"] == {"0": 0, "1": 0}
    assert len(bob.messages()) == 6


def test_an_operator_seeks_without_consuming(kept: World) -> None:
    ann = fill(kept, 3)
    bob = kept.connect()
    bob.consume("a", subscription="s")
    asked = {"topic": "a", "subscription": "s", "position": "earliest"}
    assert ann.ask("system.subscription.seek", asked)["positions"] == {"0": 0}
    assert bob.offsets() == [0, 1, 2]


# pause, resume, skip, delete


def test_a_paused_subscription_delivers_nothing_until_it_is_resumed_also_after_a_restart(kept: World) -> None:
    ann = fill(kept, 1)
    bob = kept.connect()
    about = {"topic": "a", "subscription": "s"}
    bob.consume("a", subscription="s", since="earliest")
    assert ann.ask("system.subscription.pause", about) == {"status": "success"}
    ann.publish("a", b"new")
    assert bob.offsets() == [0]
    assert describe(ann)["state"] == ["paused: resume it"]
    assert ack(bob, offsets=[0])["acked"] == 1
    kept.restart(reopen=True)
    ann, bob = kept.connect(), kept.connect()
    bob.consume("a", subscription="s")
    assert (bob.offsets(), describe(ann)["paused"]) == ([], True)
    assert ann.ask("system.subscription.resume", about) == {"status": "success"}
    assert bob.offsets() == [1]


def test_a_deleted_subscription_tells_its_consumers_and_may_be_made_anew(kept: World) -> None:
    ann = fill(kept, 2)
    bob = kept.connect()
    about = {"topic": "a", "subscription": "s"}
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    ack(bob, offsets=[0])
    assert ann.ask("system.subscription.delete", about) == {"status": "success"}
    (notice,) = bob.take()
    assert "the subscription was deleted" in notice
    assert "no subscription s; it has: none" in refused(ack(bob, offsets=[1]), "INVALID_REQUEST")
    assert kept.data.catalog.list_subscriptions() == ()
    assert bob.consume("a", subscription="s", since="earliest")["created"] is True
    assert bob.offsets() == [0, 1]


def test_skipped_messages_count_as_done_wherever_they_are(kept: World) -> None:
    ann = fill(kept, 10)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", window={"messages": 3})
    assert bob.offsets() == [0, 1, 2]
    skip = {"topic": "a", "subscription": "s", "offsets": [1], "ranges": [[5, 7], [9, 10]]}
    assert ann.ask("system.subscription.skip", skip) == {"status": "success"}
    assert bob.offsets() == [3], "there is room for one more"
    assert ack(bob, offsets=[0, 1, 2, 3]) == {"acked": 3, "already": 1, "ignored": 0}
    assert bob.offsets() == [4, 7, 8]
    ack(bob, offsets=[4, 7, 8])
    assert cursor(kept) == (10, [], {})
    ann.publish("a")
    assert bob.offsets() == [10]


# stall reasons


def test_a_subscription_says_why_it_does_not_move(kept: World) -> None:
    ann = fill(kept, 4)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", window={"messages": 2}, redeliveries=0, exhausted="block")
    assert describe(ann)["state"] == ["moving"]
    kept.after(12_000)
    assert describe(ann)["state"] == [
        (
            f"window full: consumer '{bob.id}' at {bob.client.address} has as much in flight as it asked for,"
            " and has acknowledged nothing for 12 s"
        )
    ]
    bob.call("nack", "a", S | {"offsets": [0], "reason": "bad\nmessage"})
    (reason,) = describe(ann)["state"]
    assert reason.startswith("blocked on poison offset 0 of partition 0 since 2023-11-14T22:13:32.000Z")
    assert "(bad\nmessage)" in reason
    bob.take_frames()
    ann.ask("system.subscription.skip", {"topic": "a", "subscription": "s", "offsets": [0]})
    assert bob.offsets() == [2]
    ack(bob, offsets=[1, 2])
    assert describe(ann)["state"] == ["moving"]
    ack(bob, offsets=[3])
    assert describe(ann)["state"] == ["caught up"]
    bob.leave()
    assert describe(ann)["state"] == ["no consumer is connected"]


def test_one_who_waits_in_line_does_not_hide_that_the_active_consumer_is_full(kept: World) -> None:
    ann = fill(kept, 4)
    for name in ("active", "standby"):
        kept.connect().consume(
            "a", subscription="s", type="failover", since="earliest", consumer=name, window={"messages": 2}
        )
    kept.after(10_000)
    (reason,) = describe(ann)["state"]
    assert reason.startswith("window full: consumer 'active' ")


def test_a_consumer_that_is_busy_is_no_reason_and_its_pace_is_said(kept: World) -> None:
    ann = fill(kept, 30)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", window={"messages": 2})
    for offset in range(10):
        kept.after(2_000)
        ack(bob, offsets=[offset])
    assert describe(ann)["state"] == ["moving: 0.6 messages a second are acknowledged, and every window is full"]
    (consumer,) = describe(ann)["consumers"]
    assert (consumer["ack_rate"], consumer["address"]) == (0.6, bob.client.address)
    kept.after(11_000)
    (reason,) = describe(ann)["state"]
    assert reason.startswith("window full: ")
    assert reason.endswith("has acknowledged nothing for 11 s")


def test_a_burst_for_a_consumer_that_had_nothing_to_do_is_no_full_window(kept: World) -> None:
    ann = fill(kept, 1)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", window={"messages": 1})
    ack(bob, offsets=[0])
    kept.after(25_000)
    ann.publish("a")
    ann.publish("a")
    assert describe(ann)["state"] == ["moving"], "what is in flight came this very moment"


def test_a_filter_that_lets_nothing_through_says_so(kept: World) -> None:
    ann = fill(kept, 4)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", filter={"type": ["shared"]})
    unseen = "its filter (types shared) has let none of 4 messages through, and settled them all"
    assert describe(ann)["state"] == ["caught up", unseen]
    assert ann.ask("system.subscription.list")["subscriptions"][0]["state"] == ["caught up", unseen]
    ann.call("message", "a", b'{"type":"shared"}\nx')
    assert describe(ann)["state"] == ["moving"]


def test_messages_that_wait_for_the_consumer_that_has_their_key_are_said(kept: World) -> None:
    ann = kept.connect()
    for _ in range(4):
        ann.call("message", "a", b'{"key":"k"}\nx')
    peers = {name: kept.connect() for name in ("one", "two")}
    for name, peer in peers.items():
        peer.consume("a", subscription="s", type="key_shared", since="earliest", consumer=name, window={"messages": 1})
    (full,) = (name for name, peer in peers.items() if peer.offsets())
    assert describe(ann)["state"] == [
        (
            f"3 ready messages have keys of consumer '{full}' at {peers[full].client.address}, whose window is full,"
            " and where 0.0 messages a second are acknowledged"
        )
    ]


def test_what_failed_and_waits_for_its_next_delivery_is_said_beside_what_moves(kept: World) -> None:
    ann = fill(kept, 2)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", backoff_ms=30_000)
    bob.call("nack", "a", S | {"offsets": [0]})
    failed = "failed messages of partition 0 that wait to be delivered again: 1, the next at 2023-11-14T22:13:50.000Z"
    assert describe(ann)["state"] == ["moving", failed]
    ack(bob, offsets=[1])
    assert describe(ann)["state"] == [failed]


def test_lag_is_counted_in_messages_and_in_seconds(kept: World) -> None:
    ann = fill(kept, 2)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    kept.after(5_000)
    ann.publish("a")
    found = describe(ann)
    assert (found["lag"], found["lag_seconds"], found["in_flight"], found["delivered"]) == (3, 5.0, 3, 3)
    ack(bob, offsets=[0, 1])
    found = describe(ann)
    assert (found["lag"], found["lag_seconds"]) == (1, 0.0)
    (listed,) = ann.ask("system.subscription.list", {"topic": "a"})["subscriptions"]
    assert (listed["subscription"], listed["lag"], listed["consumers"]) == ("s", 1, 1)


# the disk


def test_a_log_that_cannot_be_read_is_tried_again_and_said(kept: World) -> None:
    ann = fill(kept, 3)
    bob = kept.connect()
    kept.hold()
    bob.post(f'subscribe:a:1.0.0:{ID}\n{{"subscription":"s","from":"earliest"}}')
    kept.do()
    kept.do(error=StorageFailed("the cable is out"))
    assert bob.answer()["created"] is True
    kept.release()
    assert (bob.offsets(), describe(ann)["state"]) == ([], ["in trouble: the cable is out"])
    kept.after(1_000)
    assert bob.offsets() == [0, 1, 2]
    ack(bob, ranges=[[0, 3]])
    assert describe(ann)["state"] == ["caught up"]


def test_unread_messages_that_retention_took_are_stepped_over_and_counted(keeping: Keeping) -> None:
    world = keeping(storage=SMALL, heartbeat_deregister_ms=1_000_000)
    ann, bob = world.connect(), world.connect()
    ann.ask("system.topic.create", {"topic": "a", "retention": {"age_ms": 1_000}})
    bob.consume("a", subscription="s", since="earliest", window={"messages": 1}, ack_timeout_ms=3_600_000)
    for number in range(20):
        ann.publish("a", b"%d" % number + bytes(500))
    assert bob.offsets() == [0]
    world.after(120_000)
    first = int(world.log("a").first_offset)
    assert first > 1
    found = describe(ann)
    assert (found["partitions"][0]["floor"], found["lost"]) == (first, first)
    assert bob.offsets() == [first]
    assert cursor(world)[0] == first


def test_a_subscription_that_was_away_while_retention_went_on_begins_with_what_is_left(keeping: Keeping) -> None:
    world = keeping(storage=SMALL)
    ann = world.connect()
    ann.consume("a", subscription="s", since="earliest", window={"messages": 1})
    for number in range(20):
        ann.publish("a", b"%d" % number + bytes(500))
    world.data.truncate_before(world.topic("a").name, 12)
    world.restart(reopen=True)
    bob = world.connect()
    bob.consume("a", subscription="s", window={"messages": 1})
    assert bob.offsets() == [12]
    assert describe(bob)["lost"] == 12


# restarts


def test_what_was_settled_is_known_after_a_restart_and_the_rest_comes_again(kept: World) -> None:
    fill(kept, 8)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", type="shared", filter={"type": "*"})
    bob.take_frames()
    ack(bob, offsets=[0, 1, 4, 5])
    bob.call("nack", "a", S | {"offsets": [2], "delay_ms": 60_000, "reason": "later"})
    kept.restart(reopen=True)
    assert cursor(kept) == (2, [(4, 6)], {2: 1})
    bob = kept.connect()
    answer = bob.consume("a", subscription="s")
    assert (answer["type"], answer["created"]) == ("shared", False)
    found = [(facts["msg_id"]["topic_offset"], facts["delivery_attempt"]) for facts, _ in bob.messages()]
    assert found == [(2, 2), (3, 1), (6, 1), (7, 1)]


def test_what_was_acknowledged_and_not_saved_comes_again(kept: World) -> None:
    fill(kept, 3)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    kept.hold()
    bob.post(f'ack:a:1.0.0:{ID}\n{{"subscription":"s","offsets":[0]}}')
    kept.restart()
    bob = kept.connect()
    bob.consume("a", subscription="s")
    assert bob.offsets() == [0, 1, 2]


def test_a_broker_that_stops_in_order_saves_what_nobody_asked_to_have_confirmed(kept: World) -> None:
    fill(kept, 3)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest")
    bob.take_frames()
    bob.post('ack:a:1.0.0\n{"subscription":"s","offsets":[0,1]}')
    kept.restart(clean=True, reopen=True)
    assert cursor(kept)[0] == 2


def test_poison_blocks_after_a_restart_as_it_did_before(kept: World) -> None:
    fill(kept, 2)
    bob = kept.connect()
    bob.consume("a", subscription="s", since="earliest", redeliveries=0, exhausted="block", window={"messages": 1})
    bob.call("nack", "a", S | {"offsets": [0]})
    kept.restart(reopen=True)
    ann, bob = kept.connect(), kept.connect()
    bob.consume("a", subscription="s", window={"messages": 1})
    assert bob.messages() == []
    assert "poison offset 0" in describe(ann)["state"][0]
    ann.ask("system.subscription.resume", {"topic": "a", "subscription": "s"})
    ((facts, _),) = bob.messages()
    assert facts["delivery_attempt"] == 1


def test_a_slow_consumer_is_given_its_window_and_no_more(kept: World) -> None:
    ann = kept.connect()
    slow, quick = kept.connect(), kept.connect()
    slow.consume("a", subscription="slow", window={"messages": 10, "bytes": 65_536})
    quick.consume("a", subscription="quick", format="records")
    for _ in range(50):
        ann.append("a", *[bytes(1000)] * 20)
        for record in quick.records():
            quick.call("ack", "a", {"subscription": "quick", "offsets": [record.offset]}, request_id=ID2)
    assert len(slow.messages()) == 10
    assert describe(ann, name="quick")["lag"] == 0
    assert describe(ann, name="slow")["lag"] == 1_000


def test_a_message_larger_than_the_window_comes_alone(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    bob.consume("a", subscription="s", window={"bytes": 10})
    ann.append("a", bytes(500), bytes(600))
    assert bob.offsets() == [0]
    ack(bob, offsets=[0])
    assert bob.offsets() == [1]
