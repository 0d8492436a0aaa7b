"""Group commit: many callers, few syncs, every outcome its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.core.errors import PayloadTooLarge, ServiceUnavailable, StorageFailed, Timeout
from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.storage.commit import GroupCommit, Ticket, release_all
from penstock.storage.log import Log
from penstock.testing import Fault, FaultDisk, ManualClock

OpenLog = Callable[[FaultDisk], Log]
MakeDraft = Callable[..., Draft]


class GatedDisk(FaultDisk):
    """Holds every sync of a file until told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def change(self) -> Fault | None:
        self.gate.wait(10)
        return super().change()


def test_appends_from_many_threads_are_all_there_once(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    with GroupCommit() as writer:

        def work(name: int) -> None:
            for number in range(50):
                writer.append(log, draft(b"%d-%d" % (name, number)))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    payloads = [record.message.payload for record in log.records()]
    assert len(payloads) == len(set(payloads)) == 400
    for name in range(8):
        own = [payload for payload in payloads if payload.startswith(b"%d-" % name)]
        assert own == [b"%d-%d" % (name, number) for number in range(50)]


def test_what_gathers_during_one_sync_shares_the_next(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = GatedDisk()
    log = open_log(disk)
    with GroupCommit() as writer:
        writer.append(log, draft(b"first"))
        disk.gate.clear()
        tickets = [writer.submit(log, draft(b"%d" % number)) for number in range(100)]
        disk.gate.set()
        offsets = [ticket.result(10).offset for ticket in tickets]
        assert offsets == list(range(1, 101))
        assert writer.groups <= 3


def test_outcomes_are_delivered_once_a_group_in_the_order_of_submission(open_log: OpenLog, draft: MakeDraft) -> None:
    delivered: list[Ticket] = []

    def deliver(tickets: Sequence[Ticket]) -> None:
        delivered.extend(tickets)
        release_all(tickets)

    log = open_log(FaultDisk())
    with GroupCommit(deliver=deliver) as writer:
        tickets = [writer.submit(log, draft(b"%d" % number)) for number in range(20)]
        tickets[-1].result(10)
    assert delivered == tickets


def test_a_failed_log_fails_its_own_callers_and_not_those_of_others(
    clock: ManualClock, small_limits: Limits, draft: MakeDraft
) -> None:
    ids = IdGenerator(clock, node=1)
    bad_disk = FaultDisk()
    bad = Log.open(bad_disk, Path("/bad"), ids=ids, clock=clock, limits=small_limits)
    good = Log.open(FaultDisk(), Path("/good"), ids=ids, clock=clock, limits=small_limits)
    with GroupCommit() as writer:
        writer.append(bad, draft(b"a"))
        bad_disk.fail_at, bad_disk.fault = bad_disk.calls, Fault.ERROR
        with pytest.raises(StorageFailed):
            writer.append(bad, draft(b"b"))
        with pytest.raises(StorageFailed):
            writer.append(bad, draft(b"c"))
        assert writer.append(good, draft(b"d")).offset == 0
    assert [record.message.payload for record in bad.records()] == [b"a"]


def test_a_block_over_the_limits_is_refused_at_the_door(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    with GroupCommit() as writer, pytest.raises(PayloadTooLarge):
        writer.submit(log, draft(bytes(5000)))
    assert log.next_offset == 0


def test_a_full_queue_refuses_or_makes_wait(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = GatedDisk()
    log = open_log(disk)
    with GroupCommit(Limits(queue_bytes_max=500)) as writer:
        writer.append(log, draft(b"warm"))
        disk.gate.clear()
        first = writer.submit(log, draft(b"taken by the writer"))
        tickets: list[Ticket] = []
        with pytest.raises(ServiceUnavailable, match="waiting for the disk"):
            tickets.extend(writer.submit(log, draft(bytes(100)), wait=False) for _ in range(1000))
        waiting = threading.Thread(target=lambda: tickets.append(writer.submit(log, draft(b"late"))))
        waiting.start()
        disk.gate.set()
        waiting.join(10)
        first.result(10)
        assert [ticket.result(10).offset for ticket in tickets] == list(range(2, 2 + len(tickets)))


def test_waiting_for_a_slow_disk_can_time_out_and_the_block_may_still_arrive(
    open_log: OpenLog, draft: MakeDraft
) -> None:
    disk = GatedDisk()
    log = open_log(disk)
    with GroupCommit() as writer:
        disk.gate.clear()
        ticket = writer.submit(log, draft(b"slow"))
        with pytest.raises(Timeout, match="may still be"):
            ticket.result(0.01)
        disk.gate.set()
        assert ticket.result(10).offset == 0


def test_closing_finishes_what_is_queued_and_refuses_more(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    writer = GroupCommit()
    tickets = [writer.submit(log, draft(b"%d" % number)) for number in range(50)]
    writer.close()
    writer.close()
    assert [ticket.result(0).offset for ticket in tickets] == list(range(50))
    with pytest.raises(ServiceUnavailable, match="closing"):
        writer.submit(log, draft(b"late"))
    with pytest.raises(ServiceUnavailable, match="closing"):
        writer.run(lambda: None)


def test_errands_run_between_groups_in_their_turn(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    with GroupCommit() as writer:
        tickets = [writer.submit(log, draft(b"%d" % number)) for number in range(10)]
        seen = writer.run(lambda: int(log.next_offset))
        assert seen == 10
        assert all(ticket.outcome is not None for ticket in tickets)
        with pytest.raises(ZeroDivisionError):
            writer.run(lambda: 1 // 0)
        assert writer.append(log, draft(b"on")).offset == 10


def test_a_defect_in_a_log_answers_its_callers(
    open_log: OpenLog, draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(FaultDisk())

    def broken(drafts: Sequence[Draft]) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(log, "append_group", broken)
    with GroupCommit() as writer, pytest.raises(StorageFailed, match="a defect"):
        writer.submit(log, draft(b"a")).result(10)


def test_only_so_many_logs_keep_their_files_open(clock: ManualClock, draft: MakeDraft, tmp_path: Path) -> None:
    from penstock.storage.disk import OsDisk

    ids = IdGenerator(clock, node=1)
    logs = [Log.open(OsDisk(), tmp_path / str(number), ids=ids, clock=clock) for number in range(20)]
    before = _open_files()
    with GroupCommit(Limits(open_logs_max=3)) as writer:
        for _ in range(3):
            for log in logs:
                writer.append(log, draft(b"a"))
        deadline = time.monotonic() + 5
        while _open_files() > before + 6 and time.monotonic() < deadline:
            pass
        assert _open_files() <= before + 6
    for log in logs:
        assert log.next_offset == 3
        log.close()


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
