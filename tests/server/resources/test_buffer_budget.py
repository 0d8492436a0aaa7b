"""The buffer budget: one limit for what connections make the broker hold, and the connections that end for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.core.errors import PenstockError, QuotaExceeded
from penstock.core.limits import KIB, MIB
from penstock.server.resources import buffer_budget as module
from penstock.server.resources.buffer_budget import (
    SMALL_BYTES,
    UNAUTHENTICATED_BYTES_MAX,
    BufferBudget,
    BufferShare,
    ByteBudget,
)
from penstock.server.session import Session

# the budget


def test_a_budget_gives_all_of_it_or_nothing() -> None:
    budget = ByteBudget(100)
    assert budget.try_take(60)
    assert not budget.try_take(41)
    assert budget.try_take(40)
    assert (budget.used_bytes, budget.is_short) == (100, False)
    assert budget.try_take(-100)
    assert budget.used_bytes == 0


def test_a_budget_within_another_takes_from_both_or_from_neither() -> None:
    parent = ByteBudget(100)
    inner = ByteBudget(50, parent)
    assert parent.try_take(70)
    assert not inner.try_take(31)
    assert (inner.used_bytes, parent.used_bytes) == (0, 70)
    assert inner.try_take(30)
    assert (inner.used_bytes, parent.used_bytes) == (30, 100)


def test_what_is_there_already_is_counted_room_or_no_room() -> None:
    parent = ByteBudget(10)
    ByteBudget(5, parent).add(11)
    assert parent.is_short


# connections


class Connection:
    """The part of a session that the budget uses."""

    def __init__(self, name: str, share: BufferShare) -> None:
        self.name = name
        self.share = share
        self.wanted = self.held = 0
        self.sent = self.queued = 0

        self.ending = False

    def partial_message(self) -> tuple[int, int]:
        return self.wanted, self.held

    def output(self) -> tuple[int, int]:
        return self.sent, self.queued


class BudgetOnManualLoop:
    """A budget with an event loop that runs only when the test says so."""

    def __init__(self, bytes_max: int) -> None:
        self.connections: list[Connection] = []
        self.ended: list[tuple[str, PenstockError]] = []
        self.due: list[Callable[[], None]] = []
        self.buffers = BufferBudget(
            bytes_max,
            sessions=lambda: cast("Any", list(self.connections)),
            end=cast("Any", self._end),
            resume=cast("Any", self.measure),
        )
        self.buffers._loop = cast("Any", self)

    def call_soon(self, call: Callable[[], None]) -> Callable[[], None]:
        self.due.append(call)
        return call

    def call_later(self, _seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        return self.call_soon(call)

    def look(self) -> None:
        calls, self.due = self.due, []
        for call in calls:
            call()

    def open(self, name: str, *, unauthenticated: bool = False) -> Connection:
        found = Connection(name, self.buffers.open(unauthenticated=unauthenticated))
        self.connections.append(found)
        return found

    def partial_message(self, connection: Connection, wanted: int, held: int = 0) -> None:
        connection.wanted, connection.held = wanted, held
        self.measure(connection)

    def measure(self, connection: Connection) -> None:
        self.buffers.measure(cast("Session", connection), connection.wanted, connection.held)

    def queue(self, connection: Connection, queued: int) -> None:
        connection.queued = queued
        self.buffers.record_queued(connection.share, queued)

    def _end(self, connection: Connection, error: PenstockError) -> None:
        self.ended.append((connection.name, error))
        self.connections.remove(connection)
        connection.ending = True
        self.buffers.close(cast("Session", connection))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.ended]


def play(story: Callable[[], None]) -> None:
    async def on_a_loop() -> None:
        story()

    asyncio.run(on_a_loop())


def test_a_large_message_is_counted_whole_when_it_begins_and_the_next_waits_for_it_to_end() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(16 * MIB)  # 8 of them for what comes in, one of these for small messages
        one, two, three = (running.open(name) for name in ("one", "two", "three"))
        running.partial_message(one, 4 * MIB, 100)
        running.partial_message(two, 4 * MIB, 100)
        running.partial_message(three, 2 * MIB, 100)
        assert [each.share.waits_for_room for each in (one, two, three)] == [False, True, False]
        assert running.buffers.used_bytes == 6 * MIB + 100
        running.partial_message(one, 0)
        assert not two.share.waits_for_room
        assert running.buffers.used_bytes == 6 * MIB
        assert running.ended == []

    play(story)


def test_of_those_who_wait_the_smallest_go_on_first() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(16 * MIB)
        first, *waiting = [running.open(str(number)) for number in range(4)]
        running.partial_message(first, 7 * MIB)
        for each, size in zip(waiting, (4, 2, 5), strict=True):
            running.partial_message(each, size * MIB)
        assert [each.share.waits_for_room for each in waiting] == [True] * 3
        running.partial_message(first, 0)
        assert [each.share.waits_for_room for each in waiting] == [False, False, True]

    play(story)


def test_small_messages_go_on_where_there_is_no_room_for_large_ones() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(16 * MIB)
        running.partial_message(running.open("large"), 7 * MIB)
        small = [running.open(str(number)) for number in range(16)]
        for each in small:
            running.partial_message(each, SMALL_BYTES, 1000)
        assert not any(each.share.waits_for_room for each in small)
        running.partial_message(late := running.open("late"), SMALL_BYTES, 1000)
        assert late.share.waits_for_room
        assert running.ended == []

    play(story)


def test_a_message_larger_than_everything_is_taken_where_it_is_the_only_one() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(2 * MIB)
        only = running.open("only")
        running.partial_message(only, 4 * MIB)
        assert not only.share.waits_for_room

    play(story)


def test_what_does_not_even_fit_as_far_as_it_has_come_ends_its_connection() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(2 * MIB)
        running.partial_message(running.open("first"), 800 * KIB)
        running.partial_message(running.open("second"), 900 * KIB, 250 * KIB)
        ((name, error),) = running.ended
        assert name == "second"
        assert isinstance(error, QuotaExceeded)
        assert "No room for more of this message" in error.message

    play(story)


def test_half_a_message_that_does_not_get_on_goes_when_others_wait() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(16 * MIB)
        still, slow, quick, busy, new = (running.open(name) for name in ("still", "slow", "quick", "busy", "new"))
        for each in (still, slow, quick):
            running.partial_message(each, 2 * MIB, 10)
        running.partial_message(busy, MIB, 10)
        running.partial_message(new, 4 * MIB, 10)
        assert [each.share.waits_for_room for each in (busy, new)] == [False, True]
        running.look()
        assert running.names == [], "nobody has had the time to send"
        slow.held += 2 * MIB // module._PROGRESS_SHARE - 1
        quick.held += 2 * MIB // module._PROGRESS_SHARE
        busy.share.progressed = True  # one message has come, the next has begun
        running.look()
        assert sorted(running.names) == ["slow", "still"]
        assert "did not get on" in running.ended[0][1].message
        assert not new.share.waits_for_room
        assert running.due == [], "nobody looks where nobody waits"

    play(story)


def test_no_connection_ends_for_being_slow_while_there_is_room() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(16 * MIB)
        running.partial_message(running.open("slow"), 4 * MIB, 10)
        for _ in range(100):
            running.buffers.check_soon()
            running.look()
        assert running.names == []

    play(story)


def test_unauthenticated_connections_have_a_budget_of_their_own() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(256 * MIB)
        count = UNAUTHENTICATED_BYTES_MAX // SMALL_BYTES
        strangers = [running.open(str(number), unauthenticated=True) for number in range(count + 1)]
        for each in strangers:
            running.partial_message(each, SMALL_BYTES, 10)
        assert running.names == [str(count)]
        assert running.buffers.used_bytes == UNAUTHENTICATED_BYTES_MAX
        running.buffers.mark_authenticated(strangers[0].share)
        assert running.buffers.unauthenticated.used_bytes == UNAUTHENTICATED_BYTES_MAX - SMALL_BYTES
        assert running.buffers.used_bytes == UNAUTHENTICATED_BYTES_MAX
        running.partial_message(running.open("friend"), 4 * MIB)
        assert len(running.ended) == 1

    play(story)


def test_readers_that_do_not_read_go_the_largest_first_until_there_is_room_again() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(16 * MIB)
        reading, *stalled = [running.open(name) for name in ("reading", "small", "large", "larger")]
        for each, size in zip((reading, *stalled), (5, 1, 3, 4), strict=True):
            running.queue(each, size * MIB)
        running.look()
        assert running.names == [], "nobody has had the time to read"
        reading.sent += 5 * MIB // module._PROGRESS_SHARE
        running.look()
        assert running.names == ["larger", "large"]
        assert "Too slow" in running.ended[0][1].message
        running.look()
        assert running.due == []

    play(story)


def test_what_was_taken_since_is_seen_before_anybody_goes() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(16 * MIB)
        many = [running.open(str(number)) for number in range(10)]
        for each in many:
            running.queue(each, MIB)
        assert running.buffers.outgoing.is_short
        for each in many:
            each.queued, each.sent = 0, MIB
        running.look()
        assert running.buffers.used_bytes == 0
        assert (running.due, running.ended) == ([], [])

    play(story)


def test_readers_take_nothing_from_those_who_send() -> None:
    def story() -> None:
        running = BudgetOnManualLoop(16 * MIB)
        running.queue(running.open("stalled"), 100 * MIB)
        sending = running.open("sending")
        running.partial_message(sending, 4 * MIB)
        assert not sending.share.waits_for_room

    play(story)


@pytest.mark.parametrize("size", [1, SMALL_BYTES, 5 * MIB])
def test_a_connection_that_is_gone_holds_nothing(size: int) -> None:
    def story() -> None:
        running = BudgetOnManualLoop(16 * MIB)
        one = running.open("one")
        running.partial_message(one, size, size // 2)
        running.queue(one, size)
        running.buffers.close(cast("Session", one))
        assert running.buffers.used_bytes == 0

    play(story)
