"""Blocks as Arrow batches and back: the same values, without a copy where Arrow can point."""

from __future__ import annotations

import gc
import mmap
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.record.reference import id_at, read, time_of
from tests.record.samples import FIRST_TICKS, LOW, MIXED, NUMBER_MAX, blocks, ids, stamped, unhurried

from penstock.core.errors import InvalidRequest, MalformedMessage, PayloadTooLarge, PenstockError
from penstock.core.limits import ATTRIBUTE_BYTES_MAX
from penstock.record import layout as at
from penstock.record.arrow import COLUMN_NAMES
from penstock.record.block import EMPTY_BLOCK, Block, Draft, scan, stamp
from penstock.record.message import Message

BLOCK = stamped(MIXED)
MAP = pa.map_(pa.string(), pa.string())
VALUES = pa.array([b"a", b"b", b"c"])
PLAIN = [Message(payload=b"a"), Message(payload=b"b"), Message(payload=b"c")]
GIVEN_BY_THE_LOG = ("id", "offset", "timestamp")


def rows_of(messages: list[Message]) -> list[dict[str, Any]]:
    """Return the rows of a stamped block's batch."""
    stamps = [id_at(FIRST_TICKS + place, LOW) for place in range(len(messages))]
    return [
        {
            "id": id_,
            "offset": place,
            "timestamp": time_of(id_),
            "type": message.type,
            "key": message.key,
            "value": message.payload,
            "producer_name": message.producer_name,
            "producer_id": message.producer_id,
            "request_id": message.request_id,
            "schema_id": None if message.schema is None else message.schema.id,
            "schema_version": None if message.schema is None else message.schema.version,
            "attributes": list(message.attributes.items()),
        }
        for place, (id_, message) in enumerate(zip(stamps, messages, strict=True))
    ]


def read_rows(batch: Any) -> list[dict[str, Any]]:
    if "timestamp" in batch.schema.names:
        number = batch.schema.names.index("timestamp")
        batch = batch.set_column(number, "timestamp", batch.column("timestamp").cast(pa.int64()))
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def batch_of(**columns: Any) -> Any:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def messages_of(draft: Draft) -> list[Message]:
    """Return the messages of a draft, read by the code for blocks from outside and then by that of the log."""
    checked = Draft.parse(draft.data)
    assert checked.count == draft.count
    entries = [entry for _, entry in read(bytes(draft.data))]
    assert all(entry.id == bytes(16) and entry.offset == entry.publish_time == 0 for entry in entries)
    return [record.message for record in scan(restamped(draft))[0]]


def restamped(draft: Draft) -> bytes:
    data = bytearray(draft.data)
    stamp(data, draft.count, ids(draft.count), 0)
    return bytes(data)


# Out


@pytest.mark.parametrize("views", [True, False])
@given(messages=blocks)
@settings(unhurried, max_examples=50)
def test_a_batch_holds_what_the_block_does(views: bool, messages: list[Message]) -> None:
    block, _ = scan(stamped(messages))
    batch = block.to_arrow(views=views)
    batch.validate(full=True)
    assert batch.schema.names == list(COLUMN_NAMES)
    assert read_rows(batch) == rows_of(messages)


@given(st.lists(st.sampled_from(COLUMN_NAMES), unique=True), st.booleans())
@unhurried
def test_any_columns_can_be_asked_for_in_any_order(names: list[str], views: bool) -> None:
    batch = scan(BLOCK)[0].to_arrow(names, views=views)
    if not names:
        assert batch.num_columns == 0
        return
    batch.validate(full=True)
    assert batch.schema.names == names
    assert read_rows(batch) == [{name: row[name] for name in names} for row in rows_of(list(MIXED))]


def test_every_pair_of_columns_fits_together() -> None:
    block, _ = scan(BLOCK)
    whole = block.to_arrow()
    for one in COLUMN_NAMES:
        for other in COLUMN_NAMES:
            if one != other:
                pair = block.to_arrow(iter([one, other]))
                assert pair.column(0).equals(whole.column(one))
                assert pair.column(1).equals(whole.column(other))


def test_a_column_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidRequest, match="no column 'payload': choose from id, offset, timestamp") as caught:
        EMPTY_BLOCK.to_arrow(["value", "payload"])
    assert caught.value.details == {"column": "payload"}


@pytest.mark.parametrize("views", [True, False])
def test_the_kinds_of_columns_do_not_depend_on_what_is_in_them(views: bool) -> None:
    schemas = {
        block.to_arrow(views=views).schema.to_string()
        for block in (
            EMPTY_BLOCK,
            scan(BLOCK)[0],
            scan(BLOCK)[0].select(3, 3),
            scan(stamped([Message(payload=b"")]))[0],
        )
    }
    assert len(schemas) == 1
    EMPTY_BLOCK.to_arrow(views=views).validate(full=True)


@pytest.mark.parametrize("views", [True, False])
def test_a_selection_of_rows_is_a_batch_of_those_rows(views: bool) -> None:
    block, _ = scan(BLOCK)
    expected = rows_of(list(MIXED))
    for start in range(len(MIXED) + 1):
        for stop in range(start, len(MIXED) + 1):
            batch = block.select(start, stop).to_arrow(views=views)
            batch.validate(full=True)
            assert read_rows(batch) == expected[start:stop]


@pytest.mark.parametrize("views", [True, False])
def test_records_that_are_no_envelopes_have_their_message_as_value(views: bool) -> None:
    block, _ = scan(BLOCK, envelopes=False)
    batch = block.to_arrow(views=views)
    batch.validate(full=True)
    assert batch.column("value").to_pylist() == [bytes(block.payload(row)) for row in range(len(block))]
    assert batch.column("key").null_count == batch.column("schema_id").null_count == len(block)


@pytest.mark.parametrize("size", [0, 1, 4, 11, 12, 13, 14, 255])
def test_values_of_every_size_around_what_a_view_holds_itself(size: int) -> None:
    message = Message(payload=bytes(range(size)), key=b"k" * size, type="t" * size, producer_name="n" * size)
    batch = scan(stamped([message] * 3))[0].to_arrow()
    batch.validate(full=True)
    assert read_rows(batch) == rows_of([message] * 3)


# Without a copy


@pytest.mark.parametrize("name", ["value", "key", "type", "producer_name"])
def test_a_view_points_into_the_buffer_of_the_block(name: str) -> None:
    data = np.frombuffer(bytearray(BLOCK), dtype=np.uint8)
    column = scan(data)[0].to_arrow().column(name)
    pointed_at = column.buffers()[2]
    assert (pointed_at.address, pointed_at.size) == (data.ctypes.data, data.size)


def test_a_change_in_the_buffer_shows_in_a_long_view() -> None:
    data = bytearray(BLOCK)
    batch = scan(data)[0].to_arrow(["value"])
    place = data.index(bytes(range(200))) + 150
    data[place] = 0xEE
    assert batch.column("value")[5].as_py()[150] == 0xEE


def test_what_is_not_a_view_is_a_copy() -> None:
    data = bytearray(BLOCK)
    batch = scan(data)[0].to_arrow(views=False)
    data[:] = bytes(len(data))
    assert read_rows(batch) == rows_of(list(MIXED))


@pytest.mark.parametrize("views", [True, False])
def test_a_batch_stays_valid_when_block_and_buffer_are_gone(views: bool) -> None:
    def made() -> Any:
        return scan(bytearray(BLOCK))[0].to_arrow(views=views)

    batch = made()
    for _ in range(3):
        gc.collect()
        np.full(len(BLOCK), 0xAA, dtype=np.uint8)  # takes the place of what was freed
    batch.validate(full=True)
    assert read_rows(batch) == rows_of(list(MIXED))


def test_a_slice_of_a_batch_outlives_it() -> None:
    piece = scan(bytearray(BLOCK))[0].to_arrow().slice(4, 3)
    gc.collect()
    piece.validate(full=True)
    assert read_rows(piece) == rows_of(list(MIXED))[4:7]


def test_a_view_reaches_no_farther_than_arrow_can_count() -> None:
    with mmap.mmap(-1, 2**31 + 4_096) as memory:  # of which two pages are ever touched
        for start, reached in ((2**31 - len(BLOCK) - 16, True), (2**31 + 16, False)):
            memory[start : start + len(BLOCK)] = BLOCK
            block, _ = scan(memory, start=start, stop=start + len(BLOCK))
            assert read_rows(block.to_arrow(views=False)) == rows_of(list(MIXED))
            if reached:
                assert read_rows(block.to_arrow()) == rows_of(list(MIXED))
            else:
                with pytest.raises(PayloadTooLarge, match="read less at once"):
                    block.to_arrow()
            del block
            gc.collect()


# In


@pytest.mark.parametrize("views", [True, False])
@given(messages=blocks)
@settings(unhurried, max_examples=50)
def test_out_and_in_again_is_the_same_messages(views: bool, messages: list[Message]) -> None:
    batch = scan(stamped(messages))[0].to_arrow(views=views)
    draft = Draft.from_arrow(batch)
    assert messages_of(draft) == messages
    assert restamped(draft) == stamped(messages)


@pytest.mark.parametrize("views", [True, False])
def test_any_slice_of_a_batch_is_its_rows(views: bool) -> None:
    batch = scan(BLOCK)[0].to_arrow(views=views)
    for start in range(len(MIXED)):
        for count in range(1, len(MIXED) - start + 1):
            draft = Draft.from_arrow(batch.slice(start, count))
            assert messages_of(draft) == list(MIXED[start : start + count])


@pytest.mark.parametrize("left_out", [name for name in COLUMN_NAMES if name != "value"])
def test_a_column_that_is_missing_is_absent_in_every_message(left_out: str) -> None:
    names = [name for name in COLUMN_NAMES if name != left_out]
    batch = scan(BLOCK)[0].to_arrow(names)
    if left_out == "schema_id":
        with pytest.raises(InvalidRequest, match="row 3 has a schema_version without a schema_id"):
            Draft.from_arrow(batch)
        return
    back = scan(restamped(Draft.from_arrow(batch)))[0].to_arrow()
    absent = {"type": "", "producer_name": "", "producer_id": 0, "request_id": 0, "attributes": [], "key": None}
    expected = rows_of(list(MIXED))
    for row in expected:
        if left_out in absent:
            row[left_out] = absent[left_out]
        if left_out == "schema_version" and row["schema_id"] is not None:
            row["schema_version"] = 0
    assert read_rows(back) == expected


def test_payloads_alone_are_enough() -> None:
    assert messages_of(Draft.from_arrow(batch_of(value=VALUES))) == [
        Message(payload=each) for each in (b"a", b"b", b"c")
    ]


BINARY = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary())]
TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


def column_of(texts: list[str | None], kind: Any) -> Any:
    as_text = "string" in str(kind)
    return pa.array([each if as_text or each is None else each.encode() for each in texts], kind)


@pytest.mark.parametrize("kind", [*BINARY, *TEXT], ids=str)
def test_payloads_and_keys_may_be_any_kind_of_bytes_or_text(kind: Any) -> None:
    texts = ["", "twelve bytes", "thirteen bytes and more", None, "é"]
    batch = batch_of(value=column_of([each or "" for each in texts], kind), key=column_of(texts, kind))
    keys = [None if each is None else each.encode() for each in texts]
    for start in range(len(texts)):
        expected = [Message(payload=key or b"", key=key) for key in keys[start:]]
        assert messages_of(Draft.from_arrow(batch.slice(start))) == expected


@pytest.mark.parametrize("kind", [*TEXT, *BINARY], ids=str)
def test_text_may_be_any_kind_of_text_and_bytes_that_are_text(kind: Any) -> None:
    texts = ["", "order.created", "é漢🜁", None]
    column = column_of(texts, kind)
    batch = batch_of(value=pa.array([b""] * 4), type=column, producer_name=column)
    expected = [Message(payload=b"", type=each or "", producer_name=each or "") for each in texts]
    assert messages_of(Draft.from_arrow(batch)) == expected


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint64(), pa.dictionary(pa.int8(), pa.int64())], ids=str
)
def test_numbers_may_be_of_any_width(kind: Any) -> None:
    column = pa.array([5, None, 7], kind)
    batch = batch_of(value=VALUES, producer_id=column, request_id=column, schema_id=column, schema_version=column)
    found = messages_of(Draft.from_arrow(batch))
    assert [(each.producer_id, each.request_id) for each in found] == [(5, 5), (0, 0), (7, 7)]
    assert [each.schema and (each.schema.id, each.schema.version) for each in found] == [(5, 5), None, (7, 7)]


@pytest.mark.parametrize(
    "kind",
    [
        *(MAP, pa.map_(pa.large_string(), pa.large_string()), pa.map_(pa.string_view(), pa.string_view())),
        *(pa.map_(pa.binary(), pa.binary()), pa.map_(pa.string(), pa.dictionary(pa.int32(), pa.string()))),
    ],
    ids=str,
)
def test_attributes_may_be_any_kind_of_map_of_text(kind: Any) -> None:
    given_: list[Any] = [[("a", "1")], None, [], [("b", "2"), ("c", "")], [("", "x")], [("é", "漢")]]
    if "binary" in str(kind):
        given_ = [each and [(name.encode(), value.encode()) for name, value in each] for each in given_]
    column = pa.array(given_, kind)
    expected = [{"a": "1"}, {}, {}, {"b": "2", "c": ""}, {"": "x"}, {"é": "漢"}]
    batch = batch_of(value=pa.array([b""] * 6), attributes=column)
    for start in range(6):
        for count in range(1, 7 - start):
            found = messages_of(Draft.from_arrow(batch.slice(start, count)))
            assert [each.attributes for each in found] == expected[start : start + count]


@pytest.mark.parametrize(
    "column", [pa.nulls(3), pa.nulls(3, MAP), pa.array([[], [], []], MAP), pa.array([None, [], None], MAP)]
)
def test_no_attributes_at_all_are_none(column: Any) -> None:
    assert [each.attributes for each in messages_of(Draft.from_arrow(batch_of(value=VALUES, attributes=column)))] == [
        {}
    ] * 3


def test_entries_under_a_null_are_not_attributes() -> None:
    child = pa.array([{"key": name, "value": name * 2} for name in "abc"], pa.struct([MAP.key_field, MAP.item_field]))
    offsets = pa.py_buffer(np.arange(4, dtype=np.int32))
    column = pa.Array.from_buffers(MAP, 3, [pa.py_buffer(b"\5"), offsets], children=[child])
    batch = batch_of(value=VALUES, attributes=column)
    expected = [{"a": "aa"}, {}, {"c": "cc"}]
    for start in range(3):
        found = messages_of(Draft.from_arrow(batch.slice(start)))
        assert [each.attributes for each in found] == expected[start:]


def test_rows_outside_a_slice_are_not_judged() -> None:
    wrong: list[Any] = [[("n" * 256, "")], [("a", None)], [("a", "v" * ATTRIBUTE_BYTES_MAX)]]
    column = pa.array([*wrong, [("good", "1")], *wrong], MAP)
    types = pa.array(["t" * 256] * 3 + ["good"] + ["t" * 256] * 3)
    values = pa.array([None] * 3 + [b"good"] + [None] * 3, pa.binary())
    batch = batch_of(value=values, type=types, attributes=column).slice(3, 1)
    assert messages_of(Draft.from_arrow(batch)) == [Message(payload=b"good", type="good", attributes={"good": "1"})]


# What is refused


def bad_text() -> Any:
    """A string column that Arrow itself would not have made."""
    offsets = pa.py_buffer(np.array([0, 1, 2, 3], dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"a\xffb")])


def outside_its_dictionary() -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1 << 30, 0]), pa.array([b"k"]), safe=False)


def outside_its_buffer() -> Any:
    views = np.zeros((3, 4), dtype=np.int32)
    views[1] = (1_000, 0, 0, 1 << 30)
    return pa.Array.from_buffers(pa.binary_view(), 3, [None, pa.py_buffer(views), pa.py_buffer(b"abc")])


def falling_offsets() -> Any:
    offsets = pa.py_buffer(np.array([0, -5, 2, 3], dtype=np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 3, [None, offsets, pa.py_buffer(b"abc")])


INVALID: dict[str, dict[str, Any]] = {
    "column 'value': int64 is not large_binary": {"value": pa.array([1, 2, 3])},
    "column 'value': list<": {"value": pa.array([[b"a"], [], []])},
    "column 'key': struct<": {"key": pa.array([{"a": 1}] * 3)},
    "column 'attributes': list<": {"attributes": pa.array([["a"]] * 3)},
    "column 'producer_id': string is not int64": {"producer_id": pa.array(["x"] * 3)},
    "column 'request_id': double is not int64": {"request_id": pa.array([1.5, 0, 0])},
    "column 'value', row 1: a value is missing": {"value": pa.array([b"", None, b""])},
    "column 'value', row 0: a value is missing": {"value": pa.nulls(3)},
    "column 'producer_id', row 2: must be from 0 to": {"producer_id": pa.array([0, 1, -1])},
    "column 'request_id': uint64 is not int64": {"request_id": pa.array([0, 1, 2**63], pa.uint64())},
    "column 'schema_version', row 1: must be from 0 to 2147483647, not 2147483648": {
        "schema_id": pa.array([1, 1, 1]),
        "schema_version": pa.array([0, 2**31, 0]),
    },
    "row 1 has a schema_version without a schema_id": {
        "schema_id": pa.array([1, None, 1]),
        "schema_version": pa.array([1, 1, 1]),
    },
    "column 'type': binary is not large_string": {"type": pa.array([b"\xff"] * 3)},
    "column 'type': string is not large_string: Invalid UTF8": {"type": bad_text()},
    "column 'attributes', row 2: an attribute has no value": {
        "attributes": pa.array([[("a", "1"), ("b", "2")], None, [("c", "3"), ("d", None)]], MAP),
    },
    "column 'attributes': map<binary, binary> is not": {
        "attributes": pa.array([[(b"a", b"\xff")]] * 3, pa.map_(pa.binary(), pa.binary())),
    },
    "column 'key': dictionary<": {"key": outside_its_dictionary()},
    "column 'value': binary_view is not": {"value": outside_its_buffer()},
    "column 'value': large_binary is not": {"value": falling_offsets()},
    "no column 'payload': choose from": {"payload": VALUES},
}
TOO_LARGE: dict[str, dict[str, Any]] = {
    "column 'type', row 2: at most 255 bytes, not 256": {"type": pa.array(["", "", "t" * 256])},
    "column 'producer_name', row 0: at most 255 bytes, not 256": {"producer_name": pa.array(["n" * 256] * 3)},
    "column 'key', row 1: at most 65535 bytes, not 65536": {"key": pa.array([b"", bytes(65_536), None])},
    "column 'attributes', row 2: at most 255 bytes, not 256": {
        "attributes": pa.array([[("a", "1"), ("b", "2")], None, [("c", "3"), ("d" * 256, "")]], MAP),
    },
    "column 'attributes', row 1: attributes take at most 262144 bytes, not 262145": {
        "attributes": pa.array([[], [("a", "v" * (256 * 1024 - 6))], []], MAP),
    },
    "column 'attributes', row 1: at most 256 attributes, not 257": {
        "attributes": pa.array([[], [(str(each), "") for each in range(257)], []], MAP),
    },
}


@pytest.mark.parametrize(("sentence", "columns"), [*INVALID.items(), *TOO_LARGE.items()], ids=[*INVALID, *TOO_LARGE])
def test_what_is_wrong_is_refused_with_its_column_and_row(sentence: str, columns: dict[str, Any]) -> None:
    with pytest.raises(PenstockError) as caught:
        Draft.from_arrow(batch_of(**{"value": VALUES} | columns))
    assert type(caught.value) is (PayloadTooLarge if sentence in TOO_LARGE else InvalidRequest)
    assert str(caught.value).startswith(sentence)
    assert ("row" in caught.value.details) == (" row " in f" {sentence}")


def test_the_attributes_that_just_fit_are_taken() -> None:
    fitting = {"a": "v" * (ATTRIBUTE_BYTES_MAX - 7)}
    (found,) = messages_of(
        Draft.from_arrow(batch_of(value=VALUES[:1], attributes=pa.array([list(fitting.items())], MAP)))
    )
    assert found.attributes == fitting


def test_a_batch_without_payloads_or_rows_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="needs a column 'value'"):
        Draft.from_arrow(batch_of(type=pa.array(["t"])))
    with pytest.raises(InvalidRequest, match="at least one message"):
        Draft.from_arrow(batch_of(value=VALUES[:0]))


def test_a_column_that_is_there_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([VALUES, VALUES, VALUES], names=["value", "key", "key"])
    with pytest.raises(InvalidRequest, match="column 'key' is there 2 times") as caught:
        Draft.from_arrow(batch)
    assert caught.value.details == {"column": "key"}


def test_the_largest_numbers_go_in_and_come_out() -> None:
    columns = {name: pa.array([NUMBER_MAX]) for name in ("producer_id", "request_id", "schema_id")}
    (found,) = messages_of(
        Draft.from_arrow(batch_of(value=VALUES[:1], schema_version=pa.array([2**31 - 1]), **columns))
    )
    assert (found.producer_id, found.request_id) == (NUMBER_MAX, NUMBER_MAX)
    assert found.schema is not None
    assert (found.schema.id, found.schema.version) == (NUMBER_MAX, 2**31 - 1)


def test_what_the_log_gives_is_not_taken_from_a_batch() -> None:
    nonsense = {name: pa.array(["nonsense"] * 3) for name in GIVEN_BY_THE_LOG}
    assert messages_of(Draft.from_arrow(batch_of(value=VALUES, **nonsense))) == PLAIN


# Sent by a producer


def test_a_producer_may_fill_the_columns_that_name_it() -> None:
    draft = Draft.from_arrow(batch_of(value=VALUES), producer_name="till", producer_id=7, first_request_id=5)
    assert messages_of(draft) == [
        Message(payload=each.payload, producer_name="till", producer_id=7, request_id=5 + place)
        for place, each in enumerate(PLAIN)
    ]


@pytest.mark.parametrize("views", [True, False])
@given(messages=blocks)
@settings(unhurried, max_examples=20)
def test_what_a_producer_gives_stands_in_place_of_the_columns(views: bool, messages: list[Message]) -> None:
    batch = scan(stamped(messages))[0].to_arrow(views=views)
    for given_ in ({"producer_name": "é"}, {"producer_id": 9}, {"producer_name": "", "producer_id": 0}):
        found = messages_of(Draft.from_arrow(batch, **given_))
        assert found == [replace(each, **given_) for each in messages]
    for first in (0, 1, NUMBER_MAX - len(messages) + 1):
        found = messages_of(Draft.from_arrow(batch, first_request_id=first))
        numbered = [first + place if first else 0 for place in range(len(messages))]
        assert found == [replace(each, request_id=number) for each, number in zip(messages, numbered, strict=True)]


def test_columns_that_are_replaced_are_not_judged() -> None:
    wrong = {name: pa.array(["nonsense"] * 3) for name in ("producer_id", "request_id")}
    batch = batch_of(value=VALUES, producer_name=pa.array([1, 2, 3]), **wrong)
    draft = Draft.from_arrow(batch, producer_name="n", producer_id=1, first_request_id=1)
    assert [each.request_id for each in messages_of(draft)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({"producer_name": "n" * 256}, "producer_name takes at most 255 bytes, not 256"),
        ({"producer_name": "\ud800"}, "producer_name is not valid Unicode"),
        ({"producer_name": b"n"}, "producer_name must be text, not bytes"),
        ({"producer_id": -1}, "producer_id must be a whole number"),
        ({"producer_id": False}, "producer_id must be a whole number"),
        ({"first_request_id": 2**63}, "first_request_id must be a whole number"),
        ({"first_request_id": NUMBER_MAX - 1}, "request_id must be a whole number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_producer_that_cannot_be_is_refused(given_: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PenstockError, match=sentence):
        Draft.from_arrow(batch_of(value=VALUES), **given_)


def test_a_block_of_many_rows_goes_out_and_in() -> None:
    messages = [
        Message(payload=b"%d" % each, key=b"k" * (each % 20), attributes={"n": str(each)}) for each in range(3_000)
    ]
    block: Block = scan(stamped(messages))[0]
    for views in (True, False):
        batch = block.to_arrow(views=views)
        assert int(block.columns[-1, at.OFFSET]) == 2_999
        assert Draft.parse(Draft.from_arrow(batch).data).count == 3_000
        assert restamped(Draft.from_arrow(batch)) == stamped(messages)


def test_a_map_that_names_a_key_twice_is_refused() -> None:
    attributes = pa.array([[("a", "1"), ("b", "2")], [("a", "1"), ("a", "2")]], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch({"value": pa.array([b"x", b"y"]), "attributes": attributes})
    with pytest.raises(MalformedMessage, match=r"record 1 .* an attribute is named twice"):
        Draft.from_arrow(batch)
