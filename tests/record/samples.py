"""Messages, and blocks of them, for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from tests.record.reference import Entry, id_at, time_of

from penstock.core.ids import IdRun
from penstock.record.block import Draft, stamp
from penstock.record.message import Message, Record, SchemaRef

unhurried = settings(deadline=None)  # a busy machine is not a failed property

FIRST_TICKS = 0x1F0_C2A4_E7B1_DC00
LOW = 0x9A3F_0123_4567_89AB
NUMBER_MAX = 2**63 - 1

texts = st.text(max_size=20)
short = st.one_of(texts, st.sampled_from(["", "order.created", "\0", "é漢🜁", "x" * 255, "é" * 127]))
numbers = st.one_of(st.integers(0, NUMBER_MAX), st.sampled_from([0, 1, NUMBER_MAX]))
schemas = st.builds(SchemaRef, id=numbers, version=st.integers(0, 2**31 - 1))
attribute_maps = st.one_of(
    st.dictionaries(short, texts, max_size=5),
    st.integers(1, 256).map(lambda count: {f"name-{each}": "v" * (each % 7) for each in range(count)}),
)
payloads = st.one_of(
    st.binary(max_size=100),
    st.binary(min_size=1, max_size=8).flatmap(lambda piece: st.integers(1, 2_000).map(lambda times: piece * times)),
)
messages = st.builds(
    Message,
    payload=payloads,
    type=short,
    key=st.none() | st.binary(max_size=40) | st.just(b"k" * 300),
    attributes=attribute_maps,
    producer_name=short,
    producer_id=numbers,
    request_id=numbers,
    schema=st.none() | schemas,
)
blocks = st.lists(messages, min_size=1, max_size=4)


def ids(count: int, first_ticks: int = FIRST_TICKS) -> IdRun:
    return IdRun(first_ticks, count, LOW)


def stamped(given: Iterable[Message], *, first_offset: int = 0, first_ticks: int = FIRST_TICKS) -> bytes:
    """The block as Penstock writes it."""
    draft = Draft.of(given)
    data = bytearray(draft.data)
    stamp(data, draft.count, ids(draft.count, first_ticks), first_offset)
    return bytes(data)


def entry_of(message: Message, place: int | None = None) -> Entry:
    """The message as the reference has it: a draft, or stamped as record `place` of the log."""
    id_ = bytes(16) if place is None else id_at(FIRST_TICKS + place, LOW)
    return Entry(
        id=id_,
        type=message.type.encode(),
        offset=place or 0,
        producer_id=message.producer_id,
        request_id=message.request_id,
        publish_time=0 if place is None else time_of(id_),
        schema=None if message.schema is None else (message.schema.id, message.schema.version),
        producer_name=message.producer_name.encode(),
        key=message.key,
        attributes=tuple((name.encode(), value.encode()) for name, value in message.attributes.items()),
        payload=message.payload,
    )


def entry_of_record(record: Record, place: int) -> Entry:
    """Return a record that Penstock read in the form of the reference."""
    assert record.id == id_at(FIRST_TICKS + place, LOW)
    assert record.offset == place
    assert record.publish_time_ms == time_of(record.id)
    return entry_of(record.message, place)


MIXED = (
    Message(payload=b""),
    Message(payload=b"one", type="order.created", key=b"customer-7"),
    Message(payload=b"{}" * 40, attributes={"trace": "00-4bf9", "é": "漢"}, producer_name="till-3"),
    Message(payload=b"\0" * 33, key=b"", schema=SchemaRef(7, 2)),
    Message(payload=b"x", type="t" * 255, producer_id=NUMBER_MAX, request_id=NUMBER_MAX),
    Message(payload=bytes(range(200)), type="é", attributes={"": ""}),
    Message(payload=b"\xff" * 5, schema=SchemaRef(0, 0), request_id=1),
    Message(payload=b"last but two", attributes={f"a{each}": "v" * each for each in range(9)}),
    Message(payload=b"", key=b"k" * 90, producer_name="n" * 30),
    Message(payload=b"end", type="order.paid", key=b"\0"),
)
"""Ten messages of mixed sizes with every feature of the format."""
