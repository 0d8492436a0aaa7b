"""A fair queue: a requester with many jobs waits for them, and others do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.broker.access.policy import ANONYMOUS, Principal
from penstock.core.errors import PenstockError, QuotaExceeded, ServiceUnavailable, Timeout
from penstock.server.resources.fair_queue import FairQueue, Requester, requester_name


class Story:
    """Things that are asked for while the first of them is being done."""

    def __init__(self, waiting_max: int = 100, each_max: int | None = None) -> None:
        self.queue = FairQueue(waiting_max, each_max)
        self.done: list[str] = []
        self.failed: dict[str, PenstockError] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._first_may_end = asyncio.Event()

    async def begin(self) -> None:
        await self.ask("first", "0")

    async def ask(
        self, requester: str, what: str, *, low_priority: bool = False, waits: Callable[[], bool] | None = None
    ) -> None:
        """Returns when it waits."""
        given = Requester(requester) if waits is None else Requester(requester, waits)
        self.tasks[requester + what] = asyncio.create_task(
            self._take(given, requester + what, low_priority=low_priority)
        )
        for _ in range(3):
            await asyncio.sleep(0)

    async def _take(self, requester: Requester, what: str, *, low_priority: bool) -> None:
        try:
            async with self.queue.turn(requester, low_priority=low_priority):
                self.done.append(what)
                await self._first_may_end.wait()
        except PenstockError as error:
            self.failed[what] = error

    async def end(self) -> list[str]:
        self._first_may_end.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return self.done[1:]


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_those_who_ask_take_turns_and_each_is_served_in_order() -> None:
    async def story() -> None:
        told = Story()
        await told.begin()
        for what in "1234":
            await told.ask("a", what)
        await told.ask("b", "1")
        await told.ask("c", "1")
        await told.ask("c", "2")
        assert await told.end() == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]

    play(story)


def test_what_changes_something_goes_before_what_only_asks_of_the_same_one() -> None:
    async def story() -> None:
        told = Story()
        await told.begin()
        for what in "123":
            await told.ask("a", what, low_priority=True)
        await told.ask("b", "1", low_priority=True)
        await told.ask("a", "4")
        assert await told.end() == ["a4", "b1", "a1", "a2", "a3"]

    play(story)


def test_a_requester_with_too_many_jobs_is_refused_and_no_other_is() -> None:
    async def story() -> None:
        told = Story(each_max=2)
        await told.begin()
        for what in "123":
            await told.ask("a", what, low_priority=True)
        await told.ask("a", "4")
        await told.ask("b", "1", low_priority=True)
        assert isinstance(told.failed["a3"], QuotaExceeded)
        assert await told.end() == ["a4", "b1", "a1", "a2"]
        assert list(told.failed) == ["a3"]

    play(story)


def test_where_there_is_no_room_the_last_of_who_has_most_makes_it() -> None:
    async def story() -> None:
        told = Story(waiting_max=3)
        await told.begin()
        for what in "123":
            await told.ask("a", what)
        await told.ask("b", "1")
        assert isinstance(told.failed["a3"], ServiceUnavailable)
        await told.ask("c", "1")
        assert isinstance(told.failed["a2"], ServiceUnavailable)
        await told.ask("d", "1")
        assert isinstance(told.failed["d1"], ServiceUnavailable), "nobody has more than one"
        assert await told.end() == ["a1", "b1", "c1"]

    play(story)


def test_what_nobody_waits_for_is_not_done() -> None:
    async def story() -> None:
        told = Story()
        await told.begin()
        loopback_only = True
        await told.ask("a", "1", waits=lambda: loopback_only)
        await told.ask("a", "2")
        loopback_only = False
        assert await told.end() == ["a2"]
        assert isinstance(told.failed["a1"], Timeout)

    play(story)


@pytest.mark.parametrize("late", [False, True])
def test_who_gives_up_leaves_the_turn_to_the_next(late: bool) -> None:
    """Also in the moment in which it was given it."""

    async def story() -> None:
        told = Story()
        await told.begin()
        await told.ask("a", "1")
        await told.ask("b", "1")
        if late:
            told.tasks["first0"].cancel()
            await asyncio.sleep(0)
        told.tasks["a1"].cancel()
        assert await told.end() == ["b1"]
        async with told.queue.turn(Requester("c")):
            pass

    play(story)


def test_a_machine_is_one_name_where_nobody_says_who_it_is() -> None:
    assert requester_name(ANONYMOUS, "10.0.0.1:4000") == requester_name(ANONYMOUS, "10.0.0.1:4001") == "10.0.0.1"
    assert requester_name(ANONYMOUS, "::1:4000") == "::1"
    assert requester_name(Principal(name="key:one"), "10.0.0.1:4000") == str(Principal(name="key:one"))
