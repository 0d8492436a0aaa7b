from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from penstock.broker.topics.publish_batch import MessageNumbers
from penstock.core.errors import InvalidRequest, MalformedMessage, PayloadTooLarge, SchemaRejected, VerbatimDetails
from penstock.core.limits import ATTRIBUTES_MAX
from penstock.record.block import Block, Draft
from penstock.record.message import Message, SchemaRef
from penstock.server.events.handlers import parse_body
from penstock.server.events.publish_formats import (
    BATCH_MAX,
    BLOCK,
    LINES_MAX,
    PublishDefaults,
    PublishRequest,
    numbered,
    read,
    request_headers,
)

TYPED = PublishDefaults(type="t")
NDJSON = {"content-type": "application/x-ndjson"}


def messages(said: dict[str, str], body: bytes, defaults: PublishDefaults = TYPED) -> list[Message]:
    found = read(said, body, defaults).messages
    assert isinstance(found, list)
    return found


def one(said: dict[str, str], body: bytes = b"x", defaults: PublishDefaults = TYPED) -> Message:
    (found,) = messages(said, body, defaults)
    return found


def lines(*each: Any) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in each)


def test_the_body_is_the_message_whatever_it_is() -> None:
    found = read({"content-type": "image/png"}, b"\x00\xff", TYPED)
    assert found == PublishRequest(
        [Message(payload=b"\x00\xff", type="t", attributes={"content-type": "image/png"})], single=True
    )


@pytest.mark.parametrize("media", ["", "application/octet-stream", "application/x-www-form-urlencoded"])
def test_what_says_nothing_is_not_kept(media: str) -> None:
    assert one({"content-type": media} if media else {}).attributes == {}


def test_an_attribute_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="X-Attr- has no name") as refused:
        one({"x-attr-": "a", "x-attr-tenant": "b"})
    assert refused.value.details["field"] == "x-attr-"


def test_headers_say_what_the_address_does_not() -> None:
    said = {
        "x-attr-tenant": "shöp",
        "traceparent": "00-1",
        "x-key": "k",
        "x-schema-id": "7",
        "x-schema-version": "2",
        "x-producer": "till-3",
    }
    found = one(said, defaults=PublishDefaults(type="t", key=b"other"))
    assert found.attributes == {"tenant": "shöp", "traceparent": "00-1"}
    assert (found.key, found.schema, found.producer_name) == (b"k", SchemaRef(7, 2), "till-3")
    assert one({"x-type": "mine"}).type == "mine"


def test_a_message_has_a_type() -> None:
    with pytest.raises(InvalidRequest, match="what type has the message"):
        read({}, b"x", PublishDefaults())


@pytest.mark.parametrize(
    "said",
    [
        {"x-schema-id": "seven"},
        {"x-schema-version": "1"},
        {"x-schema-id": "-1"},
        {"x-schema-id": "1" * 20},
        {"x-schema-id": "١"},
    ],
)
def test_a_number_that_is_none_is_refused(said: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        one(said)


def test_headers_are_utf8_and_what_is_said_twice_is_joined() -> None:
    assert request_headers([(b"x-attr-a", "é".encode()), (b"x-attr-a", b"b"), (b"cookie", b"\xff")]) == {
        "x-attr-a": "é, b"
    }
    with pytest.raises(InvalidRequest, match="x-attr-a is not UTF-8"):
        request_headers([(b"x-attr-a", b"\xff")])


def test_messages_are_recognised_by_a_key_or_by_a_producers_number() -> None:
    assert _numbered({}) is None
    assert _numbered({"x-request-id": "0a1b-from-a-proxy"}) is None
    assert _numbered({"x-producer": "p"}) is None
    by_number = _numbered({"x-producer": "p", "x-request-id": "7"})
    assert by_number is not None
    assert (by_number.producer, by_number.first, by_number.unordered) == ("p", 7, False)
    by_key = _numbered({"idempotency-key": "a"})
    assert by_key is not None
    assert by_key == _numbered({"idempotency-key": "a"}) != _numbered({"idempotency-key": "b"})
    for wrong in ({"x-producer": "p", "x-request-id": "x"}, {"x-producer": "p", "x-request-id": "0"}):
        with pytest.raises(InvalidRequest):
            _numbered(wrong)
    with pytest.raises(InvalidRequest, match="not both"):
        _numbered({"idempotency-key": "a", "x-producer": "p", "x-request-id": "7"})


def _numbered(said: dict[str, str], count: int = 1, principal: str = "anonymous") -> MessageNumbers | None:
    return numbered(said, count, principal)


def test_a_key_with_another_number_of_messages_or_of_somebody_else_is_another_one() -> None:
    one = _numbered({"idempotency-key": "a"})
    assert one != _numbered({"idempotency-key": "a"}, count=2)
    assert one != _numbered({"idempotency-key": "a"}, principal="key:ann")


# lines


def test_every_line_is_a_message() -> None:
    body = lines(
        {"payload": {"a": 1.50}},
        {"payload": "text\n", "type": "u", "key": "k", "attributes": {"b": "c"}},
        {"payload_base64": "AP8=", "key_base64": "AQ==", "schema_id": 3, "schema_version": 4},
    ).replace(b"1.5", b"1.50")
    found = messages(NDJSON | {"x-attr-a": "1"}, body + b"\n\r\n")
    assert [each.payload for each in found] == [b'{"a": 1.50}', b"text\n", b"\x00\xff"]
    assert [each.type for each in found] == ["t", "u", "t"]
    assert [each.key for each in found] == [None, b"k", b"\x01"]
    assert [each.attributes for each in found] == [{"a": "1"}, {"a": "1", "b": "c"}, {"a": "1"}]
    assert found[2].schema == SchemaRef(3, 4)


def test_lines_can_be_payloads_as_they_are() -> None:
    found = messages(NDJSON, b'{"a": 1}\r\n\n7\nno json', PublishDefaults(type="t", payload_lines=True))
    assert [each.payload for each in found] == [b'{"a": 1}', b"7", b"no json"]


def test_a_line_that_was_read_can_be_sent() -> None:
    line = {"id": "x", "topic": "/default/t", "partition": 0, "offset": 1, "publish_time": 2, "producer_name": "p"}
    more = {"request_id": 3, "msg_id": {}, "subscription_name": None, "attributes": {}, "payload": "x"}
    assert messages(NDJSON, lines(line | more))[0].payload == b"x"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 3: it is not a message as JSON"),
        (b"[]", "line 3: it is not a message as JSON"),
        (b'{"payload": 1, "colour": 2}', "line 3: it is not a message as JSON: .*colour"),
        (b"{}", "line 3: it has no payload"),
        (b'{"payload": 1, "payload_base64": ""}', "line 3: give payload or payload_base64"),
        (b'{"payload_base64": "%"}', "line 3: payload_base64 is not base64"),
        (b'{"payload": 1, "key": "a", "key_base64": ""}', "line 3: give key or key_base64"),
        (b'{"payload": "\xff"}', "line 3: "),
        (b'{"payload": ' + b"[" * 100_000, "line 3: "),
    ],
)
def test_the_line_that_is_wrong_is_named(line: bytes, said: str) -> None:
    with pytest.raises((InvalidRequest, MalformedMessage), match=said) as raised:
        read(NDJSON, b'{"payload": 1}\n\n' + line, TYPED)
    assert raised.value.details["line"] == 3


def test_a_line_has_a_type_or_the_address_has() -> None:
    with pytest.raises(InvalidRequest, match="line 1: it has no type"):
        read(NDJSON, b'{"payload": 1}', PublishDefaults())


@pytest.mark.parametrize("media", ["application/x-ndjson", "application/cloudevents-batch+json"])
def test_nothing_at_all_is_no_batch(media: str) -> None:
    with pytest.raises((InvalidRequest, MalformedMessage)):
        read({"content-type": media}, b"[]" if "batch" in media else b"\n \n", TYPED)


def test_a_batch_has_a_bound() -> None:
    with pytest.raises(PayloadTooLarge):
        read(NDJSON, b'{"payload":1}\n' * (BATCH_MAX + 1), TYPED)
    assert len(messages(NDJSON, b'{"payload":1}\n' * BATCH_MAX)) == BATCH_MAX


# parts, events, blocks


def test_every_part_is_a_message_with_headers_of_its_own() -> None:
    body = (
        b"--b\r\ncontent-disposition: form-data; name=order.created\r\ncontent-type: application/json\r\n\r\n{}\r\n"
        b"--b\r\nx-type: u\r\nx-attr-a: 2\r\nx-key: k\r\n\r\nbytes\xff\r\n--b--\r\n"
    )
    found = messages({"content-type": "multipart/form-data; boundary=b", "x-attr-a": "1", "x-producer": "p"}, body)
    assert [each.type for each in found] == ["order.created", "u"]
    assert [each.attributes for each in found] == [{"a": "1", "content-type": "application/json"}, {"a": "2"}]
    assert [each.payload for each in found] == [b"{}", b"bytes\xff"]
    assert {each.producer_name for each in found} == {"p"}


def test_the_part_that_is_wrong_is_named() -> None:
    body = b"--b\r\nx-type: u\r\n\r\nx\r\n--b\r\nx-schema-id: x\r\n\r\nx\r\n--b--"
    with pytest.raises(InvalidRequest, match="part 2: x-schema-id is a whole number"):
        read({"content-type": "multipart/mixed; boundary=b"}, body, TYPED)


def test_events_of_a_batch_have_the_headers_of_the_request_too() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/", "type": "u", "subject": "s", "data": 1}
    said = {"content-type": "application/cloudevents-batch+json; charset=utf-8", "x-attr-a": "1"}
    (found,) = messages(said, json.dumps([event]).encode())
    assert (found.type, found.key, found.attributes["a"], found.payload) == ("u", b"s", "1", b"1")
    assert not read(said, json.dumps([event]).encode(), TYPED).single


def test_one_event_in_json_is_one_message() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/", "type": "u", "data": 1}
    found = read({"content-type": "application/cloudevents+json"}, json.dumps(event).encode(), TYPED)
    assert found.single


def test_a_block_is_taken_whole_or_not() -> None:
    data = bytes(Draft.of([Message(payload=b"1"), Message(payload=b"2")]).with_checksums().data)
    found = read({"content-type": BLOCK}, data, PublishDefaults())
    assert isinstance(found.messages, Block)
    assert len(found.messages) == 2
    for wrong in (data[:-1], b"", data + b"x", bytes([data[0] ^ 1]) + data[1:-1] + b"x"):
        with pytest.raises((MalformedMessage, InvalidRequest)):
            read({"content-type": BLOCK}, wrong, PublishDefaults())


# where it is wrong


def test_what_the_broker_refuses_is_told_with_the_line() -> None:
    posted = read(NDJSON, b'{"payload":1}\n\n\n{"payload":2}', TYPED)
    refused = SchemaRejected("message 1 of the block: at /a: wrong", refused=VerbatimDetails([[1, "wrong", "/a"]]))
    found = posted.with_position(refused)
    assert (found.message, found.details["line"]) == ("line 4: at /a: wrong", 4)
    large = posted.with_position(PayloadTooLarge("message 0 of the block: too large", record=0))
    assert large.message == "line 1: too large"
    assert posted.with_position(InvalidRequest("something else")).message == "something else"


def test_of_one_message_the_broker_says_no_number() -> None:
    alone = PublishRequest([Message(payload=b"x")], single=True)
    assert (
        alone.with_position(SchemaRejected("message 0 of the block: wrong", refused=VerbatimDetails([[0, ""]]))).message
        == "wrong"
    )


def test_of_a_block_the_message_is_named_that_the_broker_refuses() -> None:
    data = bytes(Draft.of([Message(payload=b"1"), Message(payload=b"2")]).with_checksums().data)
    posted = read({"content-type": BLOCK}, data, PublishDefaults())
    found = posted.with_position(
        SchemaRejected("message 1 of the block: wrong", refused=VerbatimDetails([[1, "wrong", ""]]))
    )
    assert (found.message, found.details["message"]) == ("message 2: wrong", 2)


# hostile


@pytest.mark.parametrize("defaults", [TYPED, PublishDefaults(type="t", payload_lines=True)])
@pytest.mark.parametrize("line", [b"\n", b" \n", b"\r\n"])
def test_empty_lines_are_counted_too(line: bytes, defaults: PublishDefaults) -> None:
    body = line * LINES_MAX
    with pytest.raises(InvalidRequest, match="no message"):
        read(NDJSON, body, defaults)
    with pytest.raises(PayloadTooLarge, match=f"at most {LINES_MAX} lines"):
        read(NDJSON, body + line, defaults)


@pytest.mark.parametrize("value", ["1e999", "1" * 5000, "[[],[],{}]"])
def test_what_is_not_looked_at_is_not_built(value: str) -> None:
    """Send numbers that are too large to hold, and lists of lists that take many times the memory of their text."""
    found = one(NDJSON, b'{"payload":1,"id":%b,"request_id":%b}' % (value.encode(), value.encode()))
    assert found.payload == b"1"


def test_a_line_has_so_many_attributes() -> None:
    with pytest.raises(InvalidRequest, match=f"line 1: a message has at most {ATTRIBUTES_MAX} attributes"):
        one(NDJSON, lines({"payload": 1, "attributes": {f"{number}": "" for number in range(ATTRIBUTES_MAX + 1)}}))


@pytest.mark.parametrize("name", ["idempotency-key", "redrive /a/b 1", "dead-letters s 1 0"])
def test_nobody_posts_in_the_name_of_a_producer_of_the_brokers_own(name: str) -> None:
    for said in ({"x-producer": name}, {"x-producer": name, "x-request-id": "1"}):
        with pytest.raises(InvalidRequest, match="the broker's own"):
            _numbered(said)


class Said(dict[str, str]):
    """Headers that know in which threads they were looked at."""

    def __init__(self, **said: str) -> None:
        super().__init__({name.replace("_", "-"): value for name, value in said.items()})
        self.threads: set[int] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.threads.add(threading.get_ident())
        return super().get(name, default)


@pytest.mark.parametrize(("media", "threads"), [("application/x-ndjson", 2), ("text/plain", 1)])
def test_a_large_body_is_taken_apart_beside_everything_else(media: str, threads: int) -> None:
    said = Said(content_type=media)
    posted = asyncio.run(parse_body(said, lines({"payload": "x" * 100_000}), TYPED))
    assert (len(posted.messages), len(said.threads)) == (1, threads)
