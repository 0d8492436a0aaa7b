"""Stamping: ids, offsets, times and checksums, in place, and nothing else."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record.reference import UNIX_EPOCH_TICKS, Entry, id_at, read, record, time_of, write
from tests.record.samples import FIRST_TICKS, LOW, MIXED, blocks, entry_of, ids, stamped, unhurried

from penstock.core.errors import InvalidRequest, MalformedMessage
from penstock.core.ids import TICKS_MAX, IdRun
from penstock.core.offsets import OFFSET_MAX
from penstock.record.block import Draft, scan, stamp
from penstock.record.message import Message


@given(blocks)
@unhurried
def test_a_stamped_draft_is_what_the_reference_writes(messages: list[Message]) -> None:
    expected = write(*(entry_of(message, place) for place, message in enumerate(messages)))
    assert stamped(messages) == expected


def test_the_largest_fields_are_stamped_as_the_reference_writes_them() -> None:
    large = Message(payload=bytes(range(256)) * 1_024, key=b"k" * 65_535, attributes={"n" * 255: "v" * 200_000})
    assert stamped([large]) == write(entry_of(large, 0))


@given(blocks, st.integers(1, TICKS_MAX - 10), st.integers(0, 2**62 - 1), st.integers(0, OFFSET_MAX - 10))
@unhurried
def test_ids_rise_offsets_are_dense_and_times_are_those_of_the_ids(
    messages: list[Message], ticks: int, node: int, first_offset: int
) -> None:
    data = bytearray(Draft.of(messages).data)
    run = IdRun(ticks, len(messages), 1 << 63 | node)
    ends = stamp(data, len(messages), run, first_offset)
    entries = dict(read(bytes(data)))  # the reference verifies every checksum
    assert list(entries) == ends.tolist()
    found = list(entries.values())
    assert [entry.id for entry in found] == [run[place] for place in range(len(messages))]
    assert all(one.id < other.id for one, other in itertools.pairwise(found))
    assert {uuid.UUID(bytes=entry.id).version for entry in found} == {6}
    assert {uuid.UUID(bytes=entry.id).variant for entry in found} == {uuid.RFC_4122}
    assert [entry.offset for entry in found] == list(range(first_offset, first_offset + len(messages)))
    times = [(ticks + place - UNIX_EPOCH_TICKS) // 10_000 % 2**64 for place in range(len(messages))]
    assert [entry.publish_time for entry in found] == times


@pytest.mark.parametrize("ms", [0, 1, 1_790_000_000_123, 95_000_000_000_000])
@pytest.mark.parametrize("rest", [0, 1, 9_999])
def test_the_time_is_the_millisecond_that_the_id_lies_in(ms: int, rest: int) -> None:
    data = stamped([Message(payload=b"")], first_ticks=UNIX_EPOCH_TICKS + ms * 10_000 + rest)
    record_ = scan(data)[0].record(0)
    assert record_.publish_time_ms == ms == time_of(record_.id)


def test_a_time_before_1970_rounds_down_like_any_other() -> None:
    data = stamped([Message(payload=b"")], first_ticks=UNIX_EPOCH_TICKS - 1)
    assert scan(data)[0].record(0).publish_time_ms == -1


def test_stamping_again_changes_only_what_is_stamped() -> None:
    data = bytearray(stamped(MIXED))
    before = [entry for _, entry in read(bytes(data))]
    run = ids(len(MIXED), FIRST_TICKS + 5_000_000)
    ends = stamp(data, len(MIXED), run, 1_000)
    after = dict(read(bytes(data)))
    assert list(after) == ends.tolist() == [end for end, _ in read(stamped(MIXED))]
    for place, (one, other) in enumerate(zip(before, after.values(), strict=True)):
        id_ = run[place]
        assert other == replace(one, id=id_, offset=1_000 + place, publish_time=time_of(id_))


def test_stamping_again_as_before_gives_the_same_bytes() -> None:
    data = bytearray(stamped(MIXED))
    stamp(data, len(MIXED), ids(len(MIXED)), 0)
    assert bytes(data) == stamped(MIXED)


def test_what_the_draft_claimed_is_overwritten() -> None:
    claimed = Entry(id=b"\xff" * 16, offset=2**64 - 1, publish_time=2**64 - 1, payload=b"p")
    data = bytearray(write(claimed))
    stamp(data, 1, ids(1), 7)
    ((_, entry),) = read(bytes(data))
    id_ = id_at(FIRST_TICKS, LOW)
    assert entry == replace(claimed, id=id_, offset=7, publish_time=time_of(id_))


# What cannot be stamped


@pytest.mark.parametrize("count", [1, 9, 11, 1_000])
def test_a_wrong_number_of_records_is_refused(count: int) -> None:
    with pytest.raises(MalformedMessage, match=f"a block of {count} records expected"):
        stamp(bytearray(stamped(MIXED)), count, ids(count), 0)


@pytest.mark.parametrize("count", [1, 9, 11])
def test_a_wrong_number_of_ids_is_refused(count: int) -> None:
    with pytest.raises(InvalidRequest, match=f"10 records take 10 ids, not {count}"):
        stamp(bytearray(stamped(MIXED)), 10, ids(count), 0)


def test_a_block_cut_anywhere_is_refused() -> None:
    whole = stamped(MIXED[:3])
    for size in range(len(whole)):
        with pytest.raises(MalformedMessage):
            stamp(bytearray(whole[:size]), 3, ids(3), 0)


@pytest.mark.parametrize("size", range(52))
def test_a_message_too_short_for_an_envelope_is_refused_and_nothing_past_it_is_written(size: int) -> None:
    data = bytearray(record(bytes(16), b"", bytes(size)) + bytes(64))
    before = bytes(data)
    window = memoryview(data)[: 29 + size]
    with pytest.raises(MalformedMessage):
        stamp(window, 1, ids(1), 0)  # type: ignore[arg-type]
    assert data == before


def test_bytes_that_are_no_records_are_refused() -> None:
    for data in (b"\xff" * 200, b"x", bytes(28)):
        with pytest.raises(MalformedMessage):
            stamp(bytearray(data), 1, ids(1), 0)
