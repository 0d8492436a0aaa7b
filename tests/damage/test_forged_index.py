"""Indexes whose headers were forged, with right checksums: the segment decides, whatever its index says of it.

Nothing of the log is lost, nothing is invented, and no reader stands still, fails or takes the memory that a header
asks for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.core.positions import Earliest
from penstock.record.block import Draft
from penstock.record.hashing import hash64
from penstock.record.message import Message
from penstock.spark.files.location import Location
from penstock.spark.scan.slice_reader import LostRange, blocks
from penstock.spark.scan.slices import plan_slices
from penstock.storage.base.layout import TOPICS
from penstock.storage.inspect.data_reader import LogReader, segment_facts
from penstock.storage.inspect.verify import verify_segment
from penstock.storage.log.index import HEADER_BYTES, NO_ID, IndexHeader, SegmentState, encode_entries
from penstock.storage.log.log import Log
from penstock.storage.log.segment import index_path, segment_name
from penstock.testing import FaultDisk, ManualClock

FOLDER = Path("/data") / TOPICS / "default" / "orders"
FIRST = FOLDER / segment_name(0)
COUNT = 6
LIMITS = Limits(
    payload_bytes_max=4096,
    block_bytes_max=8192,
    segment_bytes_first=8192,
    segment_bytes_max=65_536,
    disk_reserve_bytes=1,
)
STATES = ("left", "closed", "sealed", "sealed last")
Forge = Callable[[IndexHeader], IndexHeader]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def open_log(disk: FaultDisk) -> Log:
    clock = ManualClock(now_ms=1_800_000_000_000)
    return Log.open(disk, FOLDER, ids=IdGenerator(clock, node=1), clock=clock, limits=LIMITS)


def messages() -> list[Message]:
    return [Message(payload=b"%d" % number * 40 * number, type="t") for number in range(COUNT)]


def sample(state: str) -> FaultDisk:
    """Six messages in the first segment; where that is sealed and not the last, a seventh in the next."""
    disk = FaultDisk()
    log = open_log(disk)
    log.append(Draft.of(messages()))
    if state.startswith("sealed"):
        log.roll()
    if state == "sealed":
        log.append(Draft.of([Message(payload=b"behind")]))
    log.close_files() if state == "left" else log.close()
    return disk


SAMPLES = {state: sample(state) for state in STATES}


def forged(state: str, forge: Forge) -> FaultDisk:
    disk = SAMPLES[state].copy()
    index = disk.content(index_path(FIRST))
    header = IndexHeader.decode(bytes(index[:HEADER_BYTES]))
    assert header is not None
    index[:HEADER_BYTES] = sealed_anew(forge(header))
    return disk


def sealed_anew(header: IndexHeader) -> bytes:
    """Whatever it says, with a right checksum."""
    data = header.encode()
    assert int.from_bytes(data[-8:], "big") == hash64(data[:-8])
    return data


def payloads(state: str) -> dict[int, bytes]:
    found = {number: message.payload for number, message in enumerate(messages())}
    return found | {COUNT: b"behind"} if state == "sealed" else found


def followed(disk: FaultDisk) -> dict[int, bytes]:
    """Return the records that a reader in another process gets; it fails after many more steps than there are
    records."""
    steps = list(islice(LogReader(disk, FOLDER).follow(Earliest()), 10 * COUNT))
    assert len(steps) < 10 * COUNT, "the reader does not come to an end"
    assert all(not damages for _, damages in steps), steps
    return {int(record.offset): record.message.payload for record, _ in steps if record is not None}


def owned(disk: FaultDisk) -> dict[int, bytes]:
    log = open_log(disk)
    found = {int(record.offset): record.message.payload for record in log.records()}
    done = log.append(Draft.of([Message(payload=b"more")]))
    assert int(done.offset) == len(found), "an offset was given twice, or left out"
    log.close()
    assert followed(disk) == found | {len(found): b"more"}
    return found


def scanned(disk: FaultDisk, monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """Return the records that a Spark task reads from the files, cut into slices by the driver."""
    from penstock.storage.inspect.data_reader import DataReader

    disk.make_directory(Path("/data"))
    with monkeypatch.context() as patched:
        patched.setattr("penstock.storage.inspect.data_reader.check_readable", lambda *_: None)
        data = DataReader(Path("/data"), disk=disk)
        patched.setattr("penstock.spark.scan.slice_reader.open_data", lambda _: data)
        location = Location("/data")
        stop = int(LogReader(disk, FOLDER).view.next_offset)
        parts = plan_slices(location, {("/default/orders", 0): (0, stop)}, data=data, slices_min=3)
        losses: list[LostRange] = []
        found = {
            int(record.offset): record.message.payload
            for part in parts
            for block in blocks(part, on_loss=losses.append)
            for record in block
        }
    assert losses == []
    return found


def check(state: str, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = forged(state, forge)
    expected = payloads(state)
    assert followed(disk) == expected
    assert scanned(disk, monkeypatch) == expected
    facts = segment_facts(disk, FIRST)
    assert facts["records"] == COUNT
    report = verify_segment(disk, FIRST)
    assert report.records == COUNT
    assert owned(disk) == expected


NAMED: dict[str, Forge] = {
    "count 2^63+5": lambda header: replace(header, count=2**63 + 5),
    "count 2^31": lambda header: replace(header, count=2**31),
    "count 2^31 and a size for it": lambda header: replace(header, count=2**31, size=2**31 * 81),
    "count and size at the ceiling": lambda header: replace(header, count=2**31 // 81, size=2**31),
    "one record too many": lambda header: replace(header, count=COUNT + 1),
    "one record too few": lambda header: replace(header, count=COUNT - 1),
    "one record too few, and its size": lambda header: replace(header, count=1, size=82),
    "one more, in unused space": lambda header: replace(header, state=SegmentState.CLOSED, count=COUNT + 1, size=8000),
    "size 0": lambda header: replace(header, size=0),
    "size 2^62": lambda header: replace(header, size=2**62),
    "size too small": lambda header: replace(header, size=COUNT * 81),
    "nothing, closed": lambda header: replace(header, state=SegmentState.CLOSED, count=0, size=0),
    "nothing, sealed": lambda header: replace(header, state=SegmentState.SEALED, count=0, size=0),
    "no records in many bytes": lambda header: replace(header, state=SegmentState.CLOSED, count=0, size=4000),
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("state", STATES)
def test_a_forged_header_changes_nothing(state: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(state, NAMED[name], monkeypatch)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    state=st.sampled_from(STATES),
    says=st.sampled_from(SegmentState),
    count=st.integers(0, 2 * COUNT) | st.integers(0, 2**64 - 1),
    size=st.integers(0, 10_000) | st.integers(0, 2**64 - 1),
    first_id=st.none() | st.just(NO_ID),
)
def test_any_forged_header_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, state: str, says: SegmentState, count: int, size: int, first_id: bytes | None
) -> None:
    def forge(header: IndexHeader) -> IndexHeader:
        first = header.first_id if first_id is None else first_id
        return replace(header, state=says, count=count, size=size, first_id=first)

    check(state, forge, monkeypatch)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("ordinal", range(COUNT))
@pytest.mark.parametrize("shift", [-40, 100_000])
def test_a_forged_entry_is_no_damage_of_any_record_wherever_reading_begins(
    state: str, ordinal: int, shift: int
) -> None:
    disk = SAMPLES[state].copy()
    index = disk.content(index_path(FIRST))
    place = HEADER_BYTES + ordinal * 8
    end = int.from_bytes(index[place : place + 4], "big") + shift
    index[place : place + 8] = encode_entries(np.array([end], dtype=np.int64), ordinal)
    assert followed(disk) == payloads(state)
    reader = LogReader(disk, FOLDER)
    for offset in range(COUNT):
        chunk = reader.read(offset)
        assert (int(chunk.block.offsets.start), chunk.damages) == (offset, ())
    assert owned(disk) == payloads(state)
