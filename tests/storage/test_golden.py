"""Files of every released format, byte for byte. A change that breaks one of these tests is a new format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.core.ids import IdGenerator, format_id
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.record.message import Message, SchemaRef
from penstock.storage.base.disk import OsDisk
from penstock.storage.inspect.verify import verify_segment
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import read, view_of
from penstock.testing import FaultDisk, ManualClock

GOLDEN = Path(__file__).parent.parent / "golden" / "log-1"
LOG_PATH = Path("/log")
LIMITS = Limits(
    payload_bytes_max=2048, block_bytes_max=4096, segment_bytes_first=4096, segment_bytes_max=4096, disk_reserve_bytes=1
)


def messages() -> list[Message]:
    """Every feature of the envelope, twice over a sealed and a closed segment."""
    return [
        Message(payload=b""),
        Message(payload=b"plain", type="greeting"),
        Message(payload=b"\x00\xff" * 8, type="bytes", key=b""),
        Message(payload=b'{"order": 1}', type="order.created", key=b"customer-7", schema=SchemaRef(3, 2)),
        Message(payload="Grüße".encode(), type="größe", attributes={"traceparent": "00-1-2-3", "ключ": "значение"}),
        Message(payload=bytes(1500), producer_name="orders-service", producer_id=2**63 - 1, request_id=2**40),
    ]


def build() -> FaultDisk:
    disk, clock = FaultDisk(), ManualClock()
    ids = IdGenerator(clock, node=0x0123_4567_89AB_CDEF)
    with Log.open(disk, LOG_PATH, ids=ids, clock=clock, limits=LIMITS) as log:
        for message in messages() * 2:
            log.append(Draft.of([message]))
            clock.advance_ms(1)
        log.roll()
        log.append(Draft.of(messages()))
    return disk


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.*")), ids=lambda path: path.name)
def test_todays_code_writes_the_same_bytes(path: Path) -> None:
    if path.suffix != ".json":
        assert bytes(build().content(LOG_PATH / path.name)) == path.read_bytes()


def test_todays_code_reads_what_was_written_then() -> None:
    expected = json.loads((GOLDEN / "expected.json").read_text())
    view = view_of(OsDisk(), GOLDEN)
    found, offset = [], 0
    while offset < view.next_offset:
        chunk = read(OsDisk(), view, offset)
        found += [[record.offset, format_id(record.id), record.publish_time_ms] for record in chunk]
        assert [record.message for record in chunk] == (messages() * 3)[offset : chunk.next_offset]
        offset = chunk.next_offset
    assert found == expected


def test_the_golden_segments_verify() -> None:
    reports = [verify_segment(OsDisk(), path) for path in sorted(GOLDEN.glob("*.seg"))]
    assert [report.records for report in reports] == [11, 1, 6]
    assert [problem for report in reports for problem in report.problems] == []
