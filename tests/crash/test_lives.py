"""Random lives of a log, played against a plain model: appended, rolled, truncated, closed, killed, cut from power."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

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


class Lives(RuleBasedStateMachine):
    """`known` is what was acknowledged and not forgotten; `unsure` what was under way when something broke."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self.disk = FaultDisk()
        self.clock = ManualClock()
        self.known: dict[int, bytes] = {}
        self.sent = 0
        self.last_id = bytes(16)
        self.log = self.open()

    def teardown(self) -> None:
        logging.disable(logging.NOTSET)

    def open(self) -> Log:
        return Log.open(self.disk, LOG_PATH, ids=IdGenerator(self.clock, node=1), clock=self.clock, limits=LIMITS)

    def draft(self, sizes: list[int]) -> tuple[Draft, list[bytes]]:
        payloads = [b"%d " % (self.sent + place) + bytes(size) for place, size in enumerate(sizes)]
        self.sent += len(sizes)
        return Draft.of(Message(payload=payload) for payload in payloads), payloads

    @rule(sizes=st.lists(st.integers(0, 1200), min_size=1, max_size=4))
    def append(self, sizes: list[int]) -> None:
        draft, payloads = self.draft(sizes)
        done = self.log.append(draft)
        assert done.id > self.last_id
        self.last_id = done.ids[len(payloads) - 1]
        self.known |= {int(done.offset) + place: payload for place, payload in enumerate(payloads)}

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(ms=st.integers(-5000, 5000))
    def time_passes(self, ms: int) -> None:
        self.clock.advance_ms(ms)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = int(self.log.first_offset + share * (self.log.next_offset - self.log.first_offset))
        self.log.truncate_before(offset)
        self.forget()

    @rule(count=st.integers(1, 20))
    def retain(self, count: int) -> None:
        self.log.retain(Retention(count=count))
        assert len(self.known) == 0 or self.log.next_offset - self.log.first_offset >= min(count, len(self.known))
        self.forget()

    def forget(self) -> None:
        self.known = {offset: payload for offset, payload in self.known.items() if offset >= self.log.first_offset}

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.log = self.open()

    @rule()
    def kill_and_open(self) -> None:
        self.log.close_files()
        self.log = self.open()

    @rule(
        call=st.integers(0, 12),
        seed=st.integers(0, 2**32),
        sizes=st.lists(st.integers(0, 1200), min_size=1, max_size=3),
    )
    def lose_power_while_appending(self, call: int, seed: int, sizes: list[int]) -> None:
        self.disk.fail_at, self.disk.fault = self.disk.calls + call, Fault.CRASH
        draft, payloads = self.draft(sizes)
        try:
            done = self.log.append(draft)
            self.known |= {int(done.offset) + place: payload for place, payload in enumerate(payloads)}
        except Crash:
            pass
        self.disk = list(self.disk.survivors(random.Random(seed), 4))[-1]
        self.log = self.open()
        self.take_in(payloads)

    def take_in(self, payloads: list[bytes]) -> None:
        """Count unacknowledged blocks that are present: none, a first part, or all of them."""
        for record in self.log.records():
            if int(record.offset) not in self.known:
                assert record.message.payload in payloads
                self.known[int(record.offset)] = record.message.payload
        if self.log.next_offset > self.log.first_offset:
            self.last_id = max(self.last_id, self.log.last_id)

    @invariant()
    def the_log_holds_what_is_known(self) -> None:
        assert {int(record.offset): record.message.payload for record in self.log.records()} == self.known

    @invariant()
    def another_process_sees_the_same(self) -> None:
        view = view_of(self.disk, LOG_PATH)
        seen: dict[int, bytes] = {}
        offset = int(view.first_offset)
        while offset < view.next_offset:
            chunk = read(self.disk, view, offset)
            seen |= {int(record.offset): record.message.payload for record in chunk}
            offset = int(chunk.next_offset)
        assert seen == self.known


def live(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_no_life_of_a_log_breaks_a_promise() -> None:
    live(60, 30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_life_of_a_log_breaks_a_promise_for_long() -> None:
    live(3000, 80)
