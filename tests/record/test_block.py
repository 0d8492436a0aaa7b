"""A block: records in a buffer, read one by one or handed on as they lie there."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from tests.record.reference import id_at, read, time_of
from tests.record.samples import FIRST_TICKS, LOW, MIXED, entry_of, stamped

from penstock.core.offsets import OffsetRange
from penstock.record import layout as at
from penstock.record.block import EMPTY, START_OF_LOG, After, scan
from penstock.record.message import Message

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
    assert After() == START_OF_LOG
    assert START_OF_LOG.next_offset < 0


def test_an_empty_block_has_no_bytes_and_no_offsets() -> None:
    assert bytes(EMPTY.raw) == b""
    assert len(EMPTY.offsets) == 0
    assert list(EMPTY) == []


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
