"""The numbers of the layout are those of the format."""

from __future__ import annotations

import struct

from tests.record.reference import FIXED, Entry, envelope, write

from penstock.record import layout as at

COLUMNS = (
    *("START", "END", "ID_HIGH", "ID_LOW", "TYPE_BYTES", "OFFSET", "PRODUCER_ID", "REQUEST_ID", "PUBLISH_TIME"),
    *("SCHEMA_ID", "SCHEMA_VERSION", "FLAGS", "NAME_BYTES", "KEY_BYTES", "ATTRIBUTES", "PAYLOAD"),
)
REASONS = (
    *("AT_END", "UNUSED", "CUT", "BAD_CHECKSUM", "BAD_ENVELOPE", "BAD_ID", "BAD_ORDER", "BAD_OFFSET", "MORE"),
    "BAD_TEXT",
)


def test_the_fixed_part_of_the_envelope_lies_where_the_format_has_it() -> None:
    places = [struct.calcsize(FIXED.format[: 1 + before]) for before in range(1, 9)]
    assert places == [
        *(at.FLAGS_AT, at.OFFSET_AT, at.PRODUCER_ID_AT, at.REQUEST_ID_AT),
        *(at.PUBLISH_TIME_AT, at.SCHEMA_ID_AT, at.SCHEMA_VERSION_AT, at.NAME_LENGTH_AT),
    ]


def test_the_smallest_sizes_are_those_of_a_message_without_anything() -> None:
    assert len(envelope(Entry())) == at.ENVELOPE_BYTES_MIN
    assert len(write(Entry())) == at.MESSAGE_RECORD_BYTES_MIN
    assert len(write(Entry())) - len(envelope(Entry())) == at.RECORD_BYTES_MIN


def test_the_type_follows_its_length_and_the_id() -> None:
    data = write(Entry(id=bytes(range(16)), type=b"type"))
    assert data[: at.ID_BYTES] == bytes(range(16))
    assert data[at.TYPE_LENGTH_AT] == 4
    assert data[at.TYPE_AT : at.TYPE_AT + 4] == b"type"


def test_every_column_has_a_place_of_its_own_in_a_row() -> None:
    assert sorted(getattr(at, name) for name in COLUMNS) == list(range(at.COLUMNS))
    assert at.ROW_BYTES == 8 * at.COLUMNS


def test_every_reason_to_stop_has_a_sentence_of_its_own() -> None:
    assert sorted(getattr(at, name) for name in REASONS) == sorted(at.REASONS)
    assert len(set(at.REASONS.values())) == len(REASONS)


def test_ways_to_scan_can_be_combined() -> None:
    assert at.VERIFY | at.ENVELOPES | at.STAMPED | at.TEXTS == at.VERIFY + at.ENVELOPES + at.STAMPED + at.TEXTS == 15
