"""Power is lost at every disk call, and every piece of what was not synced may or may not have arrived.

Whatever is left: acknowledged ⊆ recovered ⊆ sent, in order, each under the offset it was given, and what is appended
after the repair can be read.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.core.errors import DiskFull, StorageFailed
from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.catalog.topics import Retention
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import read, view_of
from penstock.testing import Crash, Fault, FaultDisk, ManualClock

LOG_PATH = Path("/log")
LIMITS = Limits(
    payload_bytes_max=4096, block_bytes_max=8192, segment_bytes_first=2048, segment_bytes_max=8192, disk_reserve_bytes=1
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery says what it cuts, thousands of times here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@dataclass
class Story:
    """A life of a log: the blocks sent, the offsets acknowledged, the offsets that may be dropped."""

    sent: list[bytes] = field(default_factory=list)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    forgotten_before: int = 0
    clock: ManualClock = field(default_factory=ManualClock)

    def open(self, disk: FaultDisk) -> Log:
        return Log.open(disk, LOG_PATH, ids=IdGenerator(self.clock, node=1), clock=self.clock, limits=LIMITS)

    def append(self, log: Log, *sizes: int) -> None:
        payloads = [b"%d:" % (len(self.sent) + place) + bytes([1 + place]) * size for place, size in enumerate(sizes)]
        self.sent += payloads
        done = log.append(Draft.of(Message(payload=payload) for payload in payloads))
        self.acknowledged |= {done.offset + place: payload for place, payload in enumerate(payloads)}
        self.clock.advance_ms(1)

    def forget(self, log: Log, offset: int) -> None:
        self.forgotten_before = offset
        log.truncate_before(offset)


def one_by_one(story: Story, disk: FaultDisk) -> None:
    with story.open(disk) as log:
        for _ in range(6):
            story.append(log, 20)


def in_blocks(story: Story, disk: FaultDisk) -> None:
    with story.open(disk) as log:
        for sizes in ((10, 900, 30), (1, 2, 3), (1500,), (700, 700, 5)):
            story.append(log, *sizes)


def over_segments(story: Story, disk: FaultDisk) -> None:
    with story.open(disk) as log:
        for size in range(600, 1500, 100):
            story.append(log, size, 3)


def again_and_again(story: Story, disk: FaultDisk) -> None:
    for size in (50, 700, 1200):
        with story.open(disk) as log:
            story.append(log, size)
            story.append(log, 10, 10)
    story.open(disk).close_files()  # a process that was killed


def forgetting(story: Story, disk: FaultDisk) -> None:
    with story.open(disk) as log:
        for _ in range(5):
            story.append(log, 1200)
        story.forget(log, 2)
        story.append(log, 1200)
        story.forgotten_before = 5
        log.retain(Retention(count=1))
        story.append(log, 1)


STORIES = [one_by_one, in_blocks, over_segments, again_and_again, forgetting]
by_story = pytest.mark.parametrize("life", STORIES, ids=lambda life: life.__name__)
Life = Callable[[Story, FaultDisk], None]


def calls_of(life: Life) -> int:
    disk = FaultDisk()
    life(Story(), disk)
    return disk.calls


def cut_at(life: Life, call: int) -> tuple[Story, FaultDisk]:
    story, disk = Story(), FaultDisk(fail_at=call)
    with pytest.raises(Crash):
        life(story, disk)
    return story, disk


def check(story: Story, disk: FaultDisk) -> dict[int, bytes]:
    """Open what is left, hold it against the story, append, and open it once more; what it holds in the end."""
    story.clock.advance_ms(-10_000)
    log = story.open(disk)
    found = {int(record.offset): record.message.payload for record in log.records()}
    hold_against(story, log, found)
    assert seen_by_others(disk) == found
    done = log.append(Draft.of([Message(payload=b"after")]))
    log.close_files()
    log = story.open(disk)
    records = list(log.records())
    assert {int(record.offset): record.message.payload for record in records} == found | {int(done.offset): b"after"}
    ids = [record.id for record in records]
    assert ids == sorted(set(ids))
    return found


def hold_against(story: Story, log: Log, found: dict[int, bytes]) -> None:
    for offset, payload in story.acknowledged.items():
        if offset >= story.forgotten_before:
            assert found.get(offset) == payload, f"acknowledged offset {offset} is not there"
        elif offset in found:
            assert found[offset] == payload
    rest = iter(story.sent)
    assert all(payload in rest for payload in found.values()), "something was invented or is out of order"
    assert list(found) == list(range(int(log.first_offset), int(log.next_offset))), "a hole that nobody made"


def seen_by_others(disk: FaultDisk) -> dict[int, bytes]:
    view = view_of(disk, LOG_PATH)
    seen: dict[int, bytes] = {}
    offset = int(view.first_offset)
    while offset < view.next_offset:
        chunk = read(disk, view, offset)
        seen |= {int(record.offset): record.message.payload for record in chunk}
        offset = int(chunk.next_offset)
    return seen


@by_story
def test_nothing_acknowledged_is_lost_wherever_the_power_fails(life: Life) -> None:
    for call in range(calls_of(life)):
        story, disk = cut_at(life, call)
        for survivor in disk.survivors(random.Random(call), 60):
            check(story, survivor)


@pytest.mark.soak
@by_story
def test_nothing_acknowledged_is_lost_in_thousands_of_states(life: Life) -> None:
    for call in range(calls_of(life)):
        story, disk = cut_at(life, call)
        for survivor in disk.survivors(random.Random(call), 20_000):
            check(story, survivor)


@pytest.mark.slow
@by_story
def test_the_power_may_fail_again_during_recovery(life: Life) -> None:
    for call in range(0, calls_of(life), 3):
        story, disk = cut_at(life, call)
        for survivor in disk.survivors(random.Random(call), 3):
            for second in twice_cut(story, survivor, random.Random(call)):
                check(story, second)


def twice_cut(story: Story, disk: FaultDisk, chance: random.Random) -> Iterator[FaultDisk]:
    """Open and append once more, and lose power at every call of that too."""
    call = 0
    while True:
        again = disk.copy()
        again.fail_at, again.fault = call, Fault.CRASH
        life = Story(sent=list(story.sent), clock=story.clock)
        try:
            log = life.open(again)
            life.append(log, 30)
        except Crash:
            story.sent = life.sent if len(life.sent) > len(story.sent) else story.sent
            yield from again.survivors(chance, 3)
            call += 1
            continue
        return


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.SHORT, Fault.FULL])
@by_story
def test_an_error_of_the_disk_costs_nothing_that_was_acknowledged(life: Life, fault: Fault) -> None:
    for call in range(calls_of(life)):
        story, disk = Story(), FaultDisk(fail_at=call, fault=fault)
        with suppress(StorageFailed, DiskFull):
            life(story, disk)
        disk.fail_at = None
        check(story, disk)


def test_a_log_whose_write_failed_refuses_for_good_and_still_reads() -> None:
    for call in range(200):
        story, disk = Story(), FaultDisk()
        log = story.open(disk)
        story.append(log, 100)
        disk.fail_at, disk.fault = disk.calls + call, Fault.ERROR
        outcomes = []
        for _ in range(3):
            try:
                story.append(log, 700)
                outcomes.append("stored")
            except StorageFailed:
                outcomes.append("refused")
        if "refused" not in outcomes:
            return
        if log.failure is not None:
            assert outcomes == sorted(outcomes, reverse=True), "something was stored after a failure"
        assert {int(r.offset): r.message.payload for r in log.records()} == story.acknowledged
    raise AssertionError("the last call was never reached")


def test_ids_never_go_back_over_a_thousand_restarts_with_the_clock_set_back() -> None:
    story, disk = Story(), FaultDisk()
    last = bytes(16)
    for turn in range(1000):
        log = story.open(disk)
        done = log.append(Draft.of([Message(payload=b"%d" % turn)]))
        assert done.id > last
        last = done.id
        log.close() if turn % 2 else log.close_files()
        story.clock.advance_ms(-1000)
