"""Holdings: one budget for what connections make the broker hold, and who goes when there is no room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.core.errors import PenstockError, QuotaExceeded
from penstock.core.limits import KIB, MIB
from penstock.server.resources import buffer_budget as module
from penstock.server.resources.buffer_budget import SMALL_BYTES, STRANGERS_BYTES_MAX, Budget, Holding, Holdings
from penstock.server.session import Session

# the budget


def test_a_budget_gives_all_of_it_or_nothing() -> None:
    budget = Budget(100)
    assert budget.take(60)
    assert not budget.take(41)
    assert budget.take(40)
    assert (budget.used_bytes, budget.is_short) == (100, False)
    assert budget.take(-100)
    assert budget.used_bytes == 0


def test_a_budget_within_another_takes_from_both_or_from_neither() -> None:
    around = Budget(100)
    inner = Budget(50, around)
    assert around.take(70)
    assert not inner.take(31)
    assert (inner.used_bytes, around.used_bytes) == (0, 70)
    assert inner.take(30)
    assert (inner.used_bytes, around.used_bytes) == (30, 100)


def test_what_is_there_already_is_counted_room_or_no_room() -> None:
    around = Budget(10)
    Budget(5, around).add(11)
    assert around.is_short


# connections


class Connection:
    """As much of a session as holdings look at."""

    def __init__(self, name: str, holding: Holding) -> None:
        self.name = name
        self.holding = holding
        self.wanted = self.held = 0
        self.sent = self.queued = 0

        self.ending = False

    def half(self) -> tuple[int, int]:
        return self.wanted, self.held

    def output(self) -> tuple[int, int]:
        return self.sent, self.queued


class Desk:
    """Holdings with a clock and an event loop that stand still until they are told otherwise."""

    def __init__(self, bytes_max: int) -> None:
        self.connections: list[Connection] = []
        self.ended: list[tuple[str, PenstockError]] = []
        self.due: list[Callable[[], None]] = []
        self.holdings = Holdings(
            bytes_max,
            sessions=lambda: cast("Any", list(self.connections)),
            end=cast("Any", self._end),
            go_on=cast("Any", self.measure),
        )
        self.holdings._loop = cast("Any", self)

    def call_soon(self, call: Callable[[], None]) -> Callable[[], None]:
        self.due.append(call)
        return call

    def call_later(self, _seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        return self.call_soon(call)

    def look(self) -> None:
        calls, self.due = self.due, []
        for call in calls:
            call()

    def open(self, name: str, *, stranger: bool = False) -> Connection:
        found = Connection(name, self.holdings.open(stranger=stranger))
        self.connections.append(found)
        return found

    def half(self, connection: Connection, wanted: int, held: int = 0) -> None:
        connection.wanted, connection.held = wanted, held
        self.measure(connection)

    def measure(self, connection: Connection) -> None:
        self.holdings.measure(cast("Session", connection), connection.wanted, connection.held)

    def queue(self, connection: Connection, queued: int) -> None:
        connection.queued = queued
        self.holdings.queued(connection.holding, queued)

    def _end(self, connection: Connection, error: PenstockError) -> None:
        self.ended.append((connection.name, error))
        self.connections.remove(connection)
        connection.ending = True
        self.holdings.close(cast("Session", connection))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.ended]


def play(story: Callable[[], None]) -> None:
    async def on_a_loop() -> None:
        story()

    asyncio.run(on_a_loop())


def test_a_large_message_is_counted_whole_when_it_begins_and_the_next_waits_for_it_to_end() -> None:
    def story() -> None:
        desk = Desk(16 * MIB)  # 8 of them for what comes in, one of these for small messages
        one, two, three = (desk.open(name) for name in ("one", "two", "three"))
        desk.half(one, 4 * MIB, 100)
        desk.half(two, 4 * MIB, 100)
        desk.half(three, 2 * MIB, 100)
        assert [each.holding.waits for each in (one, two, three)] == [False, True, False]
        assert desk.holdings.used_bytes == 6 * MIB + 100
        desk.half(one, 0)
        assert not two.holding.waits
        assert desk.holdings.used_bytes == 6 * MIB
        assert desk.ended == []

    play(story)


def test_of_those_who_wait_the_smallest_go_on_first() -> None:
    def story() -> None:
        desk = Desk(16 * MIB)
        first, *waiting = [desk.open(str(number)) for number in range(4)]
        desk.half(first, 7 * MIB)
        for each, size in zip(waiting, (4, 2, 5), strict=True):
            desk.half(each, size * MIB)
        assert [each.holding.waits for each in waiting] == [True] * 3
        desk.half(first, 0)
        assert [each.holding.waits for each in waiting] == [False, False, True]

    play(story)


def test_small_messages_go_on_where_there_is_no_room_for_large_ones() -> None:
    def story() -> None:
        desk = Desk(16 * MIB)
        desk.half(desk.open("large"), 7 * MIB)
        small = [desk.open(str(number)) for number in range(16)]
        for each in small:
            desk.half(each, SMALL_BYTES, 1000)
        assert not any(each.holding.waits for each in small)
        desk.half(late := desk.open("late"), SMALL_BYTES, 1000)
        assert late.holding.waits
        assert desk.ended == []

    play(story)


def test_a_message_larger_than_everything_is_taken_where_it_is_the_only_one() -> None:
    def story() -> None:
        desk = Desk(2 * MIB)
        only = desk.open("only")
        desk.half(only, 4 * MIB)
        assert not only.holding.waits

    play(story)


def test_what_does_not_even_fit_as_far_as_it_has_come_ends_its_connection() -> None:
    def story() -> None:
        desk = Desk(2 * MIB)
        desk.half(desk.open("first"), 800 * KIB)
        desk.half(desk.open("second"), 900 * KIB, 250 * KIB)
        ((name, error),) = desk.ended
        assert name == "second"
        assert isinstance(error, QuotaExceeded)
        assert "No room for more of this message" in error.message

    play(story)


def test_half_a_message_that_does_not_get_on_goes_when_others_wait() -> None:
    def story() -> None:
        desk = Desk(16 * MIB)
        still, slow, quick, busy, new = (desk.open(name) for name in ("still", "slow", "quick", "busy", "new"))
        for each in (still, slow, quick):
            desk.half(each, 2 * MIB, 10)
        desk.half(busy, MIB, 10)
        desk.half(new, 4 * MIB, 10)
        assert [each.holding.waits for each in (busy, new)] == [False, True]
        desk.look()
        assert desk.names == [], "nobody has had the time to send"
        slow.held += 2 * MIB // module._MOVED_SHARE - 1
        quick.held += 2 * MIB // module._MOVED_SHARE
        busy.holding.moved = True  # one message has come, the next has begun
        desk.look()
        assert sorted(desk.names) == ["slow", "still"]
        assert "did not get on" in desk.ended[0][1].message
        assert not new.holding.waits
        assert desk.due == [], "nobody looks where nobody waits"

    play(story)


def test_nobody_goes_for_being_slow_while_there_is_room() -> None:
    def story() -> None:
        desk = Desk(16 * MIB)
        desk.half(desk.open("slow"), 4 * MIB, 10)
        for _ in range(100):
            desk.holdings.look_soon()
            desk.look()
        assert desk.names == []

    play(story)


def test_strangers_have_a_total_of_their_own() -> None:
    def story() -> None:
        desk = Desk(256 * MIB)
        count = STRANGERS_BYTES_MAX // SMALL_BYTES
        strangers = [desk.open(str(number), stranger=True) for number in range(count + 1)]
        for each in strangers:
            desk.half(each, SMALL_BYTES, 10)
        assert desk.names == [str(count)]
        assert desk.holdings.used_bytes == STRANGERS_BYTES_MAX
        desk.holdings.known(strangers[0].holding)
        assert desk.holdings.strangers.used_bytes == STRANGERS_BYTES_MAX - SMALL_BYTES
        assert desk.holdings.used_bytes == STRANGERS_BYTES_MAX
        desk.half(desk.open("friend"), 4 * MIB)
        assert len(desk.ended) == 1

    play(story)


def test_readers_that_do_not_read_go_the_largest_first_until_there_is_room_again() -> None:
    def story() -> None:
        desk = Desk(16 * MIB)
        reading, *stalled = [desk.open(name) for name in ("reading", "small", "large", "larger")]
        for each, size in zip((reading, *stalled), (5, 1, 3, 4), strict=True):
            desk.queue(each, size * MIB)
        desk.look()
        assert desk.names == [], "nobody has had the time to read"
        reading.sent += 5 * MIB // module._MOVED_SHARE
        desk.look()
        assert desk.names == ["larger", "large"]
        assert "Too slow" in desk.ended[0][1].message
        desk.look()
        assert desk.due == []

    play(story)


def test_what_was_taken_since_is_seen_before_anybody_goes() -> None:
    def story() -> None:
        desk = Desk(16 * MIB)
        many = [desk.open(str(number)) for number in range(10)]
        for each in many:
            desk.queue(each, MIB)
        assert desk.holdings.outgoing.is_short
        for each in many:
            each.queued, each.sent = 0, MIB
        desk.look()
        assert desk.holdings.used_bytes == 0
        assert (desk.due, desk.ended) == ([], [])

    play(story)


def test_readers_take_nothing_from_those_who_send() -> None:
    def story() -> None:
        desk = Desk(16 * MIB)
        desk.queue(desk.open("stalled"), 100 * MIB)
        sending = desk.open("sending")
        desk.half(sending, 4 * MIB)
        assert not sending.holding.waits

    play(story)


@pytest.mark.parametrize("size", [1, SMALL_BYTES, 5 * MIB])
def test_a_connection_that_is_gone_holds_nothing(size: int) -> None:
    def story() -> None:
        desk = Desk(16 * MIB)
        one = desk.open("one")
        desk.half(one, size, size // 2)
        desk.queue(one, size)
        desk.holdings.close(cast("Session", one))
        assert desk.holdings.used_bytes == 0

    play(story)
