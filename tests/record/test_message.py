"""A message as the bytes of a draft, and the messages refused before anything is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.record.reference import envelope, read_envelope
from tests.record.samples import NUMBER_MAX, entry_of, messages, unhurried

from penstock.core.errors import InvalidRequest, PayloadTooLarge, PenstockError
from penstock.core.limits import ATTRIBUTE_BYTES_MAX
from penstock.core.offsets import Offset
from penstock.record.message import (
    Message,
    Record,
    SchemaRef,
    check_request_ids,
    draft_bytes,
    key_hash,
    partition_of,
)

KIB_256 = 256 * 1024


def message_of(draft: bytes) -> bytes:
    """The envelope in the bytes of a draft."""
    start = 16 + 1 + draft[16] + 4
    assert int.from_bytes(draft[start - 4 : start], "big") == len(draft) - start - 8
    return draft[start:-8]


@given(messages)
@unhurried
def test_a_draft_is_the_record_with_nothing_stamped(message: Message) -> None:
    draft = draft_bytes(message)
    type_ = message.type.encode()
    assert draft[:16] == bytes(16)
    assert draft[-8:] == bytes(8)
    assert (draft[16], draft[17 : 17 + len(type_)]) == (len(type_), type_)
    assert message_of(draft) == envelope(entry_of(message))


@given(messages)
@unhurried
def test_the_reference_reads_from_a_draft_what_was_put_in(message: Message) -> None:
    draft = draft_bytes(message)
    assert read_envelope(bytes(16), message.type.encode(), message_of(draft)) == entry_of(message)


def test_absent_and_empty_are_two_things() -> None:
    drafts = {
        draft_bytes(Message(payload=b"")),
        draft_bytes(Message(payload=b"", key=b"")),
        draft_bytes(Message(payload=b"", schema=SchemaRef(0, 0))),
        draft_bytes(Message(payload=b"", key=b"", schema=SchemaRef(0, 0))),
    }
    assert len(drafts) == 4
    assert {len(draft) for draft in drafts} == {81}


@pytest.mark.parametrize(
    "view",
    [
        *(bytearray(b"abcdefgh"), memoryview(b"abcdefgh"), memoryview(b"abcdefgh").cast("I")),
        *(memoryview(b"abcdefgh").cast("B", (2, 4)), memoryview(b"a_b_c_d_e_f_g_h_")[::2]),
    ],
    ids=["bytearray", "view", "view of words", "view of rows", "every second byte"],
)
def test_any_kind_of_bytes_is_taken_for_the_bytes_it_holds(view: Any) -> None:
    assert draft_bytes(Message(payload=view, key=view)) == draft_bytes(Message(payload=b"abcdefgh", key=b"abcdefgh"))


def test_a_view_of_words_is_measured_in_bytes() -> None:
    with pytest.raises(PayloadTooLarge, match="key takes at most 65535 bytes, not 65536"):
        draft_bytes(Message(payload=b"", key=memoryview(bytes(65_536)).cast("Q")))  # type: ignore[arg-type]


# Limits


def attributes_of(size: int) -> dict[str, str]:
    """Attributes that take exactly so many bytes, their count aside."""
    return {"a": "v" * (size - 7)}


@pytest.mark.parametrize(
    "message",
    [
        Message(payload=b"", type="x" * 255),
        Message(payload=b"", type="é" * 127),
        Message(payload=b"", key=bytes(65_535)),
        Message(payload=b"", producer_name="n" * 255),
        Message(payload=b"", attributes={str(each): "" for each in range(256)}),
        Message(payload=b"", attributes={"n" * 255: ""}),
        Message(payload=b"", attributes=attributes_of(ATTRIBUTE_BYTES_MAX)),
        Message(payload=b"", producer_id=NUMBER_MAX, request_id=NUMBER_MAX, schema=SchemaRef(NUMBER_MAX, 2**31 - 1)),
    ],
    ids=lambda message: "",
)
def test_what_just_fits_is_taken(message: Message) -> None:
    assert message_of(draft_bytes(message)) == envelope(entry_of(message))


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Message(payload=b"", type="x" * 256), "type takes at most 255 bytes, not 256"),
        (Message(payload=b"", type="é" * 128), "type takes at most 255 bytes, not 256"),
        (Message(payload=b"", key=bytes(65_536)), "key takes at most 65535 bytes, not 65536"),
        (Message(payload=b"", producer_name="n" * 256), "producer_name takes at most 255 bytes, not 256"),
        (Message(payload=b"", attributes={"n" * 256: ""}), "attribute name takes at most 255 bytes, not 256"),
        (Message(payload=b"", attributes={"a": "v" * (KIB_256 + 1)}), "attribute 'a' takes at most 262144 bytes"),
        (Message(payload=b"", attributes=attributes_of(KIB_256 + 1)), "take at most 262144 bytes, not 262145"),
    ],
    ids=lambda value: "",
)
def test_what_is_too_large_is_refused_with_the_numbers(message: Message, sentence: str) -> None:
    with pytest.raises(PayloadTooLarge, match=sentence):
        draft_bytes(message)


def test_there_are_at_most_256_attributes() -> None:
    with pytest.raises(InvalidRequest, match="at most 256 attributes, not 257"):
        draft_bytes(Message(payload=b"", attributes={str(each): "" for each in range(257)}))


@pytest.mark.parametrize("field", ["producer_id", "request_id"])
@pytest.mark.parametrize("value", [-1, NUMBER_MAX + 1, True, 1.0, "1", None])
def test_a_number_is_a_whole_number_in_its_range(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"{field} must be a whole number from 0 to {NUMBER_MAX}"):
        draft_bytes(Message(payload=b"", **{field: value}))


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        *((SchemaRef(-1, 0), "schema.id"), (SchemaRef(NUMBER_MAX + 1, 0), "schema.id")),
        *((SchemaRef(0, -1), "schema.version"), (SchemaRef(0, 2**31), "schema.version")),
    ],
)
def test_a_schema_is_named_by_numbers_in_their_range(schema: SchemaRef, field: str) -> None:
    with pytest.raises(InvalidRequest, match="must be a whole number") as caught:
        draft_bytes(Message(payload=b"", schema=schema))
    assert caught.value.details["field"] == field


@pytest.mark.parametrize(
    ("given", "field"),
    [
        *(({"payload": "text"}, "payload"), ({"payload": None}, "payload"), ({"payload": 5}, "payload")),
        *(({"key": "text"}, "key"), ({"type": b"bytes"}, "type"), ({"type": None}, "type")),
        *(({"producer_name": 7}, "producer_name"), ({"attributes": {1: "v"}}, "attribute name")),
        *(({"attributes": {"n": 1}}, "attribute 'n'"), ({"attributes": {"n": None}}, "attribute 'n'")),
        *(({"type": "\ud800"}, "type"), ({"producer_name": "a\udfff"}, "producer_name")),
        *(({"attributes": {"\ud83d": ""}}, "attribute name"), ({"attributes": {"n": "\udc00"}}, "attribute 'n'")),
    ],
    ids=ascii,
)
def test_what_is_not_of_its_kind_is_refused_and_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(PenstockError) as caught:
        draft_bytes(Message(**{"payload": b""} | given))
    assert type(caught.value) is InvalidRequest
    assert caught.value.details["field"] == field


def test_a_record_introduces_itself_by_offset_id_and_type() -> None:
    id_ = bytes.fromhex("1f0c2a4e7b1d6c009a3f0123456789ab")
    record = Record(id=id_, offset=Offset(7), publish_time_ms=0, message=Message(payload=b"", type="order.paid"))
    assert str(record) == "7 1f0c2a4e-7b1d-6c00-9a3f-0123456789ab order.paid"


# Keys

VECTORS = {
    b"": 0xCBF29CE484222325,
    b"a": 0xAF63DC4C8601EC8C,
    b"b": 0xAF63DF4C8601F1A5,
    b"foo": 0xDCB27518FED9D577,
    b"foobar": 0x85944171F73967E8,
}
"""Published with the hash itself, by Fowler, Noll and Vo."""


@pytest.mark.parametrize(("key", "hashed"), VECTORS.items())
def test_a_key_is_hashed_as_published(key: bytes, hashed: int) -> None:
    assert key_hash(key) == hashed


@pytest.mark.parametrize("partitions", [1, 2, 3, 16, 1024])
def test_a_key_belongs_to_one_partition(partitions: int) -> None:
    for key, hashed in VECTORS.items():
        assert partition_of(key, partitions) == hashed % partitions
    places = [partition_of(b"customer-%d" % each, partitions) for each in range(20 * partitions)]
    assert set(places) == set(range(partitions))


# Request ids


@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 10**6), (1, 1), (NUMBER_MAX, 1), (NUMBER_MAX - 9, 10)])
def test_request_ids_may_count_up_to_the_largest(first: int, count: int) -> None:
    check_request_ids(first, count)


@pytest.mark.parametrize(
    ("first", "count", "field"),
    [(-1, 1, "first_request_id"), (True, 1, "first_request_id"), (NUMBER_MAX, 2, "request_id")],
)
def test_request_ids_that_leave_their_range_are_refused(first: int, count: int, field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{field} must be a whole number") as caught:
        check_request_ids(first, count)
    assert caught.value.details == {"field": field}
