"""Group commit: many callers, few syncs, every outcome its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.core.clock import SystemClock
from penstock.core.errors import PayloadTooLarge, ServiceUnavailable, StorageFailed, Timeout
from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.base.disk import OsDisk
from penstock.storage.log.group_commit import GroupCommit, PendingAppend, SharedIds, release_all
from penstock.storage.log.log import Log
from penstock.testing import Fault, FaultDisk, ManualClock

OpenLog = Callable[[FaultDisk], Log]
MakeDraft = Callable[..., Draft]


class GatedDisk(FaultDisk):
    """Holds every sync of a file until told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waits = threading.Event()
        """Set when a caller waits at the gate."""

    def change(self) -> Fault | None:
        self.waits.set()
        self.gate.wait(60)
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
        appends = [writer.submit(log, draft(b"%d" % number)) for number in range(100)]
        disk.gate.set()
        offsets = [append.result(60).offset for append in appends]
        assert offsets == list(range(1, 101))
        assert writer.groups <= 3


def test_outcomes_are_delivered_once_a_group_in_the_order_of_submission(open_log: OpenLog, draft: MakeDraft) -> None:
    delivered: list[PendingAppend] = []

    def deliver(appends: Sequence[PendingAppend]) -> None:
        delivered.extend(appends)
        release_all(appends)

    log = open_log(FaultDisk())
    with GroupCommit(deliver=deliver) as writer:
        appends = [writer.submit(log, draft(b"%d" % number)) for number in range(20)]
        appends[-1].result(60)
    assert delivered == appends


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
        appends: list[PendingAppend] = []
        with pytest.raises(ServiceUnavailable, match="waiting for the disk"):
            appends.extend(writer.submit(log, draft(bytes(100)), wait=False) for _ in range(1000))
        waiting = threading.Thread(target=lambda: appends.append(writer.submit(log, draft(b"late"))))
        waiting.start()
        disk.gate.set()
        waiting.join(60)
        first.result(60)
        assert [append.result(60).offset for append in appends] == list(range(2, 2 + len(appends)))


Logs = tuple[Log, Log, FaultDisk, GatedDisk]


@pytest.fixture
def two_logs(clock: ManualClock, small_limits: Limits) -> Logs:
    """And the disk of each."""
    ids, plain, gated = SharedIds(clock, node=1), FaultDisk(), GatedDisk()
    first, second = (
        Log.open(disk, Path(f"/{number}"), ids=ids, clock=clock, limits=small_limits)
        for number, disk in enumerate((plain, gated))
    )
    return first, second, plain, gated


def test_of_blocks_that_belong_together_a_full_queue_takes_none(two_logs: Logs, draft: MakeDraft) -> None:
    first, second, _, disk = two_logs
    with GroupCommit(Limits(queue_bytes_max=500)) as writer:
        writer.append(second, draft(b"warm"))
        disk.gate.clear()
        disk.waits.clear()
        held = writer.submit(second, draft(b"taken by the writer"))
        assert disk.waits.wait(60)
        both = [(first, draft(bytes(400))), (second, draft(bytes(400)))]
        appends = writer.submit_all(both, wait=False)  # each alone would fill it, and there was room
        with pytest.raises(ServiceUnavailable, match="waiting for the disk"):
            writer.submit_all(both, wait=False)
        disk.gate.set()
        held.result(60)
        assert [append.result(60).offset for append in appends] == [0, 2]
    assert (first.next_offset, second.next_offset) == (1, 3), "of those that were refused, none"
    assert writer.queued_bytes == 0


def test_of_blocks_that_belong_together_none_is_written_if_one_is_too_large(two_logs: Logs, draft: MakeDraft) -> None:
    first, second, _, _ = two_logs
    with GroupCommit() as writer, pytest.raises(PayloadTooLarge):
        writer.submit_all([(first, draft(b"small")), (second, draft(bytes(5000)))])
    assert (first.next_offset, second.next_offset) == (0, 0)


def test_of_blocks_that_belong_together_none_is_written_if_one_log_takes_no_more(
    two_logs: Logs, draft: MakeDraft
) -> None:
    first, second, disk, _ = two_logs
    with GroupCommit() as writer:
        disk.fail_at, disk.fault = disk.calls, Fault.ERROR
        with pytest.raises(StorageFailed):
            writer.append(first, draft(b"lost"))
        with pytest.raises(StorageFailed):
            writer.submit_all([(second, draft(b"good")), (first, draft(b"bad"))])
    assert second.next_offset == 0


def test_blocks_that_belong_together_wake_the_writer_and_keep_the_order_of_their_log(
    two_logs: Logs, draft: MakeDraft
) -> None:
    first, second, _, _ = two_logs
    with GroupCommit() as writer:
        for number in range(20):
            together = [(log, draft(b"%d" % number, b"%d again" % number)) for log in (first, second, first)]
            assert [append.result(60).records for append in writer.submit_all(together)] == [2, 2, 2]
            writer.append(first, draft(b"%d alone" % number))
    found = [record.message.payload for record in first.records()]
    assert found == [b"%d%s" % (number, end) for number in range(20) for end in (b"", b" again") * 2 + (b" alone",)]


def test_waiting_for_a_slow_disk_can_time_out_and_the_block_may_still_arrive(
    open_log: OpenLog, draft: MakeDraft
) -> None:
    disk = GatedDisk()
    log = open_log(disk)
    with GroupCommit() as writer:
        disk.gate.clear()
        append = writer.submit(log, draft(b"slow"))
        with pytest.raises(Timeout, match="may still be"):
            append.result(0.01)
        disk.gate.set()
        assert append.result(60).offset == 0


def test_closing_finishes_what_is_queued_and_refuses_more(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    writer = GroupCommit()
    appends = [writer.submit(log, draft(b"%d" % number)) for number in range(50)]
    writer.close()
    writer.close()
    assert [append.result(0).offset for append in appends] == list(range(50))
    with pytest.raises(ServiceUnavailable, match="closing"):
        writer.submit(log, draft(b"late"))
    with pytest.raises(ServiceUnavailable, match="closing"):
        writer.run(lambda: None)


def test_errands_run_between_groups_in_their_turn(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    with GroupCommit() as writer:
        appends = [writer.submit(log, draft(b"%d" % number)) for number in range(10)]
        seen = writer.run(lambda: int(log.next_offset))
        assert seen == 10
        assert all(append.outcome is not None for append in appends)
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
        writer.submit(log, draft(b"a")).result(60)


def test_only_so_many_logs_keep_their_files_open(clock: ManualClock, draft: MakeDraft, tmp_path: Path) -> None:
    from penstock.storage.base.disk import OsDisk

    ids = IdGenerator(clock, node=1)
    logs = [Log.open(OsDisk(), tmp_path / str(number), ids=ids, clock=clock) for number in range(20)]
    with GroupCommit(Limits(open_logs_max=3)) as writer:
        for _ in range(3):
            for log in logs:
                writer.append(log, draft(b"a"))
        writer.run(lambda: None)  # wait: files are closed after outcomes are set
        assert 0 < _open_files(tmp_path) <= 6
    for log in logs:
        assert log.next_offset == 3
        log.close()


def _open_files(folder: Path) -> int:
    """Return how many files this process has open in this folder."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += each.readlink().is_relative_to(folder)
    return found


def test_what_waits_is_counted_and_what_is_taken_is_not(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = GatedDisk()
    log = open_log(disk)
    with GroupCommit() as writer:
        assert writer.queued_bytes == 0
        writer.append(log, draft(b"warm"))
        disk.gate.clear()
        disk.waits.clear()
        held = writer.submit(log, draft(b"taken by the writer"))
        assert disk.waits.wait(60)
        blocks = [draft(bytes(number)) for number in range(10)]
        appends = [writer.submit(log, block) for block in blocks]
        assert writer.queued_bytes == sum(len(block.data) for block in blocks)
        disk.gate.set()
        held.result(60)
        appends[-1].result(60)
        assert writer.queued_bytes == 0


def test_a_defect_in_delivering_does_not_end_the_writing(
    open_log: OpenLog, draft: MakeDraft, caplog: pytest.LogCaptureFixture
) -> None:
    defects = [RuntimeError("a defect")]

    def deliver(appends: Sequence[PendingAppend]) -> None:
        if defects:
            raise defects.pop()
        release_all(appends)

    log = open_log(FaultDisk())
    with GroupCommit(deliver=deliver) as writer:
        writer.submit(log, draft(b"a"))
        writer.run(lambda: None)
        assert writer.append(log, draft(b"b")).offset == 1
    assert "unhandled error in delivering" in caplog.text


def test_logs_of_one_group_are_written_side_by_side_and_each_in_order(
    clock: ManualClock, small_limits: Limits, draft: MakeDraft
) -> None:
    ids = SharedIds(clock, node=1)
    gate = GatedDisk()
    logs = [
        Log.open(gate if name == "0" else FaultDisk(), Path("/", name), ids=ids, clock=clock, limits=small_limits)
        for name in "01234567"
    ]
    with GroupCommit(helpers=3) as writer:
        for log in logs:
            writer.append(log, draft(b"first"))
        gate.gate.clear()
        held = writer.submit(logs[0], draft(b"held"))  # while this one is written, the others gather
        appends = [(log, writer.submit(log, draft(b"%d" % number))) for number in range(20) for log in logs]
        gate.gate.set()
        assert held.result(60).offset == 1
        for log in logs:
            own = [append.result(60).offset for written, append in appends if written is log]
            assert own == list(range(2 if log is logs[0] else 1, log.next_offset))
        assert writer.groups <= len(logs) + 3
    found = [record.id for log in logs for record in log.records()]
    assert len(set(found)) == len(found) == 169


def test_a_log_that_fails_in_a_group_fails_its_own_callers_alone(
    clock: ManualClock, small_limits: Limits, draft: MakeDraft
) -> None:
    ids = SharedIds(clock, node=1)
    disks = [GatedDisk(), FaultDisk(), FaultDisk()]
    logs = [
        Log.open(disk, Path(f"/{number}"), ids=ids, clock=clock, limits=small_limits)
        for number, disk in enumerate(disks)
    ]
    gate = disks[0]
    assert isinstance(gate, GatedDisk)
    with GroupCommit(Limits(open_logs_max=1), helpers=2) as writer:
        for log in logs:
            writer.append(log, draft(b"first"))
        gate.gate.clear()
        writer.submit(logs[0], draft(b"held"))
        disks[1].fail_at, disks[1].fault = disks[1].calls, Fault.ERROR
        appends = [writer.submit(log, draft(b"second")) for log in logs]
        gate.gate.set()
        assert appends[0].result(60).offset == 2
        with pytest.raises(StorageFailed):
            appends[1].result(60)
        assert appends[2].result(60).offset == 1


def test_when_a_group_is_handed_back_no_older_id_can_still_come(tmp_path: Path) -> None:
    """Readers of several logs rely on it: see decision 22."""
    newest, late = 0, list[int]()
    lock = threading.Lock()

    def deliver(appends: Sequence[PendingAppend]) -> None:
        nonlocal newest
        with lock:
            ticks = [(each.outcome.first_ticks, each.outcome.ids.last_ticks) for each in appends]  # type: ignore[union-attr]
            late.extend(first for first, _ in ticks if first <= newest)
            newest = max(newest, *(last for _, last in ticks))
        release_all(appends)

    ids = SharedIds(SystemClock(), node=1)
    logs = [Log.open(OsDisk(), tmp_path / str(each), ids=ids, clock=SystemClock()) for each in range(4)]
    with GroupCommit(deliver=deliver, helpers=4) as commit:
        appends: list[PendingAppend] = []
        for _ in range(8):
            appends += [commit.submit(logs[number % 4], Draft.of([Message(payload=b"x")] * 3)) for number in range(50)]
            appends[-50].result(60)  # so that there are several groups in any case
        for append in appends:
            append.result(60)
    for log in logs:
        log.close()
    assert late == []
    assert commit.groups > 1
