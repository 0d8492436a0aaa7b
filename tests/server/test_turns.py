"""Turns: how much one connection may do before it is the turn of the others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.server.kit import BINARY, CONTINUATION, ID, PING, framed, message, upgrade, ws_frame

from penstock.broker.broker import Broker
from penstock.core.clock import SystemClock
from penstock.core.limits import MIB, WireLimits
from penstock.server import hub as module
from penstock.server.hub import Hub
from penstock.server.session import Session
from penstock.server.transports.websocket import (
    FRAMES_PER_TURN,
    IDLE_FRAMES_MAX,
    IDLE_FRAMES_MS,
    IdleFrames,
    WebSocketPort,
    WebSocketTransport,
)
from penstock.testing import ScriptedStream

BEAT = message(f"request:system.heartbeat:1.0.0:{ID}", b"{}")


def with_hub(story: Callable[[Hub], Coroutine[Any, Any, None]], limits: WireLimits = WireLimits()) -> None:  # noqa: B008
    async def play() -> None:
        hub = Hub(Broker(limits, SystemClock(), random.Random(1), now_ms=0), limits, lambda: 0)
        await story(hub)
        await hub.drain(0)

    asyncio.run(play())


# messages, however small


class Ticking:
    """A clock on which every look takes a tenth of a millisecond: so a message takes about one."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks / 10_000


@pytest.mark.parametrize("frame", [b"", b"publish:" + b"a" * 2_000], ids=["empty frames", "endless headers"])
def test_busy_sessions_share_one_slice_and_new_ones_do_not_wait_for_them(
    monkeypatch: pytest.MonkeyPatch, frame: bytes
) -> None:
    async def story(hub: Hub) -> None:
        clock = Ticking()
        monkeypatch.setattr(module, "time", clock)
        transports = [ScriptedStream() for _ in range(11)]
        sessions = [hub.connect(transport, "here") for transport in transports]
        *flooders, healthy = [each for each in sessions if isinstance(each, Session)]
        for flooder in flooders:
            flooder.received(framed(frame) * 1000)
        await asyncio.sleep(0)
        for _ in range(5):
            for transport in transports:
                transport.taken()
            before = clock.looks
            await asyncio.sleep(0)
            assert clock.looks - before < 200, "one slice for all of them, and not a hundred looks for each"
            assert all(transport.taken() for transport in transports[:-1]), "and each of them gets on"
            healthy.received(framed(BEAT))
            (answer,) = transports[-1].taken()
            assert answer.header.request_id == ID
        monkeypatch.undo()

    with_hub(story)


# frames that are no messages


class Wire(asyncio.Transport):
    """An asyncio transport in place of a socket."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = b""
        self.reading = True
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    def taken(self) -> bytes:
        written, self.written = self.written, b""
        return written


def opened(hub: Hub) -> tuple[WebSocketTransport, Wire]:
    transport, wire = WebSocketTransport(WebSocketPort(hub, (), loopback_only=True)), Wire()
    transport.connection_made(wire)
    transport.data_received(upgrade(1))
    assert wire.taken().startswith(b"HTTP/1.1 101 ")
    return transport, wire


PONG = bytes((0x8A, 0))


def test_pings_of_one_read_are_answered_in_several_turns() -> None:
    async def story(hub: Hub) -> None:
        transport, wire = opened(hub)
        transport.data_received(ws_frame(PING) * (FRAMES_PER_TURN + 50))
        assert wire.taken() == PONG * FRAMES_PER_TURN
        assert not wire.reading
        await asyncio.sleep(0)
        assert wire.taken() == PONG * 50
        assert wire.reading

    with_hub(story)


def test_fragments_of_one_read_are_put_together_in_several_turns() -> None:
    async def story(hub: Hub) -> None:
        transport, wire = opened(hub)
        parts = [ws_frame(CONTINUATION if place else BINARY, b"x", fin=False) for place in range(3 * FRAMES_PER_TURN)]
        transport.data_received(b"".join([*parts, ws_frame(CONTINUATION, b"x")]))
        turns = 0
        while not wire.written:
            await asyncio.sleep(0)
            turns += 1
        assert turns == 3
        assert b"MALFORMED_MESSAGE" in wire.taken()

    with_hub(story)


def test_the_hub_cannot_have_a_connection_read_whose_turn_is_over() -> None:
    async def story(hub: Hub) -> None:
        transport, wire = opened(hub)
        transport.data_received(ws_frame(PING) * FRAMES_PER_TURN + ws_frame(BINARY, BEAT))
        transport.resume_reading()
        assert not wire.reading
        transport.pause_reading()
        await asyncio.sleep(0)
        assert wire.reading, "its message was handled, and the hub wants more"

    with_hub(story)


def test_what_came_before_the_end_of_the_connection_is_handled_in_its_turn() -> None:
    async def story(hub: Hub) -> None:
        transport, wire = opened(hub)
        transport.data_received(ws_frame(PING) * FRAMES_PER_TURN + ws_frame(BINARY, BEAT))
        wire.can_write_eof = lambda: True  # type: ignore[method-assign]
        assert transport.eof_received(), "it is kept open for that"
        wire.taken()
        await asyncio.sleep(0)
        assert ID.encode() in wire.taken()
        assert wire.closing

    with_hub(story)


def test_idle_frames_are_counted_from_the_last_message_and_within_a_window() -> None:
    idle = IdleFrames()
    assert not any(idle.exceeds_limit(0) for _ in range(IDLE_FRAMES_MAX))
    assert idle.exceeds_limit(IDLE_FRAMES_MS)
    assert not idle.exceeds_limit(IDLE_FRAMES_MS + 1), "another window"
    idle.message()
    assert not any(idle.exceeds_limit(IDLE_FRAMES_MS + 2) for _ in range(IDLE_FRAMES_MAX))
    assert idle.exceeds_limit(IDLE_FRAMES_MS + 3)


def test_a_message_that_there_is_no_room_for_is_not_read_on_until_there_is() -> None:
    async def story(hub: Hub) -> None:
        (first, its_wire), (second, other_wire) = opened(hub), opened(hub)
        large = ws_frame(BINARY, bytes(3 * MIB))
        first.data_received(large[:1000])
        second.data_received(large[:1000])
        assert (its_wire.reading, other_wire.reading) == (True, False)
        assert hub.held_bytes >= 3 * MIB
        first.data_received(large[1000:])
        assert (its_wire.reading, other_wire.reading) == (True, True)
        second.data_received(large[1000:])
        assert b"MALFORMED_MESSAGE" in other_wire.taken()
        assert hub.buffers.incoming.used_bytes == 0

    with_hub(story, WireLimits(held_bytes_max=8 * MIB))
