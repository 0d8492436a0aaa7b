"""Bits flipped, blocks zeroed, copied, swapped and cut off, indexes lost: what is not hit is served, and only that.

Each damage is done to a log that was left by a killed writer, closed in order, or sealed; then the log is opened, read,
appended to, and read again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import read, view_of
from penstock.storage.log.segment import index_path, segment_name
from penstock.testing import FaultDisk, ManualClock

LOG_PATH = Path("/log")
FIRST = LOG_PATH / segment_name(0)
LIMITS = Limits(
    payload_bytes_max=4096,
    block_bytes_max=8192,
    segment_bytes_first=2048,
    segment_bytes_max=65_536,
    disk_reserve_bytes=1,
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def open_log(disk: FaultDisk) -> Log:
    clock = ManualClock(now_ms=1_800_000_000_000)
    return Log.open(disk, LOG_PATH, ids=IdGenerator(clock, node=1), clock=clock, limits=LIMITS)


class Sample:
    """A log with all its messages in one segment, and where each of them lies."""

    def __init__(self, state: str, payloads: list[bytes]) -> None:
        self.disk = FaultDisk()
        self.payloads = dict(enumerate(payloads))
        log = open_log(self.disk)
        log.append(Draft.of(Message(payload=payload, type="t") for payload in payloads))
        if state == "sealed":
            log.roll()
            log.append(Draft.of([Message(payload=b"in the next segment")]))
            self.payloads[len(payloads)] = b"in the next segment"
        self.size = log.view.segments[0].size
        log.close_files() if state == "left" else log.close()
        records = [len(Draft.of([Message(payload=payload, type="t")]).data) for payload in payloads]
        self.starts = [sum(records[:number]) for number in range(len(records))]

    def touched(self, start: int, stop: int) -> set[int]:
        """The messages that bytes `[start, stop)` belong to."""
        ends = [*self.starts[1:], self.size]
        return {number for number, begin in enumerate(self.starts) if begin < stop and start < ends[number]}


def small(state: str) -> Sample:
    return Sample(state, [b"%d" % number * size for number, size in enumerate((0, 1, 33, 7, 64, 2, 90, 12))])


def large(state: str) -> Sample:
    chance = random.Random(1)
    return Sample(state, [b"%d " % number + chance.randbytes(chance.randint(0, 900)) for number in range(40)])


def served(disk: FaultDisk, log: Log) -> dict[int, bytes]:
    found = {int(record.offset): record.message.payload for record in log.records()}
    view, offset = view_of(disk, LOG_PATH), int(log.first_offset)
    others: dict[int, bytes] = {}
    while offset < view.next_offset:
        chunk = read(disk, view, offset)
        others |= {int(record.offset): record.message.payload for record in chunk}
        offset = int(chunk.next_offset)
    assert others == found, "another process sees something else"
    return found


def check(sample: Sample, disk: FaultDisk, may_lose: set[int], *, must_find: bool = True) -> None:
    log = open_log(disk)
    found = served(disk, log)
    for offset, payload in found.items():
        assert sample.payloads.get(offset) == payload, f"offset {offset} is not what was stored there"
    lost = set(sample.payloads) - set(found)
    assert lost <= may_lose, f"{sorted(lost - may_lose)} lost, though only {sorted(may_lose)} were hit"
    if must_find:
        assert lost == may_lose, "damage was not noticed"
    done = log.append(Draft.of([Message(payload=b"after")]))
    assert int(done.offset) not in found
    log.close_files()
    assert served(disk, open_log(disk)) == found | {int(done.offset): b"after"}


def flipped(disk: FaultDisk, path: Path, bit: int) -> FaultDisk:
    damaged = disk.copy()
    damaged.content(path)[bit // 8] ^= 1 << bit % 8
    return damaged


by_state = pytest.mark.parametrize("state", ["left", "closed", "sealed"])


def check_flips(sample: Sample, bits: range) -> None:
    for bit in bits:
        check(sample, flipped(sample.disk, FIRST, bit), sample.touched(bit // 8, bit // 8 + 1))


@by_state
def test_a_flipped_bit_costs_the_record_it_is_in(state: str) -> None:
    sample = small(state)
    check_flips(sample, range(0, sample.size * 8, 17))


@pytest.mark.slow
@by_state
def test_every_single_bit_of_a_segment(state: str) -> None:
    """Flip bits of a segment of three records: the first, the last, and one with neighbours on both sides."""
    sample = Sample(state, [b"", b"1" * 33, b"2" * 7])
    check_flips(sample, range(sample.size * 8))


@pytest.mark.soak
@by_state
def test_every_single_bit_of_a_longer_segment(state: str) -> None:
    sample = small(state)
    check_flips(sample, range(sample.size * 8))


@by_state
@pytest.mark.slow
@pytest.mark.parametrize("stride", [31, pytest.param(3, marks=pytest.mark.soak)])
def test_a_flipped_bit_in_unused_space_costs_nothing(state: str, stride: int) -> None:
    sample = small(state)
    unused = range(sample.size * 8, len(sample.disk.content(FIRST)) * 8, stride)
    for bit in unused:
        check(sample, flipped(sample.disk, FIRST, bit), set())


@by_state
@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.soak)])
def test_a_flipped_bit_with_the_index_lost_costs_no_more(state: str, stride: int) -> None:
    """The last record then looks like a torn write: it is lost too when it is hit, and its offset is given again."""
    sample = small(state)
    sample.disk.remove(index_path(FIRST))
    for bit in range(0, sample.size * 8, stride):
        hit = sample.touched(bit // 8, bit // 8 + 1)
        check(sample, flipped(sample.disk, FIRST, bit), hit)


@by_state
def test_no_bit_of_the_index_matters(state: str) -> None:
    sample = small(state)
    path = index_path(FIRST)
    for bit in range(0, min(len(sample.disk.content(path)), 400) * 8, 3):
        check(sample, flipped(sample.disk, path, bit), set())


@by_state
def test_an_index_cut_off_zeroed_or_of_another_segment_is_made_anew(state: str) -> None:
    sample, path = small(state), index_path(FIRST)
    whole = bytes(sample.disk.content(path))
    other = bytes(large("closed").disk.content(path))
    cuts = [whole[:size] for size in (0, 1, 100, 128, 130, 136, 160)]
    for content in (*cuts, bytes(len(whole)), other, whole[:128] + bytes(len(whole) - 128), bytes(128) + whole[128:]):
        disk = sample.disk.copy()
        disk.content(path)[:] = content
        check(sample, disk, set())


def zeroed(content: bytearray, start: int, size: int) -> list[tuple[int, int]]:
    content[start : start + size] = bytes(len(content[start : start + size]))
    return [(start, start + size)]


def copied(content: bytearray, start: int, size: int) -> list[tuple[int, int]]:
    source = (start * 7 + 5 * size) % 8192 // 512 * 512
    content[start : start + size] = content[source : source + size]
    return [(start, start + size)]


def swapped(content: bytearray, start: int, size: int) -> list[tuple[int, int]]:
    other = (start + 6 * size) % 12_288 // 512 * 512
    if abs(other - start) < size or max(start, other) + size > len(content):
        return []
    one, two = content[start : start + size], content[other : other + size]
    content[start : start + size], content[other : other + size] = two, one
    return [(start, start + size), (other, other + size)]


def scribbled(content: bytearray, start: int, size: int) -> list[tuple[int, int]]:
    content[start : start + size] = random.Random(start).randbytes(len(content[start : start + size]))
    return [(start, start + size)]


Damage = Callable[[bytearray, int, int], list[tuple[int, int]]]


@by_state
@pytest.mark.parametrize("size", [512, 1024, 4096])
@pytest.mark.parametrize("damage", [zeroed, copied, swapped, scribbled], ids=lambda each: each.__name__)
@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_damaged_block_costs_the_records_it_touches(state: str, size: int, damage: Damage, index: str) -> None:
    sample = large(state)
    if index == "lost":
        sample.disk.remove(index_path(FIRST))
    for start in range(0, sample.size, max(1024, size)):
        disk = sample.disk.copy()
        content = disk.content(FIRST)
        hit = [range_ for range_ in damage(content, start, size) if range_[0] < sample.size]
        touched = {number for begin, end in hit for number in sample.touched(begin, end)}
        if index == "lost" and state != "sealed" and len(sample.starts) - 1 in touched:
            # With nothing behind it that verifies, the rest of the newest segment cannot be told from a torn write.
            touched |= set(range(min(touched), len(sample.starts)))
        check(sample, disk, touched, must_find=False)


@by_state
@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_segment_cut_short_costs_what_was_cut(state: str, index: str) -> None:
    sample = large(state)
    if index == "lost":
        sample.disk.remove(index_path(FIRST))
    for size in range(0, sample.size, 700):
        disk = sample.disk.copy()
        del disk.content(FIRST)[size:]
        check(sample, disk, sample.touched(size, sample.size))


def test_a_missing_segment_is_a_gap_with_its_offsets() -> None:
    disk = FaultDisk()
    log = open_log(disk)
    for number in range(6):
        log.append(Draft.of([Message(payload=b"%d" % number)]))
        log.roll()
    log.close()
    disk.remove(LOG_PATH / segment_name(2))
    disk.remove(LOG_PATH / segment_name(3))
    log = open_log(disk)
    assert [record.offset for record in log.records()] == [0, 1, 4, 5]
    (damage,) = log.read(2).damages
    assert (damage.offsets.start, damage.offsets.stop) == (2, 4)
    assert "missing" in str(damage)


def test_damaged_bytes_are_kept_once_and_counted() -> None:
    sample = small("left")
    disk = flipped(sample.disk, FIRST, sample.starts[2] * 8 + 300)
    for _ in range(3):
        log = open_log(disk)
        list(log.records())
        assert len(log.damages) == 1
        log.close()
    (kept,) = [path for path in disk.paths() if "quarantine" in str(path)]
    assert bytes(disk.content(kept)) == bytes(disk.content(FIRST)[sample.starts[2] : sample.starts[3]])


def test_files_that_are_not_ours_are_left_alone() -> None:
    sample = small("closed")
    for name in ("README", "1.seg", ".hidden", "00000000000000000000.seg.bak"):
        sample.disk.open(LOG_PATH / name, write=True, create=True).write(b"mine", 0)
    check(sample, sample.disk, set())
    assert bytes(sample.disk.content(LOG_PATH / "README")) == b"mine"


def test_unreadable_sectors_cost_the_records_in_them() -> None:
    sample = large("closed")
    for sector in range(sample.size // 512):
        disk = sample.disk.copy()
        disk.unreadable.add((str(FIRST), sector))
        check(sample, disk, sample.touched(sector * 512, sector * 512 + 512))
