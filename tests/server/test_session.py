"""A session: how much of what connections send may wait for the disk, of each and of all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.server.kit import DEADLINE_SECONDS, framed, message

from penstock.broker.broker import Broker
from penstock.core.clock import SystemClock
from penstock.core.limits import MIB, Limits, WireLimits
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.server.hub import Hub
from penstock.server.main import now_ms
from penstock.storage.log.group_commit import PendingAppend
from penstock.storage.log.log import Log
from penstock.storage.store import Store
from penstock.testing import ScriptedStream

ORDERS = TopicName.parse("orders")
LARGE = framed(message("publish:orders:1.0.0", bytes(MIB)))
SMALL = framed(message("publish:orders:1.0.0", b"x"))
CROWD = 50


class StillDisk:
    """A writer that queues blocks, and writes them only when the test says so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tickets: list[PendingAppend] = []

    def submit(self, log: Log, draft: Draft, *, wait: bool) -> PendingAppend:
        assert not wait, "the event loop would stand"
        self._tickets.append(PendingAppend(log, draft))
        return self._tickets[-1]

    def write(self, count: int) -> list[PendingAppend]:
        written, self._tickets = self._tickets[:count], self._tickets[count:]
        for ticket in written:
            assert ticket.log is not None
            ticket.outcome = self._store.writer.append(ticket.log, ticket.draft)
        return written


class Publisher:
    """A connection that sends as long as anything is read from it."""

    def __init__(self, hub: Hub) -> None:
        self.transport = ScriptedStream()
        session = hub.connect(self.transport, "here")
        assert session is not None
        self.session = session

    async def send(self, frame: bytes, times: int) -> None:
        for _ in range(times):
            if self.transport.reading:
                self.session.received(frame)
            while self.session.busy and not self.session.suspended:
                await asyncio.sleep(0)


def with_still_disk(root: Path, story: Callable[[Hub, StillDisk], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        with Store.open(root, create=True, limits=Limits(disk_reserve_bytes=1)) as store:
            store.create_topic(ORDERS)
            broker = Broker(WireLimits(), SystemClock(), random.Random(1), now_ms=now_ms(), store=store)
            disk: Any = StillDisk(store)
            hub = Hub(broker, WireLimits(), now_ms, disk)
            await asyncio.wait_for(story(hub, disk), DEADLINE_SECONDS)
            await hub.drain(0)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("own", "of_all", "enough"),
    [
        (4 * MIB, 4 * MIB, False),
        (4 * MIB + 1, 4 * MIB + 1, True),
        (4 * MIB, 8 * MIB, False),
        (4 * MIB, 8 * MIB + 2, True),
        (1, 16 * MIB - 2, False),
        (2, 16 * MIB - 2, True),
        (0, 16 * MIB, False),
        (0, 100 * MIB, False),
        (1, 100 * MIB, True),
    ],
)
def test_nobody_has_more_than_half_of_what_the_others_leave_nor_less_than_a_message(
    tmp_path: Path, own: int, of_all: int, enough: bool
) -> None:
    async def story(hub: Hub, _disk: StillDisk) -> None:
        session = Publisher(hub).session
        session.unstored_bytes, hub.unstored_bytes = own, of_all
        assert session.is_backlogged is enough

    with_still_disk(tmp_path / "data", story)


def test_fifty_connections_with_large_messages_have_little_more_than_one_each_on_the_way(tmp_path: Path) -> None:
    async def story(hub: Hub, disk: StillDisk) -> None:
        crowd = [Publisher(hub) for _ in range(CROWD)]
        for each in crowd:
            await each.send(LARGE, 8)
        assert not any(each.transport.reading for each in crowd)
        counts = [each.session.unstored_bytes // MIB for each in crowd]
        assert counts[:4] == [4, 4, 3, 2], "half of what is left, 4 MiB at most"
        assert set(counts[5:]) == {1}, "when there is nothing left, one message"
        assert hub.unstored_bytes < (16 + CROWD) * MIB

        late = Publisher(hub)
        await late.send(SMALL, 2)
        assert 0 < late.session.unstored_bytes < 1024, "it does not wait for any of them to end"

        hub.committed(disk.write(counts[0]))
        while not crowd[0].transport.reading:
            await asyncio.sleep(0)
        await crowd[0].send(LARGE, 8)
        assert crowd[0].session.unstored_bytes // MIB == 1, "it goes on, with its share"

    with_still_disk(tmp_path / "data", story)
