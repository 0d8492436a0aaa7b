"""The speed of durable appends, compared with writing and syncing the same bytes without Penstock on the same disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

from penstock.bench import Figure
from penstock.bench.kernels import sample
from penstock.core.clock import SystemClock
from penstock.core.ids import IdGenerator
from penstock.core.limits import KIB, MIB
from penstock.record.block import Draft
from penstock.storage.base.disk import OsDisk
from penstock.storage.log.group_commit import GroupCommit, PendingAppend
from penstock.storage.log.log import Log

_BLOCK_BYTES = 256 * KIB
_APPENDERS = 64


def open_log(path: Path) -> Log:
    clock = SystemClock()
    return Log.open(OsDisk(), path, ids=IdGenerator(clock, node=1), clock=clock)


class BareFile:
    """The reference: it only calls `pwrite` and `fdatasync` on a preallocated file."""

    def __init__(self, path: Path, size: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(self._descriptor, 0, size)
        os.fsync(self._descriptor)
        self._position = 0

    def append(self, data: bytes) -> None:
        os.pwrite(self._descriptor, data, self._position)
        os.fdatasync(self._descriptor)
        self._position += len(data)

    def close(self) -> None:
        os.close(self._descriptor)


def measure(folder: Path, *, megabytes: int = 256, seconds: float = 3.0) -> Iterator[Figure]:
    for label, size in (("100 B", 100), ("1 KiB", 1024)):
        yield append_figure(folder, label, size, megabytes)
    yield group_figure(folder, seconds)


def append_figure(folder: Path, label: str, size: int, megabytes: int) -> Figure:
    """Measure the durable append of blocks of 256 KiB by one writer. Log and reference append in turns, so that both
    are slowed alike by other processes."""
    draft = Draft.of([sample(size)] * (_BLOCK_BYTES // len(Draft.of([sample(size)]).data)))
    rounds = max(4, megabytes * MIB // len(draft.data))
    bare = BareFile(folder / f"bare-{size}", rounds * len(draft.data))
    data = bytes(draft.data)
    ours = theirs = 0.0
    with open_log(folder / f"log-{size}") as log:
        for _ in range(rounds):
            began = time.perf_counter()
            log.append(draft)
            middle = time.perf_counter()
            bare.append(data)
            ours += middle - began
            theirs += time.perf_counter() - middle
    bare.close()
    written = rounds * len(data)
    return Figure(
        name=f"durable append, {label} in blocks of 256 KiB",
        value=written / ours / 1e6,
        unit="MB/s",
        reference="pwrite + fdatasync",
        reference_value=written / theirs / 1e6,
        ratio=theirs / ours,
    )


def group_figure(folder: Path, seconds: float) -> Figure:
    """Measure 64 appenders with one message in flight each, compared with the rate of syncing single messages."""
    rate = _sync_rate(folder / "bare-sync", seconds / 3)
    with open_log(folder / "log-group") as log:
        count, took, groups = _appenders(log, seconds)
    again = _sync_rate(folder / "bare-sync", seconds / 3)
    reference = (rate + again) / 2
    return Figure(
        name=f"{_APPENDERS} appenders of one 100 B message ({count / max(1, groups):.0f} a sync)",
        value=count / took,
        unit="messages/s",
        reference="fdatasync of one message",
        reference_value=reference,
        ratio=count / took / reference,
    )


def _sync_rate(path: Path, seconds: float) -> float:
    data = bytes(Draft.of([sample(100)]).data)
    bare = BareFile(path, 64 * MIB)
    began, count, took = time.perf_counter(), 0, 0.0
    while took < seconds:
        bare.append(data)
        count, took = count + 1, time.perf_counter() - began
    bare.close()
    return count / took


def _appenders(log: Log, seconds: float) -> tuple[int, float, int]:
    """Run appenders, each of which appends its next message when its last one is durable. Return the number of durable
    messages, the seconds, and the number of groups that were synced.

    They share one thread, as the connections of a broker share its event loop. The writer wakes it once per group.
    """
    durable: SimpleQueue[Sequence[PendingAppend]] = SimpleQueue()
    draft = Draft.of([sample(100)])
    count, in_flight = 0, _APPENDERS
    with GroupCommit(deliver=durable.put) as writer:
        began = time.perf_counter()
        for _ in range(_APPENDERS):
            writer.submit(log, draft)
        while in_flight:
            tickets = durable.get()
            count += len(tickets)
            if time.perf_counter() - began > seconds:
                in_flight -= len(tickets)
                continue
            for _ in tickets:
                writer.submit(log, draft)
        return count, time.perf_counter() - began, writer.groups
