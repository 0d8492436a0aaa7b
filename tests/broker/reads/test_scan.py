"""Scans: any way of paging shows the same, filters match as a plain one does, lost messages are reported."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.conftest import Keeping
from tests.broker.kit import Peer, World
from tests.broker.topics.test_publisher import refused

from penstock.broker.admin.messages import PAGE_MESSAGES_MAX
from penstock.broker.reads import scan
from penstock.broker.reads.message_filter import MessageFilter, parse_filter
from penstock.broker.reads.scan import SCANS_MAX, Scan, ScanHit, TakeResult, parse_resume_token, resume_token
from penstock.core.clock import iso_time
from penstock.core.errors import InvalidRequest
from penstock.core.ids import format_id
from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.record.block import Draft, parse_block
from penstock.record.message import Message, Record

TYPES = ("order.made", "order.paid", "stock", "")
KEYS = (None, b"ann", b"bob", b"\xff")


def messages(count: int) -> list[Message]:
    return [
        Message(
            payload=(b"%d " % number) + bytes([number % 256]) * (number % 7),
            type=TYPES[number % 4],
            key=KEYS[number % 3 if number % 5 else 3],
            attributes={"region": "eu" if number % 2 else "us"} if number % 3 else {},
        )
        for number in range(count)
    ]


def browse(peer: Peer, topic: str = "a", **fields: Any) -> Any:
    if "since" in fields:
        fields["from"] = fields.pop("since")
    return peer.ask("system.message.browse", {"topic": topic} | fields)


def pages(peer: Peer, **fields: Any) -> Iterator[Any]:
    """Yield the pages one after the other, up to the end."""
    answer = browse(peer, **fields)
    yield answer
    while not answer["end"]:
        answer = browse(peer, **fields | {"resume": answer["resume"]})
        yield answer


def places(answers: Any) -> list[tuple[int, int]]:
    return [(each["partition"], each["offset"]) for answer in answers for each in answer["messages"]]


def plain(world: World, topic: str = "a") -> list[tuple[int, Record]]:
    """Return all messages of the logs, in the order of their ids."""
    found = [(number, record) for number, log in enumerate(world.topic(topic).logs) for record in log.records()]
    return sorted(found, key=lambda each: each[1].id)


# contents


def test_messages_come_in_the_order_in_which_they_were_stored_over_all_partitions(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 3})
    for message in messages(20):
        ann.append("a", message)
    answer = browse(ann)
    assert places([answer]) == [(number, int(record.offset)) for number, record in plain(kept)]
    assert (answer["scanned"], answer["matched"], answer["end"]) == (20, 20, True)


def test_a_message_is_shown_with_everything_it_has(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", Message(payload="grün".encode(), type="t", key=b"k", attributes={"x": "1"}, producer_name="me"))
    (shown,) = browse(ann)["messages"]
    (record,) = kept.log("a").records()
    assert shown == {
        "partition": 0,
        "offset": 0,
        "id": shown["id"],
        "publish_time": record.publish_time_ms,
        "type": "t",
        "producer_name": "me",
        "producer_id": 0,
        "request_id": 0,
        "payload_bytes": 5,
        "key": "k",
        "attributes": {"x": "1"},
        "payload": "grün",
    }


def test_what_is_no_text_is_base64_and_says_so(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", Message(payload=b"\xff\x00", key=b"\xfe"))
    (shown,) = browse(ann)["messages"]
    assert (shown["payload_base64"], shown["key_base64"]) == (b64encode(b"\xff\x00").decode(), "/g==")
    assert "payload" not in shown
    assert "key" not in shown


def test_a_preview_ends_between_two_characters_and_says_that_it_was_cut(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", Message(payload="ü€x𝄞".encode()))
    for room in range(10):
        (shown,) = browse(ann, preview_bytes=room)["messages"]
        assert "ü€x𝄞".startswith(shown["payload"])
        assert len(shown["payload"].encode()) in range(max(0, room - 3), room + 1)
        assert (shown["payload_cut"], shown["payload_bytes"]) == (True, 10)


def test_an_answer_fits_into_a_frame_whatever_the_messages_are(keeping: Keeping) -> None:
    world = keeping(payload_bytes_max=4096, block_bytes_max=1 << 20)
    ann = world.connect()
    big = Message(payload=b"\x01" * 4000, attributes={f"a{number}": "\x02" * 900 for number in range(200)})
    for _ in range(3):
        ann.append("a", big)
    answers = list(pages(ann, preview_bytes=65536))
    assert places(answers) == [(0, 0), (0, 1), (0, 2)]
    assert all(len(json.dumps(each)) <= 4096 for each in answers)
    assert all(each["messages"][0]["payload_cut"] for each in answers)


# paging


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_way_of_paging_shows_what_one_pass_of_a_plain_reader_shows(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vary the pages, the steps, the chunks, and the bytes held at once."""
    for name, values in (("_STEP_MESSAGES", (1, 3, 4096)), ("_CHUNK_BYTES_MIN", (1, 4096)), ("_CHUNK_BYTES", (1, 300))):
        monkeypatch.setattr(scan, name, data.draw(st.sampled_from(values), name))
    monkeypatch.setattr(scan, "_HELD_BYTES_MAX", data.draw(st.sampled_from((0, 500, 8 << 20)), "held"))
    world = World(root=tmp_path_factory.mktemp("data"))
    try:
        ann = world.connect()
        ann.ask("system.topic.create", {"topic": "a", "partitions": data.draw(st.integers(1, 3), "partitions")})
        for message in messages(data.draw(st.integers(0, 40), "count")):
            ann.append("a", message)
        fields = data.draw(st.fixed_dictionaries({}, optional=FILTERS), "filter")
        wanted = [(number, int(record.offset)) for number, record in plain(world) if holds(record, fields)]
        bounds = {"limit": data.draw(st.integers(1, 7), "limit"), "scan": data.draw(st.integers(1, 9), "scan")}
        found = list(pages(ann, **fields, **bounds))
        assert places(found) == wanted
        assert sum(each["scanned"] for each in found) == len(plain(world))
        assert sum(each["matched"] for each in found) == len(wanted)
        assert all(each["scanned"] <= bounds["scan"] and len(each["messages"]) <= bounds["limit"] for each in found)
    finally:
        world.close()


FILTERS = {
    "type": st.sampled_from(["order.*", "stock", "*", ["stock", "order.paid"]]),
    "type_regex": st.sampled_from(["^order", "a", "(made|paid)$"]),
    "key": st.sampled_from(["ann", "?ob", ["ann", "bob"]]),
    "attributes": st.sampled_from([{"region": "eu"}, {}]),
    "contains": st.sampled_from(["1", "2 "]),
}


def holds(record: Record, fields: dict[str, Any]) -> bool:
    """Tell whether a message matches, without blocks and columns."""
    message = record.message
    key = None if message.key is None else message.key.decode(errors="replace")
    types, keys = ([each] if isinstance(each, str) else each for each in (fields.get("type"), fields.get("key")))
    return (
        (types is None or any(fnmatchcase(message.type, each) for each in types))
        and (keys is None or (key is not None and any(fnmatchcase(key, each) for each in keys)))
        and re.search(fields.get("type_regex", ""), message.type) is not None
        and all(message.attributes.get(name) == value for name, value in fields.get("attributes", {}).items())
        and fields.get("contains", "").encode() in message.payload
    )


def test_paging_while_others_append_shows_each_message_once(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    seen: list[tuple[int, int]] = []
    resume: dict[str, str] = {}
    added = 0
    for _ in range(40):
        if added < 30:
            ann.append("a", b"%d" % added)
            added += 1
        answer = browse(ann, limit=1, **resume)
        seen += places([answer])
        resume = {"resume": answer["resume"]}
    assert sorted(seen) == sorted((number, int(record.offset)) for number, record in plain(kept))
    assert len(seen) == 30
    assert answer["end"]
    ann.append("a", b"later")
    assert [each["payload"] for each in browse(ann, **resume)["messages"]] == ["later"]


def test_what_retention_took_between_two_pages_is_told(keeping: Keeping) -> None:
    world = keeping(storage=Limits(disk_reserve_bytes=1))
    ann = world.connect()
    for number in range(10):
        ann.append("a", b"%d" % number)
    first = browse(ann, limit=2)
    world.data.truncate_before(TopicName.parse("a"), 6)
    second = browse(ann, resume=first["resume"])
    assert second["lost"] == [{"partition": 0, "start": 2, "stop": 6}]
    assert places([second]) == [(0, 6), (0, 7), (0, 8), (0, 9)]
    assert "lost" not in browse(ann, resume=second["resume"])


def test_damaged_messages_are_told_once_and_the_rest_is_shown(keeping: Keeping) -> None:
    world = keeping()
    ann = world.connect()
    for number in range(6):
        ann.append("a", b"payload %d" % number)
    (segment,) = Path(world.log("a").path).glob("*.seg")
    data = bytearray(segment.read_bytes())
    place = data.index(b"payload 3")
    data[place] ^= 1
    segment.write_bytes(data)
    answers = list(pages(ann, limit=1))
    assert places(answers) == [(0, 0), (0, 1), (0, 2), (0, 4), (0, 5)]
    told = [each for answer in answers for each in answer.get("damaged", [])]
    assert [(each["start"], each["stop"]) for each in told] == [(3, 4)]


# starts and ends


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, range(10)),
        ({"since": "latest"}, []),
        ({"since": 4}, range(4, 10)),
        ({"since": "4", "until": 7}, range(4, 7)),
        ({"last": 3}, [7, 8, 9]),
        ({"last": 99}, range(10)),
        ({"until": 0}, []),
        ({"until": 99}, range(10)),
    ],
)
def test_it_begins_and_ends_where_it_is_told(kept: World, fields: dict[str, Any], expected: Any) -> None:
    ann = kept.connect()
    ann.append("a", *(b"%d" % number for number in range(10)))
    answer = browse(ann, **fields)
    assert [each["offset"] for each in answer["messages"]] == list(expected)
    assert answer["end"]


def test_times_and_ids_are_places_too(kept: World) -> None:
    ann = kept.connect()
    for number in range(4):
        ann.append("a", b"%d" % number)
        kept.after(2_000)
    records = list(kept.log("a").records())
    times = [iso_time(record.publish_time_ms) for record in records]
    from_id = browse(ann, since=format_id(records[2].id))["messages"]
    assert [each["offset"] for each in from_id] == [2, 3]
    from_time = browse(ann, since=times[1], until=times[3])["messages"]
    assert [each["offset"] for each in from_time] == [1, 2]


# refusals


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"topic": "nowhere"}, "TOPIC_NOT_SUPPORTED", "nowhere"),
    ({"topic": "../../etc"}, "INVALID_REQUEST", "topic"),
    ({"limit": 0}, "INVALID_REQUEST", "limit"),
    ({"limit": PAGE_MESSAGES_MAX + 1}, "INVALID_REQUEST", "limit"),
    ({"limit": "3"}, "INVALID_REQUEST", "limit"),
    ({"scan": 10**30}, "INVALID_REQUEST", "scan"),
    ({"partition": 1}, "INVALID_REQUEST", "partitions"),
    ({"partition": -1}, "INVALID_REQUEST", "partition"),
    ({"from": 11}, "OFFSET_OUT_OF_RANGE", "11"),
    ({"from": 1, "last": 1}, "INVALID_REQUEST", "last"),
    ({"from": {"0": 1}}, "INVALID_REQUEST", "from"),
    ({"until": "latest"}, "INVALID_REQUEST", "until"),
    ({"type_regex": "("}, "INVALID_REQUEST", "type_regex"),
    ({"type_regex": "a" * 300}, "INVALID_REQUEST", "type_regex"),
    ({"type": ["*"] * 17}, "INVALID_REQUEST", "type"),
    ({"type": 1}, "INVALID_REQUEST", "type"),
    ({"key": "a", "key_base64": "YQ=="}, "INVALID_REQUEST", "key_base64"),
    ({"key_base64": "?"}, "INVALID_REQUEST", "key_base64"),
    ({"key_base64": []}, "INVALID_REQUEST", "key_base64"),
    ({"attributes": ["a"]}, "INVALID_REQUEST", "attributes"),
    ({"attributes": {"a": 1}}, "INVALID_REQUEST", "attributes"),
    ({"attributes": {f"a{number}": "" for number in range(17)}}, "INVALID_REQUEST", "attributes"),
    ({"contains": "x" * 5000}, "INVALID_REQUEST", "contains"),
    ({"contains": ""}, "INVALID_REQUEST", "contains"),
    ({"resume": "nonsense"}, "INVALID_REQUEST", "resume"),
    ({"resume": "é"}, "INVALID_REQUEST", "resume"),
    ({"resume": "A" * 20000}, "INVALID_REQUEST", "resume"),
    ({"resume": 7}, "INVALID_REQUEST", "resume"),
    ({"preview_bytes": 1 << 20}, "INVALID_REQUEST", "preview_bytes"),
    ({"offset": 3}, "INVALID_REQUEST", "offset"),
]


def test_what_cannot_be_is_refused_by_name(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", *(b"%d" % number for number in range(10)))
    for fields, code, word in WRONG:
        answer = ann.ask("system.message.browse", {"topic": "a"} | fields)
        assert word in refused(answer, code), fields


def test_a_live_topic_has_nothing_to_look_at(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "dispatch": "live"})
    assert "live" in refused(browse(ann), "TOPIC_NOT_SUPPORTED")


def test_a_token_is_of_one_topic_as_it_was(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"1")
    ann.append("b", b"1")
    token = browse(ann)["resume"]
    assert "resume" in refused(browse(ann, "b", resume=token), "INVALID_REQUEST")
    confirm = ann.ask("system.topic.delete", {"topic": "a"})["confirm"]
    ann.ask("system.topic.delete", {"topic": "a", "confirm": confirm})
    ann.append("a", b"2")
    assert "as it is now" in refused(browse(ann, resume=token), "INVALID_REQUEST")


def test_a_token_of_one_partition_is_not_taken_for_all(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    token = browse(ann, partition=1)["resume"]
    assert "partitions" in refused(browse(ann, resume=token), "INVALID_REQUEST")
    assert "partitions" in refused(browse(ann, resume=token, partition=0), "INVALID_REQUEST")
    assert browse(ann, resume=token, partition=1)["end"]


def test_an_offset_needs_a_partition_where_there_are_several(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 2})
    assert "partition" in refused(browse(ann, since=0), "INVALID_REQUEST")
    assert "partition" in refused(browse(ann, until=0), "INVALID_REQUEST")
    assert browse(ann, since=0, until=0, partition=1)["end"]


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_token_is_read_as_it_was_written(kept: World, offsets: list[int]) -> None:
    ann = kept.connect()
    name = f"t{len(offsets)}"
    ann.ask("system.topic.create", {"topic": name, "partitions": len(offsets)})
    topic, positions = kept.topic(name), dict(enumerate(offsets))
    assert parse_resume_token(topic, resume_token(topic, positions), None) == positions
    with pytest.raises(InvalidRequest):
        parse_resume_token(topic, resume_token(topic, {0: offsets[0], 1: 2}), 0)
    ann.leave()


# bounds


def test_a_scan_that_nobody_waits_for_ends(kept: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_STEP_MESSAGES", 1)
    ann = kept.connect()
    ann.append("a", *(b"%d" % number for number in range(50)))
    kept.hold()
    ann.post(f"request:system.message.browse:1.0.0:{'0' * 8}-0000-4000-8000-{'0' * 12}\n" + '{"topic": "a"}')
    for _ in range(3):
        kept.do()
    ann.leave()
    kept.do()
    assert kept.works == []
    assert kept.broker.durable is not None
    assert kept.broker.durable.scans.open == 0
    kept.release()


def test_there_are_only_so_many_scans_at_once(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"1")
    kept.hold()
    for number in range(SCANS_MAX + 1):
        ann.post(f"request:system.message.browse:1.0.0:00000000-0000-4000-8000-{number:012}\n" + '{"topic": "a"}')
    (answer,) = ann.take()
    assert "QUOTA_EXCEEDED" in answer
    kept.release()
    assert len(ann.take()) == SCANS_MAX
    assert browse(ann)["matched"] == 1


def test_a_topic_that_is_deleted_meanwhile_is_said_to_be_gone(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"1")
    kept.hold()
    ann.post("request:system.message.browse:1.0.0:00000000-0000-4000-8000-000000000009\n" + '{"topic": "a"}')
    (reading,) = kept.works
    durable = kept.broker.durable
    assert durable is not None
    durable.topics.remove(TopicName.parse("a"))
    kept.data.delete_topic(TopicName.parse("a"))
    kept.do(reading)
    (answer,) = ann.take()
    assert "deleted meanwhile" in answer
    kept.release()


def test_a_scan_stops_at_its_bytes(kept: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "SCAN_BYTES_MAX", 1000)
    ann = kept.connect()
    ann.append("a", *(b"x" * 400 for _ in range(10)))
    answer = browse(ann, contains="nothing of the kind")
    assert (answer["scanned"], answer["matched"], answer["end"]) == (3, 0, False)
    assert [each["scanned"] for each in pages(ann)] == [3, 3, 3, 1]


def test_a_hit_without_room_is_the_first_of_the_next_page(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", b"1", b"2", b"3")
    taken: list[int] = []

    def take(hit: ScanHit) -> TakeResult:
        if len(taken) == 2:
            return TakeResult.FULL
        taken.append(hit.row)
        return TakeResult.YES

    scan = Scan(kept.topic("a"), {0: 0}, {0: 3}, MessageFilter(), take)
    scan.step()
    assert (scan.positions, scan.scanned, scan.matched, scan.at_end) == ({0: 2}, 2, 2, False)


def test_a_sieve_without_anything_lets_everything_pass(kept: World) -> None:
    ann = kept.connect()
    ann.append("a", *messages(9))
    assert parse_filter({}).mask(kept.log("a").read(0).block).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=6), min_size=1, max_size=12), st.binary(min_size=1, max_size=3))
def test_bytes_are_found_in_payloads_and_nowhere_else(payloads: list[bytes], needle: bytes) -> None:
    drafted = Draft.of(Message(payload=each, type="aa", key=b"\x00a", attributes={"b": "a"}) for each in payloads)
    block = parse_block(drafted.with_checksums().data)
    assert MessageFilter(contains=needle).mask(block).tolist() == [needle in each for each in payloads]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, b"", b"a", b"aa", b"\x00\x01a"]), st.sampled_from(["", "a", "b"])), min_size=1
    ),
    st.sampled_from([b"", b"a", b"\x00\x01a"]),
    st.sampled_from(["", "a"]),
)
def test_keys_and_attributes_are_compared_exactly(
    given_: list[tuple[bytes | None, str]], key: bytes, value: str
) -> None:
    made = [Message(payload=b"\x00\x01a", key=each, attributes={"n": text}) for each, text in given_]
    block = parse_block(Draft.of(made).with_checksums().data)
    assert MessageFilter(key=key).mask(block).tolist() == [each == key for each, _ in given_]
    assert MessageFilter(attributes={"n": value}).mask(block).tolist() == [text == value for _, text in given_]
