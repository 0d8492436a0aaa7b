"""The hash of the log equals the hash of the same rows in a table, in any order, and of no others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record.samples import stamped
from tests.spark.jobs.kit import messages

from penstock.record.block import Block, scan
from penstock.record.hashing import hash64
from penstock.record.message import Message, Record, SchemaRef
from penstock.spark.jobs.audit.digests import DAY_US, Days, days_of_block, days_of_rows
from penstock.spark.jobs.audit.partition_summary import Digest
from penstock.spark.lake.tables.columns import LOG_NAMES, SYSTEM_COLUMNS

blocks = st.lists(messages, min_size=1, max_size=8)


def block_of(given_: list[Message]) -> Block:
    return scan(stamped(given_))[0]


def plain(records: list[Record]) -> Days:
    """Return the hash as the audit's page describes it."""
    found: Days = {}
    for record in records:
        place = record.id + record.offset.to_bytes(8, "big")
        content = hash64(place + words(hash64(record.message.payload)))
        named = record.message.schema is not None
        one = Digest(
            1,
            hash64(place + bytes(8)),
            hash64(place + fields(record)),
            0 if named else content,
            content if named else 0,
            int(named),
        )
        day = record.publish_time_ms * 1000 // DAY_US
        found[day] = found.get(day, Digest()) + one
    return found


def words(*numbers: int) -> bytes:
    return b"".join((number % 2**64).to_bytes(8, "big") for number in numbers)


def fields(record: Record) -> bytes:
    message = record.message
    schema = (0, 0) if message.schema is None else (message.schema.id, message.schema.version)
    flags = (message.schema is not None) + 2 * (message.key is not None)
    pairs = (words(hash64(name.encode()), hash64(value.encode())) for name, value in message.attributes.items())
    texts = (message.type.encode(), message.producer_name.encode(), message.key or b"")
    numbers = (record.publish_time_ms * 1000, message.producer_id, message.request_id, *schema, flags)
    return words(*numbers, *map(hash64, texts), sum(map(hash64, pairs)))


def batch(records: list[Record], *, payloads: bool = True, other: dict[str, Any] | None = None) -> pa.RecordBatch:
    """Return rows as a table has them, under the names of the log; `other` replaces values of a column."""
    found = []
    for record in records:
        message, schema = record.message, record.message.schema
        own = {
            "id": record.id,
            "offset": int(record.offset),
            "timestamp": record.publish_time_ms * 1000,
            "producer_name": message.producer_name,
            "producer_id": message.producer_id,
            "request_id": message.request_id,
            "schema_id": None if schema is None else schema.id,
            "schema_version": None if schema is None else schema.version,
            "attributes": list(message.attributes.items())[::-1] or None,
            "type": message.type,
            "key": message.key,
            "value": message.payload if payloads else None,
        }
        found.append(own | (other or {}))
    kinds = pa.schema([(source, SYSTEM_COLUMNS.field(name).type) for name, source in LOG_NAMES.items()])
    return pa.RecordBatch.from_pylist(found, schema=kinds)


def rows(records: list[Record], *, payloads: bool = True) -> Days:
    return days_of_rows(batch(records, payloads=payloads))


@given(blocks)
def test_the_digest_of_a_block_is_what_the_page_says(given_: list[Message]) -> None:
    block = block_of(given_)
    assert days_of_block(block) == plain(list(block))


@given(blocks, st.randoms())
def test_rows_of_a_table_have_the_digest_of_the_log_in_any_order(given_: list[Message], chance: object) -> None:
    block = block_of(given_)
    records = list(block)
    chance.shuffle(records)  # type: ignore[attr-defined]
    assert rows(records) == days_of_block(block)


def test_a_slice_of_a_batch_has_its_own_rows_alone() -> None:
    block = block_of(
        [
            Message(payload=bytes([n]) * n, key=b"k" * n, attributes={str(each): "v" for each in range(n)})
            for n in range(5)
        ]
    )
    records = list(block)
    assert days_of_rows(batch(records).slice(1, 3)) == plain(records[1:4])


def test_rows_without_payload_are_counted_and_all_else_of_them_is_the_same() -> None:
    block = block_of([Message(payload=b"a"), Message(payload=b"b", schema=SchemaRef(1, 1))])
    (without_payload,), (whole,) = rows(list(block), payloads=False).values(), days_of_block(block).values()
    assert (without_payload.count, without_payload.places, without_payload.fields) == (
        whole.count,
        whole.places,
        whole.fields,
    )
    assert (without_payload.named, without_payload.without_payload, without_payload.payload_lost) == (1, 1, 1)
    assert without_payload.contents != whole.contents


def test_a_companion_has_every_payload() -> None:
    records = list(block_of([Message(payload=b"a", schema=SchemaRef(1, 1))]))
    (found,) = days_of_rows(batch(records, payloads=False), in_bad_table=True).values()
    assert (found.named, found.in_bad_table, found.without_payload, found.payload_lost) == (1, 1, 0, 1)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("timestamp", 1),
        ("producer_name", "x"),
        ("producer_id", 99),
        ("request_id", 99),
        ("schema_id", 99),
        ("schema_version", 99),
        ("attributes", [("a", "c")]),
        ("attributes", None),
        ("type", "x"),
        ("key", b"x"),
        ("key", None),
    ],
)
def test_every_other_field_shows(column: str, value: object) -> None:
    message = Message(payload=b"a", key=b"", type="t", attributes={"a": "b"}, schema=SchemaRef(1, 1))
    records = list(block_of([message]))
    (whole,), (other,) = rows(records).values(), days_of_rows(batch(records, other={column: value})).values()
    assert (whole.places, whole.count) == (other.places, other.count)
    assert whole.fields != other.fields


def test_a_changed_payload_a_changed_offset_and_a_repeated_row_all_show() -> None:
    records = list(block_of([Message(payload=b"a"), Message(payload=b"b")]))
    changed = list(block_of([Message(payload=b"a"), Message(payload=b"c")]))
    whole = rows(records)
    assert rows(changed) != whole
    assert rows([records[0], records[0]]) != whole
    assert rows([*records, records[0]]) != whole
    assert {digest.count for digest in whole.values()} == {2}


def test_nothing_has_no_days() -> None:
    assert days_of_rows(batch([])) == {}
    assert Counter() == Counter(days_of_block(block_of([Message(payload=b"")]).select(0, 0)))
