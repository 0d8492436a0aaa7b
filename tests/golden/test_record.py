"""A block of records as release 1 wrote it: today's code reads it, and writes the same bytes again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.record.reference import Entry, id_at, read, write

from penstock.core.ids import IdRun, format_id
from penstock.record import layout as at
from penstock.record.block import Draft, Predecessor, ScanStop, scan, stamp
from penstock.record.message import Message, SchemaRef

GOLDEN = Path(__file__).with_name("record-1.bin")

FIRST_OFFSET = 41
FIRST_TICKS = 0x1F0_C2A4_E7B1_DC00
LOW = 0x9A3F_0123_4567_89AB
FIRST_ID = "1f0c2a4e-7b1d-6c00-9a3f-0123456789ab"
PUBLISHED_MS = 1_763_267_396_610

MESSAGES = (
    Message(payload=b""),
    Message(payload=b"plain"),
    Message(payload=b"{}", type="order.created", key=b"customer-7", schema=SchemaRef(7, 2)),
    Message(payload=b"\x00\xff\x00", key=b"", schema=SchemaRef(0, 0)),
    Message(payload=b"p", type="é.漢", attributes={"trace": "00-4bf92f35", "": "", "ключ": "🜁"}),
    Message(payload=b"p", producer_name="till-3", producer_id=2**63 - 1, request_id=2**63 - 1),
    Message(payload=bytes(range(256)), type="t" * 255, schema=SchemaRef(2**63 - 1, 2**31 - 1)),
    Message(payload=b"\0" * 40, key=b"\0" * 40, producer_name="n" * 255, producer_id=1, request_id=2),
)


def entries() -> list[Entry]:
    return [
        Entry(
            id=id_at(FIRST_TICKS + place, LOW),
            type=message.type.encode(),
            offset=FIRST_OFFSET + place,
            producer_id=message.producer_id,
            request_id=message.request_id,
            publish_time=PUBLISHED_MS,
            schema=None if message.schema is None else (message.schema.id, message.schema.version),
            producer_name=message.producer_name.encode(),
            key=message.key,
            attributes=tuple((name.encode(), value.encode()) for name, value in message.attributes.items()),
            payload=message.payload,
        )
        for place, message in enumerate(MESSAGES)
    ]


def test_the_reference_reads_and_writes_it() -> None:
    golden = GOLDEN.read_bytes()
    assert [entry for _, entry in read(golden)] == entries()
    assert write(*entries()) == golden


def test_today_s_code_reads_it() -> None:
    golden = GOLDEN.read_bytes()
    block, stop = scan(golden, after=Predecessor(0, 0, FIRST_OFFSET))
    assert stop == ScanStop(len(golden), at.AT_END)
    assert tuple(record.message for record in block) == MESSAGES
    assert [record.offset for record in block] == list(range(FIRST_OFFSET, FIRST_OFFSET + len(MESSAGES)))
    assert {record.publish_time_ms for record in block} == {PUBLISHED_MS}
    assert [record.id for record in block] == [id_at(FIRST_TICKS + place, LOW) for place in range(len(MESSAGES))]
    assert format_id(block.id(0)) == FIRST_ID


def test_today_s_code_writes_it() -> None:
    data = bytearray(Draft.of(MESSAGES).data)
    stamp(data, len(MESSAGES), IdRun(FIRST_TICKS, len(MESSAGES), LOW), FIRST_OFFSET)
    assert bytes(data) == GOLDEN.read_bytes()


@pytest.mark.parametrize("views", [True, False])
def test_today_s_code_gives_it_to_arrow_and_takes_it_back(views: bool) -> None:
    golden = GOLDEN.read_bytes()
    batch = scan(golden)[0].to_arrow(views=views)
    batch.validate(full=True)
    data = bytearray(Draft.from_arrow(batch).data)
    stamp(data, len(MESSAGES), IdRun(FIRST_TICKS, len(MESSAGES), LOW), FIRST_OFFSET)
    assert bytes(data) == golden
