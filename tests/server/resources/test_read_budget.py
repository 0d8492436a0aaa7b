"""The read budget: reads of all connections that wait for their turn, and how large the next one may be."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from tests.server.kit import PING, framed, ws_frame
from tests.server.test_turns import Ticking, Wire, opened, with_hub

from penstock.core.limits import KIB, WireLimits
from penstock.protocol.batch_reader import BatchReader
from penstock.server import hub as module
from penstock.server.hub import Hub
from penstock.server.resources import buffer_budget
from penstock.server.resources.buffer_budget import SMALL_BYTES
from penstock.server.resources.read_budget import READ_BYTES_MAX, READ_BYTES_MIN, WAITING_BYTES_MAX, ReadBudget
from penstock.server.transports.tcp import TcpTransport

CONNECTIONS = 1_000
EMPTY = framed(b"")


def test_a_read_takes_a_sixteenth_of_the_room_that_is_left_and_never_less_than_the_smallest() -> None:
    budget = ReadBudget()
    assert len(budget.buffer) == READ_BYTES_MAX
    budget.add(WAITING_BYTES_MAX - 16 * 10_000)
    assert len(budget.buffer) == 10_000
    budget.add(16 * 10_000)
    assert len(budget.buffer) == READ_BYTES_MIN
    budget.add(WAITING_BYTES_MAX)
    assert len(budget.buffer) == READ_BYTES_MIN
    budget.add(-2 * WAITING_BYTES_MAX)
    assert len(budget.buffer) == READ_BYTES_MAX


def read(transport: TcpTransport, data: bytes) -> int:
    """Read once from a socket that has `data`; return the number of bytes taken."""
    room = transport.get_buffer(-1)
    taken = min(len(room), len(data))
    room[:taken] = data[:taken]
    transport.buffer_updated(taken)
    return taken


def test_a_thousand_connections_that_flood_hold_the_budget_and_a_smallest_read_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the budget each would hold a read of 256 KiB: 250 MiB of a thousand, and 3.7 GiB of all there may be."""

    async def story(hub: Hub) -> None:
        monkeypatch.setattr(module, "time", Ticking())
        wires = [Wire() for _ in range(CONNECTIONS)]
        transports = [TcpTransport(hub) for _ in wires]
        sizes = []
        for transport, wire in zip(transports, wires, strict=True):
            transport.connection_made(wire)
            sizes.append(read(transport, EMPTY * (READ_BYTES_MAX // len(EMPTY))))
        assert not any(wire.reading for wire in wires), "each waits for its turn"
        assert sizes[0] == READ_BYTES_MAX
        assert set(sizes[-100:]) == {READ_BYTES_MIN}
        assert hub.read_budget.waiting_bytes == sum(sizes) == hub.held_bytes - hub.buffers.used_bytes
        assert sum(sizes) < WAITING_BYTES_MAX + CONNECTIONS * READ_BYTES_MIN
        for session in hub.sessions()[:-1]:
            hub.disconnect(session, "gone")
        assert hub.read_budget.waiting_bytes == READ_BYTES_MIN, "what is over is not counted"
        monkeypatch.undo()
        while hub.read_budget.waiting_bytes:
            await asyncio.sleep(0)
        assert wires[-1].reading
        assert len(hub.read_budget.buffer) == READ_BYTES_MAX

    with_hub(story)


def test_frames_of_a_websocket_that_wait_for_the_next_turn_are_counted() -> None:
    async def story(hub: Hub) -> None:
        transport, wire = opened(hub)
        pings = ws_frame(PING) * 200
        transport.data_received(pings)
        assert 0 < hub.read_budget.waiting_bytes < len(pings)
        await asyncio.sleep(0)
        assert hub.read_budget.waiting_bytes == 0
        assert wire.reading

    with_hub(story)


def test_a_read_full_of_the_shortest_messages_takes_little_more_than_itself_while_it_waits() -> None:
    """Check the memory of a parsed read, of which each message takes twenty times an empty one: only a few are parsed
    at a time."""

    async def story(hub: Hub) -> None:
        reader = BatchReader(hub.frame_limits, hub.scratch)
        data = EMPTY * (READ_BYTES_MAX // len(EMPTY))
        tracemalloc.start()
        try:
            waiting = iter(reader.receive_data(data))
            next(waiting)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 64 * KIB
        assert 1 + sum(1 for _ in waiting) == len(data) // len(EMPTY)

    with_hub(story)


class Full(Wire):
    """A connection whose other side takes nothing until the test says so."""

    takes = False

    def get_write_buffer_size(self) -> int:
        return 0 if self.takes else len(self.written)


def test_who_does_not_read_its_answers_is_not_read_while_there_is_no_room_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Flood the broker with requests: without the limit it would hold as many answers as it can write between two
    checks."""
    monkeypatch.setattr(buffer_budget, "CHECK_SECONDS", 0.02)

    async def story(hub: Hub) -> None:
        wire = Full()
        transport = TcpTransport(hub)
        transport.connection_made(wire)
        while wire.reading and not wire.closing and len(wire.written) < 4 * hub.limits.held_bytes_max:
            read(transport, EMPTY * 256)
            await asyncio.sleep(0)
        assert hub.sessions()[0].share.paused_to_drain
        assert SMALL_BYTES < len(wire.written) < hub.limits.held_bytes_max
        wire.takes = True
        async with asyncio.timeout(5):
            while hub.sessions()[0].share.paused_to_drain:
                await asyncio.sleep(0.01)
        assert (wire.reading, wire.closing) == (True, False)

    with_hub(
        story,
        WireLimits(
            held_bytes_max=512 * KIB, output_bytes_max=512 * KIB, payload_bytes_max=64 * KIB, block_bytes_max=64 * KIB
        ),
    )
