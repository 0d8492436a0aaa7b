"""Drafts: messages of our own and blocks from outside, of which every byte is checked."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.record.reference import Broken, Entry, read, record, write
from tests.record.samples import (
    MIXED,
    NUMBER_MAX,
    attribute_maps,
    blocks,
    entry_of,
    numbers,
    payloads,
    short,
    stamped,
    unhurried,
)

from penstock.core import limits
from penstock.core.errors import InvalidRequest, MalformedMessage, PayloadTooLarge
from penstock.core.limits import ATTRIBUTE_BYTES_MAX, Limits
from penstock.record.block import EMPTY_BLOCK, Draft, parse_block, scan
from penstock.record.message import Message

FIRST = Entry(type=b"first", payload=b"one")


def refused(data: bytes, *, verify: bool = True) -> MalformedMessage:
    with pytest.raises(MalformedMessage) as caught:
        Draft.parse(data, verify=verify)
    record_, position = caught.value.details["record"], caught.value.details["position"]
    assert str(caught.value).startswith(f"record {record_} at byte {position}: ")
    return caught.value


# Our own messages


@given(blocks)
@unhurried
def test_a_draft_of_messages_is_accepted_as_a_block_from_outside(messages: list[Message]) -> None:
    draft = Draft.of(messages)
    assert len(draft) == draft.count == len(messages)
    assert Draft.parse(draft.data, verify=False).count == len(messages)


def test_messages_may_come_from_anything_that_gives_them() -> None:
    assert Draft.of(iter(MIXED)).data == Draft.of(list(MIXED)).data


def test_a_draft_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least one message"):
        Draft.of([])
    with pytest.raises(InvalidRequest, match="at least one message"):
        Draft.parse(b"")


# Blocks from outside


@given(blocks)
@unhurried
def test_what_the_reference_writes_is_accepted_as_it_is(messages: list[Message]) -> None:
    data = write(*(entry_of(message) for message in messages))
    draft = Draft.parse(data)
    assert (draft.data, draft.count) == (data, len(messages))


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
@unhurried
def test_ids_offsets_and_times_from_outside_are_ignored(id_: bytes, offset: int, time: int) -> None:
    entry = Entry(id=id_, offset=offset, publish_time=time)
    assert Draft.parse(write(entry, entry)).count == 2


def test_a_stamped_block_can_be_sent_again() -> None:
    assert Draft.parse(stamped(MIXED)).count == len(MIXED)


@given(st.binary(max_size=200), st.booleans())
@unhurried
def test_random_bytes_are_refused_in_one_way(data: bytes, verify: bool) -> None:
    if not data:
        return
    error = refused(write(FIRST) + data, verify=verify)
    assert (error.details["record"], error.details["position"]) == (1, len(write(FIRST)))


@pytest.mark.parametrize("verify", [True, False])
def test_a_block_cut_anywhere_is_refused_at_the_record_that_was_cut(verify: bool) -> None:
    data = stamped(MIXED)
    ends = [end for end, _ in read(data)]
    for size in range(1, len(data)):
        if size in ends:
            assert Draft.parse(data[:size], verify=verify).count == ends.index(size) + 1
            continue
        error = refused(data[:size], verify=verify)
        number = sum(end <= size for end in ends)
        assert error.details == {"record": number, "position": ([0, *ends])[number]}
        assert "reaches past the end" in str(error)


@pytest.mark.parametrize("zeros", [1, 15, 16, 81, 200])
def test_unused_space_does_not_belong_in_a_block(zeros: int) -> None:
    assert refused(write(FIRST) + bytes(zeros)).details["record"] == 1


def test_every_flipped_bit_is_refused() -> None:
    data = bytearray(write(FIRST, Entry(key=b"k", payload=b"two")))
    for place in range(len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            refused(bytes(data))
            data[place] ^= 1 << bit


def accepted_by_the_reference(data: bytes) -> bool:
    try:
        entries = [entry for _, entry in read(data)]
        for entry in entries:
            entry.type.decode(), entry.producer_name.decode()
            for name, value in entry.attributes:
                name.decode(), value.decode()
    except (Broken, struct.error, UnicodeDecodeError):
        return False
    numbers = [number for entry in entries for number in (entry.producer_id, entry.request_id)]
    schemas = [entry.schema for entry in entries if entry.schema is not None]
    return (
        all(number <= NUMBER_MAX for number in numbers)
        and all(id_ <= NUMBER_MAX and version < 2**31 for id_, version in schemas)
        and all(len(entry.producer_name) <= 255 and len(entry.attributes) <= 256 for entry in entries)
        and all(len(name) <= 255 for entry in entries for name, _ in entry.attributes)
        and all(len(dict(entry.attributes)) == len(entry.attributes) for entry in entries)
    )


def resealed(message: bytes) -> bytes:
    """Under a right checksum, so that only what is inside can be wrong."""
    return write(FIRST) + record(bytes(16), b"t", message)


@pytest.mark.parametrize("seed", range(8))
def test_a_changed_envelope_is_judged_as_the_reference_does(seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    for _ in range(300):
        entry = entry_of(chance.choice(MIXED))
        message = bytearray(write(entry)[21 + len(entry.type) : -8])
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(1, min(len(message), 80))
            message[place] = chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        data = resealed(bytes(message[: chance.choice((len(message), chance.randrange(len(message) + 1)))]))
        if accepted_by_the_reference(data):
            assert Draft.parse(data).count == 2
            accepted += 1
        else:
            assert refused(data).details == {"record": 1, "position": len(write(FIRST))}
    assert 30 < accepted < 270


# Text

FIELDS: dict[str, Callable[[bytes], Entry]] = {
    "type": lambda text: Entry(type=text),
    "producer name": lambda text: Entry(producer_name=text),
    "attribute name": lambda text: Entry(attributes=((b"a", b"b"), (text, b"value"))),
    "attribute value": lambda text: Entry(attributes=((b"a", b"b"), (b"name", text), (b"", b""))),
}

NOT_UTF_8 = {
    "a lone continuation": b"\x80",
    "a lead without its continuation": b"\xc3",
    "a lead before another character": b"\xc3a",
    "slash in two bytes": b"\xc0\xaf",
    "slash in three bytes": b"\xe0\x80\xaf",
    "slash in four bytes": b"\xf0\x80\x80\xaf",
    "the last overlong of two": b"\xc1\xbf",
    "the last overlong of three": b"\xe0\x9f\xbf",
    "the last overlong of four": b"\xf0\x8f\xbf\xbf",
    "the first surrogate": b"\xed\xa0\x80",
    "the last surrogate": b"\xed\xbf\xbf",
    "a pair of surrogates": b"\xed\xa0\xbd\xed\xb8\x80",
    "past the last character": b"\xf4\x90\x80\x80",
    "a lead that is none": b"\xf5\x80\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "a mark of the other byte order": b"\xff\xfe",
    "three of four bytes": b"\xf0\x9f\x9c",
    "two of three bytes": b"\xe6\xbc",
    "a third byte that does not continue": b"\xe6\xbcx",
    "a fourth byte that does not continue": b"\xf0\x9f\x9cx",
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("text", NOT_UTF_8.values(), ids=NOT_UTF_8.keys())
@pytest.mark.parametrize(("before", "after"), [(0, 0), (7, 0), (8, 1), (0, 16), (19, 3)])
def test_text_that_is_not_utf_8_is_refused(field: str, text: bytes, before: int, after: int) -> None:
    data = write(FIRST, FIELDS[field](b"x" * before + text + b"x" * after), Entry())
    error = refused(data)
    assert "is not UTF-8" in str(error)
    assert error.details == {"record": 1, "position": len(write(FIRST))}


near_utf_8 = st.lists(
    st.one_of(
        st.text(max_size=3).map(str.encode),
        st.sampled_from(sorted(NOT_UTF_8.values())),
        st.binary(max_size=2),
    ),
    max_size=6,
).map(b"".join)


@given(st.sampled_from(sorted(FIELDS)), st.one_of(near_utf_8, st.binary(max_size=60)))
@unhurried
def test_what_is_text_is_decided_as_python_does(field: str, text: bytes) -> None:
    data = write(FIRST, FIELDS[field](text))
    try:
        text.decode()
    except UnicodeDecodeError:
        assert "is not UTF-8" in str(refused(data))
    else:
        assert Draft.parse(data).count == 2


def test_keys_and_payloads_may_be_any_bytes() -> None:
    assert Draft.parse(write(Entry(key=b"\xff\x80", payload=b"\xed\xa0\x80"))).count == 1


# Numbers and sizes


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (Entry(producer_id=2**63), "producer_id must be from 0 to 9223372036854775807, not -9223372036854775808"),
        (Entry(producer_id=2**64 - 1), "producer_id must be from 0 to 9223372036854775807, not -1"),
        (Entry(request_id=2**64 - 1), "request_id must be from 0 to 9223372036854775807, not -1"),
        (Entry(schema=(2**63, 0)), "schema_id must be from 0 to 9223372036854775807"),
        (Entry(schema=(0, 2**31)), "schema_version must be from 0 to 2147483647, not 2147483648"),
        (Entry(schema=(0, 2**32 - 1)), "schema_version must be from 0 to 2147483647, not 4294967295"),
        (Entry(producer_name=b"n" * 256), "producer_name must be from 0 to 255, not 256"),
        (Entry(attributes=((b"a", b""),) * 257), "number of attributes must be from 0 to 256, not 257"),
        (Entry(attributes=((b"a", b""), (b"n" * 256, b""))), "an attribute name takes at most 255 bytes, not 256"),
        (Entry(attributes=((b"n" * 65_535, b""),)), "an attribute name takes at most 255 bytes, not 65535"),
        (
            Entry(attributes=((b"a", b"v" * (ATTRIBUTE_BYTES_MAX - 6)),)),
            "attributes take at most 262144 bytes, not 262145",
        ),
    ],
    ids=lambda value: "",
)
def test_what_one_message_may_not_have_a_block_may_not_have_either(entry: Entry, sentence: str) -> None:
    long_attributes = Entry(attributes=((b"n" * 255, b"v" * 300), (b"m" * 255, b"")))
    before = [FIRST, long_attributes, long_attributes, Entry()]
    error = refused(write(*before, entry, Entry(), entry))
    assert sentence in str(error)
    assert error.details == {"record": 4, "position": len(write(*before))}


@pytest.mark.parametrize(
    "entry",
    [
        Entry(producer_id=NUMBER_MAX, request_id=NUMBER_MAX, schema=(NUMBER_MAX, 2**31 - 1)),
        Entry(producer_name=b"n" * 255, key=b"k" * 65_535, type=b"t" * 255),
        Entry(attributes=tuple((str(each).encode(), b"") for each in range(256))),
        Entry(attributes=((b"n" * 255, b""), (b"", b""))),
        Entry(attributes=((b"a", b"v" * (ATTRIBUTE_BYTES_MAX - 7)),)),
    ],
    ids=lambda value: "",
)
def test_what_just_fits_is_accepted(entry: Entry) -> None:
    assert Draft.parse(write(entry)).count == 1


def test_what_is_accepted_from_outside_can_be_drafted_again() -> None:
    """A dead letter is made of what was read."""
    entry = Entry(attributes=((b"n" * 255, b"v" * (ATTRIBUTE_BYTES_MAX - 255 - 6)),), producer_name=b"n" * 255)
    data = write(entry)
    Draft.parse(data)
    attributes = {name.decode(): value.decode() for name, value in entry.attributes}
    again = Draft.of([Message(payload=b"", attributes=attributes, producer_name=entry.producer_name.decode())])
    assert again.data[:-8] == data[:-8]


# The operator's limits

BOUNDS = replace(Limits(), payload_bytes_max=100, block_bytes_max=400)


@pytest.mark.parametrize("sizes", [[100], [100, 100], [0, 0, 0, 0], [100, 57, 0]])
def test_a_block_within_the_limits_passes(sizes: list[int]) -> None:
    Draft.of(Message(payload=bytes(size)) for size in sizes).check_sizes(BOUNDS)


def test_a_payload_past_the_limit_is_named() -> None:
    draft = Draft.of(Message(payload=bytes(size)) for size in (5, 101))
    with pytest.raises(
        PayloadTooLarge, match="message 1 of the block: a payload has at most 100 bytes, not 101"
    ) as caught:
        draft.check_sizes(BOUNDS)
    assert caught.value.details == {"record": 1, "limit": 100}


def test_a_block_past_the_limit_is_refused_whole() -> None:
    draft = Draft.of([Message(payload=b"")] * 5)
    with pytest.raises(PayloadTooLarge, match="a block has at most 400 bytes, not 405") as caught:
        draft.check_sizes(BOUNDS)
    assert caught.value.details == {"limit": 400}


def test_a_draft_may_be_any_kind_of_buffer() -> None:
    data = write(FIRST)
    for kind in (bytearray(data), memoryview(data), np.frombuffer(data, dtype=np.uint8)):
        draft = Draft.parse(kind)
        draft.check_sizes(Limits())
        assert bytearray().join([draft.data]) == data


def test_an_attribute_named_twice_is_refused_with_its_record() -> None:
    fine = Draft.of([Message(payload=b"x", attributes={"a": "1", "b": "2", "ab": "3", "": "4"})])
    Draft.parse(fine.data, verify=False)
    twice = bytes(fine.data).replace(b"\x00\x01b", b"\x00\x01a")
    with pytest.raises(MalformedMessage, match=r"record 1 at byte .* an attribute is named twice"):
        Draft.parse(bytes(fine.data) + twice, verify=False)


# A block of checked records


def test_a_block_from_outside_can_be_had_as_a_block() -> None:
    block = parse_block(stamped(MIXED))
    assert [record.message for record in block] == list(MIXED)
    with pytest.raises(MalformedMessage, match="record 1 at byte"):
        parse_block(write(FIRST) + b"\0")
    with pytest.raises(MalformedMessage, match="record 0 at byte 0: the checksum"):
        parse_block(Draft.of([Message(payload=b"")]).data)
    assert len(parse_block(Draft.of([Message(payload=b"")]).data, verify=False)) == 1
    with pytest.raises(InvalidRequest, match="at least one message"):
        parse_block(b"")


def test_rows_of_a_block_split_over_partitions_are_drafts() -> None:
    data = stamped(MIXED)
    block = parse_block(data)
    places = np.arange(len(block)) % 3
    for partition in range(3):
        draft = Draft.of_block(block.gather(np.flatnonzero(places == partition)))
        found = parse_block(draft.data)
        assert [record.message for record in found] == list(MIXED[partition::3])
        assert draft.count == len(found)


def test_a_draft_of_neighbours_is_a_window_and_of_others_a_copy() -> None:
    data = bytearray(stamped(MIXED))
    block = parse_block(data)
    for start in range(10):
        for stop in range(start + 1, 11):
            part = block.select(start, stop)
            draft = Draft.of_block(part)
            assert bytes(draft.data) == bytes(part.raw)
            assert np.shares_memory(np.frombuffer(draft.data, np.uint8), block.data)
    apart = type(block)(block.data, block.columns[[1, 3, 4]])
    draft = Draft.of_block(apart)
    assert not np.shares_memory(np.frombuffer(draft.data, np.uint8), block.data)
    assert [record.message for record in parse_block(draft.data)] == [MIXED[1], MIXED[3], MIXED[4]]
    assert bytearray().join([draft.data]) == bytes(draft.data)
    assert len(draft.data) == len(bytes(draft.data))


def test_a_draft_of_no_records_is_refused() -> None:
    for block in (EMPTY_BLOCK, scan(stamped(MIXED))[0].select(4, 4)):
        with pytest.raises(InvalidRequest, match="at least one message"):
            Draft.of_block(block)


# Payloads that have much in common


def messages_of(given_: list[bytes], keys: list[bytes | None] | None, first: int, **common: Any) -> list[Message]:
    return [
        Message(
            payload=payload,
            key=None if keys is None else keys[place],
            request_id=first + place if first else 0,
            **common,
        )
        for place, payload in enumerate(given_)
    ]


@given(
    st.lists(st.tuples(payloads, st.none() | st.binary(max_size=40)), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from([0, 1, 7, NUMBER_MAX - 8]),
    st.fixed_dictionaries(
        {}, optional={"type": short, "attributes": attribute_maps, "producer_name": short, "producer_id": numbers}
    ),
)
@settings(unhurried, max_examples=200)
def test_payloads_become_the_records_that_the_reference_writes(
    pairs: list[tuple[bytes, bytes | None]], keyed: bool, first: int, common: dict[str, Any]
) -> None:
    given_, keys = [payload for payload, _ in pairs], [key for _, key in pairs] if keyed else None
    draft = Draft.of_payloads(given_, keys=keys, first_request_id=first, **common)
    messages = messages_of(given_, keys, first, **common)
    assert draft.data.tobytes() == write(*(entry_of(message) for message in messages))
    assert draft.count == len(draft) == len(parse_block(draft.data)) == len(pairs)


def test_many_payloads_become_a_block() -> None:
    given_ = [b"%d" % each * (each % 50) for each in range(3_000)]
    keys = [None if each % 3 else b"k%d" % each for each in range(3_000)]
    block = parse_block(Draft.of_payloads(given_, keys=keys, type="t", first_request_id=1).data)
    assert [record.message for record in block] == messages_of(given_, keys, 1, type="t")


def test_the_largest_fields_become_a_record() -> None:
    common: dict[str, Any] = {"type": "t" * 255, "producer_name": "n" * 255, "producer_id": NUMBER_MAX}
    common["attributes"] = {"a" * 255: "v" * (ATTRIBUTE_BYTES_MAX - 261)}
    given_, keys = [bytes(1 << 20), b""], [b"k" * 65_535, b"\xff" * 65_535]
    draft = Draft.of_payloads(given_, keys=keys, first_request_id=NUMBER_MAX - 1, **common)
    expected = messages_of(given_, list(keys), NUMBER_MAX - 1, **common)
    assert [record.message for record in parse_block(draft.data)] == expected


@pytest.mark.parametrize(
    "view",
    [
        *(bytearray(b"abcdefgh"), memoryview(b"abcdefgh"), memoryview(b"abcdefgh").cast("I")),
        *(memoryview(b"abcdefgh").cast("B", (2, 4)), memoryview(b"a_b_c_d_e_f_g_h_")[::2]),
    ],
    ids=["bytearray", "view", "view of words", "view of rows", "every second byte"],
)
def test_any_kind_of_bytes_is_taken_for_the_bytes_it_holds(view: Any) -> None:
    draft = Draft.of_payloads([b"x", view], keys=[view, b"y"])
    assert draft.data.tobytes() == Draft.of_payloads([b"x", b"abcdefgh"], keys=[b"abcdefgh", b"y"]).data.tobytes()


REFUSED: dict[str, tuple[type[Exception], dict[str, Any], dict[str, Any]]] = {
    "message 1 of the block: payload must be bytes, not str": (
        *(InvalidRequest, {"payloads": [b"", "text"]}, {"record": 1, "field": "payload"}),
    ),
    "message 0 of the block: payload must be bytes, not NoneType": (
        *(InvalidRequest, {"payloads": [None]}, {"record": 0, "field": "payload"}),
    ),
    "message 0 of the block: payload must be bytes, not ndarray": (
        *(InvalidRequest, {"payloads": [np.zeros(3, np.uint8)]}, {"record": 0, "field": "payload"}),
    ),
    "message 2 of the block: key must be bytes, not int": (
        *(InvalidRequest, {"payloads": [b""] * 3, "keys": [b"", None, 5]}, {"record": 2, "field": "key"}),
    ),
    "message 1 of the block: key takes at most 65535 bytes, not 65536": (
        PayloadTooLarge,
        {"payloads": [b""] * 3, "keys": [None, bytes(65_536), bytes(65_537)]},
        {"record": 1, "field": "key", "limit": 65_535},
    ),
    "2 messages have 2 keys, not 1": (InvalidRequest, {"payloads": [b""] * 2, "keys": [b""]}, {"field": "keys"}),
    "a block has at least one message": (InvalidRequest, {"payloads": []}, {}),
    "type takes at most 255 bytes, not 256": (PayloadTooLarge, {"type": "é" * 128}, {"field": "type", "limit": 255}),
    "producer_name is not valid Unicode": (*(InvalidRequest, {"producer_name": "\ud800"}, {"field": "producer_name"}),),
    "a message has at most 256 attributes, not 257": (
        *(InvalidRequest, {"attributes": {str(each): "" for each in range(257)}}, {}),
    ),
    "producer_id must be a whole number": (InvalidRequest, {"producer_id": -1}, {"field": "producer_id"}),
    "first_request_id must be a whole number": (
        *(InvalidRequest, {"first_request_id": -1}, {"field": "first_request_id"}),
    ),
    "request_id must be a whole number": (
        *(InvalidRequest, {"payloads": [b""] * 2, "first_request_id": NUMBER_MAX}, {"field": "request_id"}),
    ),
}


@pytest.mark.parametrize(("sentence", "case"), REFUSED.items(), ids=REFUSED.keys())
def test_what_cannot_be_a_message_is_refused_with_its_number(sentence: str, case: Any) -> None:
    kind, given_, details = case
    with pytest.raises(kind) as caught:
        Draft.of_payloads(**{"payloads": [b""]} | given_)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(sentence)
    assert caught.value.details == details


def test_a_payload_that_no_segment_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEGMENT_BYTES_CEILING", 100)
    assert Draft.of_payloads([bytes(100)]).count == 1
    with pytest.raises(PayloadTooLarge, match="message 1 of the block: payload takes at most 100 bytes, not 101"):
        Draft.of_payloads([b"", bytes(101)])
