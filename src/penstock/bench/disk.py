"""How fast messages become durable, against writing and syncing the same bytes by hand on the same disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.bench import Figure
from penstock.bench.kernels import sample
from penstock.core.clock import SystemClock
from penstock.core.ids import IdGenerator
from penstock.core.limits import KIB, MIB
from penstock.record.block import Draft
from penstock.storage.commit import GroupCommit, Ticket
from penstock.storage.disk import OsDisk
from penstock.storage.log import Log

_BLOCK_BYTES = 256 * KIB
_APPENDERS = 64


def open_log(path: Path) -> Log:
    clock = SystemClock()
    return Log.open(OsDisk(), path, ids=IdGenerator(clock, node=1), clock=clock)


class BareFile:
    """The reference: `pwrite` and `fdatasync` into a preallocated file, and nothing else."""

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
    """Blocks of 256 KiB, one writer; both sides take turns, so that both meet the same neighbours."""
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
    """64 appenders, each with one message in flight: how many become durable in the time of one sync."""
    rate = _sync_rate(folder / "bare-sync", seconds / 3)
    with open_log(folder / "log-group") as log:
        count, took, groups = asyncio.run(_appenders(log, seconds))
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
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        bare.append(data)
        count += 1
    bare.close()
    return count / (time.perf_counter() - began)


async def _appenders(log: Log, seconds: float) -> tuple[int, float, int]:
    """Tasks on an event loop, as connections of a broker are; the writer wakes the loop once a group."""
    loop = asyncio.get_running_loop()
    waiting: dict[Ticket, asyncio.Future[None]] = {}

    def finish(tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            waiting.pop(ticket).set_result(None)

    def deliver(tickets: Sequence[Ticket]) -> None:
        loop.call_soon_threadsafe(finish, tickets)

    with GroupCommit(deliver=deliver) as writer:
        stop = time.perf_counter() + seconds
        draft = Draft.of([sample(100)])

        async def appender() -> int:
            count = 0
            while time.perf_counter() < stop:
                ticket = writer.submit(log, draft)
                future = waiting[ticket] = loop.create_future()
                await future
                count += 1
            return count

        began = time.perf_counter()
        counts = await asyncio.gather(*(appender() for _ in range(_APPENDERS)))
        return sum(counts), time.perf_counter() - began, writer.groups
