"""The read budget: reads of all connections that wait for their turn, and how large the next one may be."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.kit import PING, framed, ws_frame
from tests.server.test_turns import Ticking, Wire, opened, with_hub

from penstock.server import hub as module
from penstock.server.hub import Hub
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
    """One read of a socket that has this much; the bytes that it took."""
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
