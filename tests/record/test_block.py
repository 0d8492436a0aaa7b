"""A block: records in a buffer, read one by one or handed on as they lie there."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.record.reference import Entry, id_at, read, time_of, write
from tests.record.samples import FIRST_TICKS, LOW, MIXED, blocks, entry_of, stamped, unhurried

from penstock.core.offsets import OffsetRange
from penstock.record import layout as at
from penstock.record.block import EMPTY_BLOCK, START_OF_LOG, Block, Predecessor, parse_block, scan
from penstock.record.message import Message, SchemaRef, key_hash
from penstock.record.rows import NO_ATTRIBUTES, attributes_of

FIRST_OFFSET = 40
BLOCK = stamped(MIXED, first_offset=FIRST_OFFSET)


def test_every_field_of_a_record_can_be_read_by_itself() -> None:
    block, _ = scan(BLOCK)
    for place, message in enumerate(MIXED):
        id_ = id_at(FIRST_TICKS + place, LOW)
        assert block.id(place) == id_
        assert block.type(place) == message.type
        assert bytes(block.payload(place)) == message.payload
        record = block.record(place)
        assert (record.id, record.offset, record.publish_time_ms) == (id_, FIRST_OFFSET + place, time_of(id_))
        assert record.message == message
    assert [record.message for record in block] == list(MIXED)


def test_the_reference_reads_the_same_from_the_raw_bytes() -> None:
    entries = [entry for _, entry in read(BLOCK)]
    for place, (entry, message) in enumerate(zip(entries, MIXED, strict=True)):
        expected = entry_of(message, place)
        assert entry.offset == FIRST_OFFSET + place
        assert (entry.id, entry.payload, entry.attributes) == (expected.id, expected.payload, expected.attributes)


def test_the_raw_bytes_are_those_of_its_records_and_no_others() -> None:
    block, _ = scan(b"before" + BLOCK + bytes(100), start=6)
    assert bytes(block.raw) == BLOCK
    assert bytes(block.select(3, 7).raw) == BLOCK[block.columns[2, at.END] - 6 : block.columns[6, at.END] - 6]
    assert bytes(block.select(3, 3).raw) == b""


def test_a_selection_is_a_block_of_the_same_buffer() -> None:
    block, _ = scan(BLOCK)
    for start in range(len(MIXED) + 1):
        for stop in range(start, len(MIXED) + 1):
            chosen = block.select(start, stop)
            assert chosen.data is block.data
            assert [record.message for record in chosen] == list(MIXED[start:stop])
            assert len(chosen) == stop - start
            if len(chosen):
                assert chosen.offsets == OffsetRange.of(FIRST_OFFSET + start, FIRST_OFFSET + stop)


def test_what_the_next_scan_must_know_leads_from_one_block_to_the_next() -> None:
    block, _ = scan(BLOCK)
    more = stamped([Message(payload=b"more")], first_offset=FIRST_OFFSET + 10, first_ticks=FIRST_TICKS + 10)
    assert len(scan(more, after=block.last)[0]) == 1
    assert scan(BLOCK, after=block.last)[1].reason == at.BAD_OFFSET
    assert len(scan(more, after=block.select(0, 9).last)[0]) == 0


def test_nothing_comes_before_the_start_of_a_log() -> None:
    assert Predecessor() == START_OF_LOG
    assert START_OF_LOG.next_offset < 0


def test_an_empty_block_has_no_bytes_and_no_offsets() -> None:
    assert bytes(EMPTY_BLOCK.raw) == b""
    assert len(EMPTY_BLOCK.offsets) == 0
    assert list(EMPTY_BLOCK) == []


def test_a_payload_is_a_window_into_the_buffer() -> None:
    data = bytearray(BLOCK)
    block, _ = scan(data)
    payload = block.payload(5)
    data[data.index(bytes(range(200)))] = 0xEE
    assert payload[0] == 0xEE


def test_a_block_keeps_its_buffer_alive() -> None:
    block, _ = scan(bytearray(BLOCK))
    payload, raw = block.payload(5), block.raw
    del block
    gc.collect()
    assert bytes(payload) == bytes(range(200))
    assert bytes(raw) == BLOCK


@pytest.mark.parametrize("row", [len(MIXED), -len(MIXED) - 1])
def test_there_is_no_record_past_the_last(row: int) -> None:
    block, _ = scan(BLOCK)
    with pytest.raises(IndexError):
        block.record(row)


def test_columns_hold_what_the_records_do() -> None:
    columns = scan(BLOCK)[0].columns
    assert columns.dtype == np.int64
    assert columns[:, at.OFFSET].tolist() == list(range(FIRST_OFFSET, FIRST_OFFSET + len(MIXED)))
    assert columns[:, at.TYPE_BYTES].tolist() == [len(each.type.encode()) for each in MIXED]
    assert columns[:, at.KEY_BYTES].tolist() == [len(each.key or b"") for each in MIXED]
    assert columns[:, at.ATTRIBUTES].tolist() == [len(each.attributes) for each in MIXED]
    assert columns[:, at.PRODUCER_ID].tolist() == [each.producer_id for each in MIXED]
    assert columns[:, at.REQUEST_ID].tolist() == [each.request_id for each in MIXED]
    sizes = columns[:, at.END] - columns[:, at.PAYLOAD] - at.CHECKSUM_BYTES
    assert sizes.tolist() == [len(each.payload) for each in MIXED]
    flags = [(each.schema is not None) * at.FLAG_SCHEMA + (each.key is not None) * at.FLAG_KEY for each in MIXED]
    assert columns[:, at.FLAGS].tolist() == flags


# Rows


def row_of(message: Message, place: int) -> tuple[Any, ...]:
    """Return the fields of a row."""
    id_ = id_at(FIRST_TICKS + place, LOW)
    head = (id_, place, time_of(id_), message.type, message.key, message.payload)
    producer = (message.producer_name, message.producer_id, message.request_id)
    return (*head, *producer, message.schema, message.attributes or None)


@given(blocks)
@unhurried
def test_rows_hold_what_the_messages_do(messages: list[Message]) -> None:
    block, _ = scan(b"before" + stamped(messages), start=6)
    assert block.rows() == [row_of(message, place) for place, message in enumerate(messages)]


def test_rows_of_a_part_are_part_of_the_rows() -> None:
    block, _ = scan(BLOCK)
    rows = block.rows()
    for start in range(len(MIXED) + 1):
        for stop in range(start, len(MIXED) + 1):
            assert block.select(start, stop).rows() == rows[start:stop]
    assert Block(block.data, block.columns[::-1].copy()).rows() == rows[::-1]
    assert EMPTY_BLOCK.rows() == []


@given(blocks, st.sampled_from(["", "name-7", "order.created", "é漢🜁", "nowhere"]))
@unhurried
def test_the_values_of_one_attribute_are_found_by_row(messages: list[Message], name: str) -> None:
    block, _ = scan(b"before" + stamped(messages), start=6)
    found = {place: each.attributes[name] for place, each in enumerate(messages) if name in each.attributes}
    assert block.attribute(name, np.ones(len(block), np.bool_)) == found
    assert block.attribute(name, np.zeros(len(block), np.bool_)) == {}


def test_some_records_get_other_schemas_and_the_rest_stays() -> None:
    block, _ = scan(BLOCK)
    changed = block.with_schemas(np.array([1, 4]), np.array([7, 2**63 - 1]), np.array([2**31 - 1, 0]))
    named = {1: SchemaRef(7, 2**31 - 1), 4: SchemaRef(2**63 - 1, 0)}
    wanted = [replace(message, schema=named.get(row, message.schema)) for row, message in enumerate(MIXED)]
    assert [record.message for record in changed] == wanted
    assert parse_block(changed.data, verify=False).columns.tolist() == changed.columns.tolist()
    assert [record.message for record in block] == list(MIXED)


def test_records_without_attributes_share_those_that_none_has() -> None:
    block, _ = scan(BLOCK)
    for row, message in zip(block.rows(), MIXED, strict=True):
        assert attributes_of(row) == message.attributes
        assert (attributes_of(row) is NO_ATTRIBUTES) == (not message.attributes)


def test_the_garbage_collector_has_no_interest_in_plain_rows() -> None:
    block, _ = scan(stamped([Message(payload=b"x", key=b"k", type="t", producer_name="p")] * 3))
    rows = block.rows()
    gc.collect()  # finds out about tuples when it meets them
    assert not any(map(gc.is_tracked, rows))


@pytest.mark.parametrize(
    "given",
    [
        {"type": b"a\xff"},
        {"producer_name": b"\xc3"},
        {"attributes": ((b"\x80", b"v"),)},
        {"attributes": ((b"a", b"\xff"),)},
    ],
)
def test_a_record_whose_text_is_none_is_not_read_and_its_message_is_where_messages_are_any_bytes(given: Any) -> None:
    data = write(Entry(id=id_at(4)), Entry(id=id_at(5), **given))
    block, stop = scan(data)
    assert (len(block), str(stop)) == (1, "type, producer name or an attribute is not UTF-8")
    raw, stop = scan(data, envelopes=False)
    assert (len(raw), stop.reason) == (2, at.AT_END)
    assert raw.type(1) == given.get("type", b"").decode(errors="replace")


def test_many_records_are_read_in_order_and_can_be_pickled() -> None:
    messages = [Message(payload=b"%d" % each) for each in range(3_000)]
    block, _ = scan(stamped(messages))
    records = list(block)
    assert [record.message for record in records] == messages
    assert pickle.loads(pickle.dumps(records[7])) == block.record(7) == records[7]


def test_the_largest_fields_are_read_whole() -> None:
    message = Message(
        payload=bytes(1 << 20),
        type="t" * 255,
        key=b"k" * 65_535,
        producer_name="n" * 255,
        attributes={"a" * 255: "v" * (256 * 1024 - 261)},
    )
    block, _ = scan(stamped([message]))
    assert block.rows() == [row_of(message, 0)]
    assert block.key_hashes().tolist() == [key_hash(message.key or b"")]
    assert bytes(block.gather(np.array([0, 0])).raw) == bytes(block.raw) * 2


# Keys


@given(blocks)
@unhurried
def test_keys_are_hashed_as_plain_python_does(messages: list[Message]) -> None:
    hashes = scan(stamped(messages))[0].key_hashes()
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == [0 if message.key is None else key_hash(message.key) for message in messages]


def test_no_record_has_no_hash_and_a_part_has_its_own() -> None:
    assert EMPTY_BLOCK.key_hashes().tolist() == []
    block, _ = scan(BLOCK)
    assert block.select(3, 9).key_hashes().tolist() == block.key_hashes().tolist()[3:9]


# Gathering


def check_gathered(block: Block, rows: list[int]) -> None:
    ends = block.columns[:, at.END].tolist()
    starts = block.columns[:, at.START].tolist()
    whole = block.data.tobytes()
    gathered = block.gather(np.array(rows, dtype=np.int64))
    assert bytes(gathered.raw) == gathered.data.tobytes() == b"".join(whole[starts[row] : ends[row]] for row in rows)
    if rows:
        assert gathered.columns.tolist() == parse_block(gathered.data).columns.tolist()


@given(blocks, st.data())
@settings(unhurried, max_examples=60)
def test_gathered_records_lie_behind_each_other_and_the_columns_know(messages: list[Message], data: Any) -> None:
    block, _ = scan(b"before" + stamped(messages), start=6)
    check_gathered(block, data.draw(st.lists(st.integers(0, len(messages) - 1), max_size=8)))


def test_any_rows_in_any_order_can_be_gathered() -> None:
    block, _ = scan(BLOCK)
    for rows in ([], [9], [0, 9], [9, 0, 9, 9], list(range(10)), list(range(9, -1, -1))):
        check_gathered(block, rows)
        check_gathered(block.select(0, 10), rows)
    before = block.columns.copy()
    wanted = np.arange(10) % 3 == 1
    assert [record.message for record in block.gather(wanted)] == [MIXED[1], MIXED[4], MIXED[7]]
    assert [record.message for record in block.select(2, 8).gather(np.array([-1, 0]))] == [MIXED[7], MIXED[2]]
    assert (block.columns == before).all()
    assert len(EMPTY_BLOCK.gather(np.zeros(0, np.int64))) == 0


@pytest.mark.parametrize("row", [10, -11, 2**40])
def test_a_row_that_is_not_there_is_not_gathered(row: int) -> None:
    with pytest.raises(IndexError):
        scan(BLOCK)[0].gather(np.array([0, row]))


# Filters


def wanted_of(messages: Sequence[Message], types: Sequence[str], keys: Sequence[str]) -> list[bool]:
    """Return which messages match, tried one by one."""
    return [
        (not types or any(fnmatchcase(each.type, glob) for glob in types))
        and (
            not keys
            or (each.key is not None and any(fnmatchcase(each.key.decode(errors="replace"), glob) for glob in keys))
        )
        for each in messages
    ]


globs = st.lists(
    st.sampled_from(["*", "?", "a*", "*b", "[ab]*", "[!a]*", "order.*", "", "é?", "A*", "[", "*.*"])
    | st.text("ab*?[]!.é"),
    max_size=3,
)
some_texts = st.text("abAé.[]", max_size=4)
some_keys = st.none() | some_texts.map(str.encode) | st.binary(max_size=3)


@given(st.lists(st.tuples(some_texts, some_keys), min_size=1, max_size=80), globs, globs)
@unhurried
def test_globs_match_as_fnmatch_has_it(
    pairs: list[tuple[str, bytes | None]], types: list[str], keys: list[str]
) -> None:
    messages = [Message(payload=b"", type=type_, key=key) for type_, key in pairs]
    found = scan(stamped(messages))[0].matching(types, keys)
    assert found.dtype == np.bool_
    assert found.tolist() == wanted_of(messages, types, keys)


@pytest.mark.parametrize("distinct", [1, 2, 31, 32, 33, 100, 2_000])
def test_it_matters_little_how_many_types_and_keys_there_are(distinct: int) -> None:
    messages = [
        Message(payload=b"", type=f"type.{each % distinct}", key=b"%d" % (each * 7 % distinct)) for each in range(2_000)
    ]
    block, _ = scan(stamped(messages))
    for types, keys in ((["type.1*"], []), ([], ["*1", "?"]), (["*.?", "*0"], ["[0-5]*"])):
        assert block.matching(types, keys).tolist() == wanted_of(messages, types, keys)


def test_no_glob_matches_a_key_that_is_not_there() -> None:
    block, _ = scan(stamped([Message(payload=b""), Message(payload=b"", key=b""), Message(payload=b"", key=b"\xff")]))
    assert block.matching(keys=["*"]).tolist() == [False, True, True]
    assert block.matching(keys=["?"]).tolist() == [False, False, True]
    assert block.matching().tolist() == [True] * 3
    assert EMPTY_BLOCK.matching(["*"], ["*"]).tolist() == []
