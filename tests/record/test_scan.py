"""Reading stamped records: every one that is right, and where and why reading stops."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from tests.record.reference import Entry, envelope, id_at, record, sized, write
from tests.record.samples import FIRST_TICKS, LOW, MIXED, blocks, entry_of, entry_of_record, stamped, unhurried

from penstock.core.errors import InvalidRequest
from penstock.record import layout as at
from penstock.record.block import EMPTY_BLOCK, Block, Predecessor, ScanStop, scan
from penstock.record.message import Message

BLOCK = stamped(MIXED)
ENDS = [int(end) for end in scan(BLOCK)[0].columns[:, at.END]]
STARTS = [0, *ENDS[:-1]]


def after_tick(ticks: int, next_offset: int = -1) -> Predecessor:
    high, low = struct.unpack(">qq", id_at(ticks, LOW))
    return Predecessor(high, low, next_offset)


def ends_of(block: Block) -> list[int]:
    return [int(end) for end in block.columns[:, at.END]]


def whole_before(place: int) -> int:
    """Return how many records of BLOCK end by `place`."""
    return sum(end <= place for end in ENDS)


# What is right


@given(blocks)
@unhurried
def test_what_the_reference_writes_is_read_back_field_by_field(messages: list[Message]) -> None:
    data = write(*(entry_of(message, place) for place, message in enumerate(messages)))
    block, stop = scan(data, after=Predecessor(0, 0, 0))
    assert stop == ScanStop(len(data), at.AT_END)
    assert [each.message for each in block] == messages
    for place, message in enumerate(messages):
        assert entry_of_record(block.record(place), place) == entry_of(message, place)


def test_nothing_is_read_from_nothing() -> None:
    block, stop = scan(b"")
    assert (len(block), stop) == (0, ScanStop(0, at.AT_END))
    assert str(stop) == "end of the data"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, dtype=np.uint8)])
def test_any_buffer_can_be_read(kind: type[bytes]) -> None:
    block, stop = scan(kind(BLOCK))
    assert [each.message for each in block] == list(MIXED)
    assert stop == ScanStop(len(BLOCK), at.AT_END)


def test_positions_count_from_the_start_of_the_buffer() -> None:
    block, stop = scan(b"\xff" * 100 + BLOCK + b"\xff" * 100, start=100, stop=100 + len(BLOCK))
    assert stop == ScanStop(100 + len(BLOCK), at.AT_END)
    assert ends_of(block) == [100 + end for end in ENDS]
    assert [each.message for each in block] == list(MIXED)


@pytest.mark.parametrize(("start", "stop"), [(-1, None), (1, 0), (0, 101), (101, None), (0, -1)])
def test_a_range_outside_the_buffer_is_refused(start: int, stop: int | None) -> None:
    with pytest.raises(InvalidRequest, match="does not fit in 100 bytes"):
        scan(bytes(100), start=start, stop=stop)


@pytest.mark.parametrize("verify", [True, False])
def test_bytes_outside_the_range_do_not_matter(verify: bool) -> None:
    chance = random.Random(1)
    for _ in range(200):
        inside = bytearray(BLOCK[: chance.randrange(len(BLOCK))])
        for _ in range(chance.randrange(3)):
            if inside:
                inside[chance.randrange(len(inside))] = chance.choice((0, 1, 0xFF, chance.randrange(256)))
        found = []
        for edge in (bytes(40), b"\xff" * 40, BLOCK[:40]):
            block, stop = scan(edge + inside + edge, start=40, stop=40 + len(inside), verify=verify)
            found.append((block.columns.tolist(), stop))
        assert found[0] == found[1] == found[2]


# Where the data ends


@pytest.mark.parametrize("zeros", [*range(1, 34), 4_096])
def test_zeros_where_an_id_would_be_are_unused_space(zeros: int) -> None:
    block, stop = scan(BLOCK + bytes(zeros))
    assert stop == ScanStop(len(BLOCK), at.UNUSED)
    assert len(block) == len(MIXED)


@pytest.mark.parametrize("zeros", range(1, 16))
def test_zeros_that_end_before_an_id_does_are_not_unused_space(zeros: int) -> None:
    assert scan(BLOCK + bytes(zeros) + b"\1")[1].reason in (at.CUT, at.BAD_ID)
    assert scan(BLOCK + bytes(zeros) + b"\1" + bytes(200))[1].reason != at.UNUSED


def test_whatever_follows_sixteen_zeros_is_not_looked_at() -> None:
    assert scan(bytes(16) + BLOCK)[1] == ScanStop(0, at.UNUSED)


@pytest.mark.parametrize("verify", [True, False])
def test_a_block_cut_anywhere_is_read_up_to_its_last_whole_record(verify: bool) -> None:
    for size in range(len(BLOCK)):
        block, stop = scan(BLOCK[:size], verify=verify)
        count = whole_before(size)
        position = STARTS[count]
        assert ends_of(block) == ENDS[:count]
        assert stop == ScanStop(position, at.AT_END if size == position else at.CUT)


def test_an_unfinished_write_into_unused_space_is_read_up_to_its_last_whole_record() -> None:
    for size in range(len(BLOCK)):
        data = BLOCK[:size] + bytes(len(BLOCK) - size + 64)
        count = sum(data[:end] == BLOCK[:end] for end in ENDS)
        block, stop = scan(data)
        assert ends_of(block) == ENDS[:count]
        assert stop.position == STARTS[count]
        assert (stop.reason == at.UNUSED) == (size == STARTS[count])


# Damage


def test_every_flipped_bit_is_found_in_the_record_it_hit() -> None:
    data = bytearray(BLOCK)
    for place, bit in itertools.product(range(len(data)), range(8)):
        data[place] ^= 1 << bit
        block, stop = scan(data)
        count = whole_before(place)
        assert ends_of(block) == ENDS[:count]
        assert stop.position == STARTS[count]
        assert stop.reason in (at.BAD_CHECKSUM, at.CUT)
        data[place] ^= 1 << bit


def test_without_verifying_a_wrong_checksum_is_believed() -> None:
    data = bytearray(BLOCK)
    for end in ENDS:
        data[end - 1] ^= 0xFF
    assert scan(data)[1] == ScanStop(0, at.BAD_CHECKSUM)
    block, stop = scan(data, verify=False)
    assert [each.message for each in block] == list(MIXED)
    assert stop == ScanStop(len(BLOCK), at.AT_END)


@pytest.mark.parametrize("place", range(len(MIXED)))
def test_reading_can_go_on_behind_a_damaged_record(place: int) -> None:
    data = bytearray(BLOCK)
    data[ENDS[place] - 9] ^= 1
    assert scan(data)[1] == ScanStop(STARTS[place], at.BAD_CHECKSUM)
    block, stop = scan(data, start=ENDS[place], after=after_tick(FIRST_TICKS + place, place + 1))
    assert stop == ScanStop(len(BLOCK), at.AT_END)
    assert [each.message for each in block] == list(MIXED[place + 1 :])


# Envelopes that are none, under a checksum that holds

GOOD = Entry(id=id_at(FIRST_TICKS, LOW), type=b"t", producer_name=b"name", key=b"key", schema=(1, 2), payload=b"")
FIXED_PART = envelope(GOOD)[:46]


def with_byte(place: int, value: int, entry: Entry = GOOD) -> bytes:
    message = bytearray(envelope(entry))
    message[place] = value
    return bytes(message)


def tail(*parts: bytes) -> bytes:
    return FIXED_PART + b"".join(parts)


NO = b"\0\0"
WRONG = {
    "version 0": with_byte(0, 0),
    "version 2": with_byte(0, 2),
    "version 255": with_byte(0, 255),
    "flag 2": with_byte(1, 4 | 3),
    "flag 7": with_byte(1, 128 | 3),
    "a schema id without its flag": with_byte(1, 2),
    "a schema version without its flag": with_byte(1, 2, replace(GOOD, schema=(0, 1))),
    "a key without its flag": with_byte(1, 1),
    "nothing": b"",
    "the version alone": b"\1",
    "the fixed part alone": FIXED_PART,
    "a name that reaches past the end": tail(b"\0\5name", NO, NO),
    "a name of 65535 bytes": tail(b"\xff\xff", NO, NO),
    "a name up to the end": tail(b"\0\4name"),
    "half a length of the key": tail(b"\0\4name", b"\0"),
    "a key that reaches past the end": tail(NO, b"\0\3k", b"\0"),
    "a key of 65535 bytes": tail(NO, b"\xff\xff", NO),
    "a key up to the end": tail(NO, b"\0\3key"),
    "half a number of attributes": tail(NO, b"\0\3key", b"\0"),
    "one attribute and none there": tail(NO, NO, b"\0\1"),
    "65535 attributes and none there": tail(NO, NO, b"\xff\xff"),
    "half a length of an attribute's name": tail(NO, NO, b"\0\1", b"\0"),
    "an attribute's name up to the end": tail(NO, NO, b"\0\1", b"\0\4name"),
    "an attribute's name past the end": tail(NO, NO, b"\0\1", b"\0\5name"),
    "half a length of an attribute's value": tail(NO, NO, b"\0\1", b"\0\4name", b"\0\0\0"),
    "an attribute's value past the end": tail(NO, NO, b"\0\1", b"\0\4name", b"\0\0\0\6value"),
    "an attribute's value of 4 GiB": tail(NO, NO, b"\0\1", b"\0\4name", b"\xff\xff\xff\xffvalue"),
    "an attribute's value of 2 GiB": tail(NO, NO, b"\0\1", b"\0\4name", b"\x80\0\0\0value"),
    "two attributes and one there": tail(NO, NO, b"\0\2", b"\0\1n", b"\0\0\0\1v"),
    "65535 attributes and 65534 there": tail(NO, NO, b"\xff\xff", bytes(6) * 65_534),
}
RIGHT = {
    "all lengths zero": tail(NO, NO, NO),
    "payload alone": tail(NO, NO, NO, b"payload"),
    "an empty attribute": tail(NO, NO, b"\0\1", bytes(6)),
    "65535 attributes": tail(NO, NO, b"\xff\xff", bytes(6) * 65_535),
    "a name up to the key": tail(sized(">H", b"n" * 65_535), sized(">H", b"k" * 65_535), NO),
    "a value up to the end": tail(NO, NO, b"\0\1", b"\0\1n", sized(">I", b"v" * 99)),
}


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("message", WRONG.values(), ids=WRONG.keys())
def test_a_message_that_is_not_an_envelope_stops_the_reading(message: bytes, verify: bool) -> None:
    first = write(replace(GOOD, id=id_at(FIRST_TICKS - 1, LOW)))
    block, stop = scan(first + record(GOOD.id, b"t", message) + BLOCK, verify=verify)
    assert (len(block), stop) == (1, ScanStop(len(first), at.BAD_ENVELOPE))
    assert str(stop) == "the message is not a valid envelope"


@pytest.mark.parametrize("message", RIGHT.values(), ids=RIGHT.keys())
def test_a_message_that_is_an_envelope_to_the_last_byte_is_read(message: bytes) -> None:
    data = record(GOOD.id, b"t", message)
    block, stop = scan(data)
    assert (len(block), stop) == (1, ScanStop(len(data), at.AT_END))


@pytest.mark.parametrize("message", [*WRONG.values(), *RIGHT.values()], ids=[*WRONG.keys(), *RIGHT.keys()])
def test_any_message_will_do_where_none_has_to_be_an_envelope(message: bytes) -> None:
    block, stop = scan(record(GOOD.id, b"type", message), envelopes=False)
    assert (len(block), stop.reason) == (1, at.AT_END)
    assert bytes(block.payload(0)) == message
    assert block.type(0) == "type"
    assert block.id(0) == GOOD.id
    assert block.record(0).message == Message(payload=message, type="type")


# Order


def block_of(ticks: Sequence[int], offsets: Sequence[int] | None = None) -> tuple[bytes, int]:
    """Records of these ids and offsets, and the size of each."""
    places = range(len(ticks)) if offsets is None else offsets
    data = write(*(Entry(id=id_at(each, LOW), offset=place) for each, place in zip(ticks, places, strict=True)))
    return data, len(data) // len(ticks)


@pytest.mark.parametrize("later", [5, 4, 0])
def test_ids_that_do_not_rise_stop_the_reading(later: int) -> None:
    data, size = block_of([4, 5, later, 6])
    block, stop = scan(data)
    assert (len(block), stop) == (2, ScanStop(2 * size, at.BAD_ORDER))
    assert len(scan(data, envelopes=False)[0]) == 2


def test_ids_rise_by_all_their_bits() -> None:
    lows = [0x8000_0000_0000_0000, 0x8000_0000_0000_0001, 0x9000_0000_0000_0000, 0xBFFF_FFFF_FFFF_FFFF]
    data = write(*(Entry(id=id_at(7, low)) for low in lows))
    assert len(scan(data)[0]) == 4
    data = write(*(Entry(id=id_at(7, low)) for low in reversed(lows)))
    assert len(scan(data)[0]) == 1


def test_ids_of_the_far_future_are_greater_than_ours() -> None:
    data, _ = block_of([FIRST_TICKS, 2**59 - 1, 2**59, 2**60 - 1])
    block, stop = scan(data)
    assert (len(block), stop.reason) == (4, at.AT_END)
    assert scan(data, after=after_tick(2**60 - 1))[1] == ScanStop(0, at.BAD_ORDER)


@pytest.mark.parametrize(("before", "count"), [(3, 3), (4, 0), (5, 0), (2**60 - 1, 0)])
def test_the_first_id_is_greater_than_the_one_before_the_reading(before: int, count: int) -> None:
    data, _ = block_of([4, 5, 6])
    block, stop = scan(data, after=after_tick(before))
    assert len(block) == count
    assert stop.reason == (at.AT_END if count else at.BAD_ORDER)


def test_what_comes_before_need_not_be_a_whole_id() -> None:
    data, _ = block_of([4, 5, 6])
    assert len(scan(data, after=replace(after_tick(4), id_low=0))[0]) == 3
    assert len(scan(data, after=replace(after_tick(4), id_low=-1))[0]) == 0


@pytest.mark.parametrize(
    "id_",
    [
        *(bytes.fromhex(f"1f0c2a4e7b1d{version}c009a3f0123456789ab") for version in "01457f"),
        *(bytes.fromhex(f"1f0c2a4e7b1d6c00{variant}3f0123456789ab") for variant in ("00", "7f", "c0", "ff")),
        bytes(15) + b"\1",
        b"\xff" * 16,
    ],
    ids=bytes.hex,
)
def test_an_id_that_is_not_a_uuid_of_version_6_stops_the_reading(id_: bytes) -> None:
    data = write(Entry(id=id_))
    assert scan(data)[1] == ScanStop(0, at.BAD_ID)
    assert scan(data, envelopes=False)[1] == ScanStop(0, at.BAD_ID)


@pytest.mark.parametrize(
    ("offsets", "next_offset", "count"),
    [
        ([0, 1, 2], 0, 3),
        ([7, 8, 9], 7, 3),
        ([7, 8, 9], -1, 3),
        ([7, 9, 8], -1, 3),
        ([7, 8, 9], 6, 0),
        ([7, 8, 9], 8, 0),
        ([7, 9, 10], 7, 1),
        ([7, 7, 8], 7, 1),
        ([7, 8, 8], 7, 2),
        ([2**63 - 2, 2**63 - 1], 2**63 - 2, 2),
        ([2**64 - 1], 0, 0),
    ],
)
def test_offsets_count_up_from_the_one_that_must_be_next(offsets: list[int], next_offset: int, count: int) -> None:
    data, size = block_of(range(1, len(offsets) + 1), offsets)
    block, stop = scan(data, after=Predecessor(0, 0, next_offset))
    assert len(block) == count
    assert stop == ScanStop(count * size, at.AT_END if count == len(offsets) else at.BAD_OFFSET)


def test_records_that_need_not_be_envelopes_have_no_offsets_to_check() -> None:
    data, _ = block_of([1, 2, 3], [7, 8, 9])
    first, _ = scan(data, envelopes=False, rows_max=1)
    rest, stop = scan(data, envelopes=False, start=len(data) // 3, after=first.last)
    assert (len(rest), stop.reason) == (2, at.AT_END)


# Many


@pytest.mark.parametrize("rows_max", [0, 1, 9, 10, 11])
def test_no_more_rows_than_asked_for(rows_max: int) -> None:
    block, stop = scan(BLOCK, rows_max=rows_max)
    count = min(rows_max, len(MIXED))
    assert len(block) == count
    assert stop == ScanStop([0, *ENDS][count], at.MORE if rows_max < len(MIXED) else at.AT_END)


def test_reading_in_pieces_is_reading_the_whole() -> None:
    position, after, found = 0, Predecessor(0, 0, 0), []
    while position < len(BLOCK):
        block, stop = scan(BLOCK, start=position, after=after, rows_max=3)
        found += [each.message for each in block]
        position, after = stop.position, block.last
    assert found == list(MIXED)


MANY = 5_000
TABLES = [1, 1_023, 1_024, 1_025, 2_047, 2_048, 2_049, 4_096, 4_097, MANY - 1]
MANY_BLOCK = stamped([Message(payload=b"")] * MANY)


@pytest.mark.parametrize("count", [*TABLES, MANY])
def test_a_block_of_any_number_of_records_is_read_whole(count: int) -> None:
    data = memoryview(MANY_BLOCK)[: 81 * count]
    for rows_max in (None, count, count + 1):
        block, stop = scan(data, after=Predecessor(0, 0, 0), rows_max=rows_max)
        assert block.columns[:, at.OFFSET].tolist() == list(range(count))
        assert ends_of(block) == list(range(81, 81 * count + 1, 81))
        assert stop == ScanStop(len(data), at.AT_END)
    block, stop = scan(data, rows_max=count - 1)
    assert (len(block), stop) == (count - 1, ScanStop(81 * (count - 1), at.MORE))


@pytest.mark.parametrize("place", TABLES)
def test_order_is_checked_across_all_of_a_large_block(place: int) -> None:
    size = 81
    skipped = MANY_BLOCK[: size * place] + MANY_BLOCK[size * (place + 1) :]
    if place < MANY - 1:
        assert scan(skipped, after=Predecessor(0, 0, 0))[1] == ScanStop(size * place, at.BAD_OFFSET)
    assert scan(skipped)[1] == ScanStop(len(skipped), at.AT_END)
    twice = MANY_BLOCK[: size * (place + 1)] + MANY_BLOCK[size * place :]
    assert scan(twice)[1] == ScanStop(size * (place + 1), at.BAD_ORDER)


def test_an_empty_block_offers_nothing() -> None:
    assert len(EMPTY_BLOCK) == 0
    assert list(EMPTY_BLOCK) == []
