"""Consultants: tasks that carry out what the registry wants done, each step where it belongs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.broker.effects import Consult, Effect, Inspect, Work
from penstock.core.errors import PenstockError
from penstock.schema.procedures import Commit, Compare, Examine, Procedure, Result, Step, advance
from penstock.server.examinations import Examinations
from penstock.server.workers import Workers

_LOG: Final = logging.getLogger(__name__)


class Consultants:
    """Examinations in their processes, commits in the catalog's thread, and the rest on the event loop."""

    def __init__(self, workers: Workers, done: Callable[[Inspect | Consult, Any, Any], None]) -> None:
        """`done` is told what came of each, and by whom it was asked for."""
        self._workers = workers
        self._done = done
        self._examinations = Examinations()
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, asked: Inspect | Consult, by: Any = None) -> None:
        """Inspections are done in the order in which they are submitted."""
        task = asyncio.get_running_loop().create_task(self._carry_out(asked, by))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, asked: Inspect | Consult, by: Any) -> None:
        outcome: Any
        try:
            if isinstance(asked, Consult):
                outcome = await self.run(asked.procedure)
            else:
                outcome = await self._examinations.validate(asked.definition, asked.block, asked.schema_id)
        except PenstockError as error:
            outcome = error
        except Exception as error:  # a defect must not leave anybody waiting for ever
            _LOG.exception("a defect in the registry")
            outcome = PenstockError(f"The broker failed: {type(error).__name__}")
        self._done(asked, by, outcome)

    async def run(self, procedure: Procedure[Result]) -> Result:
        """All of a procedure. Raises what ended it."""
        step = advance(procedure, None)
        while not isinstance(step, StopIteration):
            try:
                outcome = await self._do(step)
            except PenstockError as error:
                step = advance(procedure, error)
            else:
                step = advance(procedure, outcome)
        result: Result = step.value
        return result

    async def _do(self, step: Step) -> Any:
        match step:
            case Examine():
                return await self._examinations.examine(step)
            case Compare():
                return await self._examinations.compare(step)
            case Commit(call):
                return await self._commit(call)

    async def _commit(self, call: Callable[[], Any]) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._workers.submit(Work(call, partial(settled, done)))
        outcome = await done
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Nobody waits for what is still under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._examinations.close()


def settled(future: asyncio.Future[Any], outcome: Any) -> list[Effect]:
    if not future.done():
        future.set_result(outcome)
    return []
