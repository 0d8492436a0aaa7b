"""Single messages: fetched by offset or id, whole or in parts, and published without a connection."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from tests.broker.conftest import Keeping
from tests.broker.kit import Peer, World
from tests.broker.topics.test_publisher import refused

from penstock.core.ids import format_id
from penstock.record.message import Message


def get(peer: Peer, **fields: Any) -> Any:
    return peer.ask("system.message.get", {"topic": "a"} | fields)


def publish(peer: Peer, **fields: Any) -> Any:
    return peer.ask("system.message.publish", {"topic": "a"} | fields)


def filled(world: World, *payloads: bytes, partitions: int = 1) -> Peer:
    ann = world.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": partitions})
    for payload in payloads:
        ann.append("a", payload)
    return ann


def test_a_message_is_found_by_its_offset_and_by_its_id_in_any_partition(kept: World) -> None:
    ann = filled(kept, b"0", b"1", b"2", b"3", partitions=2)
    for partition in range(2):
        for record in kept.log("a", partition).records():
            by_place = get(ann, partition=partition, offset=record.offset)
            by_id = get(ann, id=format_id(record.id))
            assert by_place["payload"] == by_id["payload"] == record.message.payload.decode()
            assert (by_id["partition"], by_id["offset"]) == (partition, record.offset)


def test_what_is_not_there_is_said_to_be_out_of_range_or_unknown(kept: World) -> None:
    ann = filled(kept, b"0")
    refused(get(ann, offset=1), "OFFSET_OUT_OF_RANGE")
    refused(get(ann, id="1f0c2a4e-7b1d-6c00-9a3f-0123456789ab"), "TOPIC_NOT_SUPPORTED")
    kept.data.truncate_before(kept.topic("a").name, 1)
    refused(get(ann, offset=0), "OFFSET_OUT_OF_RANGE")


def test_what_cannot_be_asked_is_refused(kept: World) -> None:
    ann = filled(kept, b"0", partitions=2)
    for fields in ({}, {"offset": 0, "id": "x"}, {"offset": 0}, {"partition": 2, "offset": 0}, {"id": "x"}, {"id": 1}):
        refused(get(ann, **fields), "INVALID_REQUEST")
    refused(get(ann, partition=0, offset=2**63), "INVALID_REQUEST")
    refused(get(ann, partition=0, offset=0, payload_from=-1), "INVALID_REQUEST")


def test_a_payload_that_fits_no_answer_comes_in_pieces(keeping: Keeping) -> None:
    world = keeping(payload_bytes_max=4096, block_bytes_max=1 << 20)
    payload = bytes(number % 251 for number in range(20_000))
    ann = filled(world)
    ann.append("a", Message(payload=payload, attributes={"x": "y" * 9000}))
    whole = get(ann, offset=0)
    assert (whole["payload_bytes"], whole["payload_cut"]) == (20_000, True)
    pieces = b""
    while len(pieces) < whole["payload_bytes"]:
        pieces += b64decode(get(ann, offset=0, payload_from=len(pieces))["payload_base64"])
    assert pieces == payload
    assert get(ann, offset=0, payload_from=99_999)["payload_base64"] == ""


def test_what_is_published_is_stored_as_it_was_said(kept: World) -> None:
    ann = filled(kept)
    answer = publish(ann, payload="hällo", type="t", key="k", attributes={"x": "1"})
    assert (answer["topic"], answer["partition"], answer["offset"]) == ("/default/a", 0, 0)
    publish(ann, payload_base64="/wA=", key_base64="/g==")
    publish(ann, payload_json={"a": [1, None]})
    first, second, third = (record.message for record in kept.log("a").records())
    assert (first.payload, first.type, first.key, first.attributes) == ("hällo".encode(), "t", b"k", {"x": "1"})
    assert (second.payload, second.key) == (b"\xff\x00", b"\xfe")
    assert third.payload == b'{"a":[1,null]}'


def test_what_is_no_message_is_refused_and_nothing_is_stored(kept: World) -> None:
    ann = filled(kept)
    wrong: list[dict[str, Any]] = [
        {},
        {"payload": "a", "payload_base64": "YQ=="},
        {"payload": 1},
        {"payload_base64": "?"},
        {"payload_base64": None},
        {"payload": "a", "type": 7},
        {"payload": "a", "type": "t" * 256},
        {"payload": "a", "key": 1},
        {"payload": "a", "attributes": [1]},
        {"payload": "a", "attributes": {"a": 1}},
        {"payload": "a", "schema_id": -1},
        {"payload": "a", "producer_id": 1},
    ]
    for fields in wrong:
        assert "error" in publish(ann, **fields), fields
    assert kept.stored("a") == []


def test_it_is_published_only_to_a_topic_that_is_there_and_keeps_it(kept: World) -> None:
    ann = kept.connect()
    refused(publish(ann, payload="x"), "TOPIC_NOT_SUPPORTED")
    ann.ask("system.topic.create", {"topic": "a", "dispatch": "live"})
    refused(publish(ann, payload="x"), "TOPIC_NOT_SUPPORTED")
