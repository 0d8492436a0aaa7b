"""Registry tasks: run the procedures of the schema registry, and validate payloads, without blocking the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.broker.base.effects import Effect, RunInThread, RunRegistryProcedure, ValidatePayloads
from penstock.core.errors import PenstockError
from penstock.schema.steps import (
    AtLowPriority,
    CheckCompatibility,
    CommitToCatalog,
    ParseSchema,
    Procedure,
    ProcedureStep,
    Result,
    advance,
)
from penstock.server.background.schema_workers import SchemaWorkers
from penstock.server.background.threads import ThreadPool
from penstock.server.resources.fair_queue import REQUESTER, Requester, requester_name
from penstock.server.session import Session

_LOG: Final = logging.getLogger(__name__)


class RegistryTasks:
    """Runs the procedures of the registry step by step. Work on schemas is done in worker processes, commits in the
    catalog's thread, everything else in the event loop."""

    def __init__(
        self,
        threads: ThreadPool,
        done: Callable[[ValidatePayloads | RunRegistryProcedure, Any, Any], None],
        now_ms: Callable[[], int],
    ) -> None:
        """Create the object; processes start later. `done` is called for each effect that was submitted, with the
        effect, the session that caused it and the outcome: a result, or a `PenstockError`."""
        self._now_ms = now_ms
        self._threads = threads
        self._done = done
        self._schema_workers = SchemaWorkers()
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, effect: ValidatePayloads | RunRegistryProcedure, by: Session | None = None) -> None:
        """Start carrying out the effect in a task. `by` is the session that caused it. Validations of one requester are
        done in the order of their submission."""
        task = asyncio.get_running_loop().create_task(self._run_effect(effect, by))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_effect(self, effect: ValidatePayloads | RunRegistryProcedure, by: Session | None) -> None:
        outcome: Any
        REQUESTER.set(self._requester(effect, by))  # of this task alone
        try:
            if isinstance(effect, RunRegistryProcedure):
                outcome = await self.run(effect.procedure)
            else:
                outcome = await self._schema_workers.validate(effect.definition, effect.block, effect.schema_id)
        except PenstockError as error:
            outcome = error
        except Exception as error:  # or else the session would wait for ever
            task = "a procedure" if isinstance(effect, RunRegistryProcedure) else "a validation of payloads"
            _LOG.exception("unhandled error in a registry task", extra={"registry_task": task})
            outcome = PenstockError(f"The broker failed: {type(error).__name__}")
        self._done(effect, by, outcome)

    def _requester(self, effect: ValidatePayloads | RunRegistryProcedure, by: Session | None) -> Requester:
        """Return the requester of an effect. Its job is skipped if its client has gone, or its deadline has passed,
        before its turn comes."""
        if by is None:
            return REQUESTER.get()
        client, until_ms = by.client, effect.until_ms if isinstance(effect, RunRegistryProcedure) else None

        def waits() -> bool:
            return client.awaits_answer and (until_ms is None or self._now_ms() < until_ms)

        return Requester(requester_name(client.principal, client.address), waits)

    async def run(self, procedure: Procedure[Result]) -> Result:
        """Run all steps of a procedure, and return its result. Raises the error that ended it."""
        step = advance(procedure, None)
        while not isinstance(step, StopIteration):
            try:
                outcome = await self._run_step(step)
            except PenstockError as error:
                step = advance(procedure, error)
            else:
                step = advance(procedure, outcome)
        result: Result = step.value
        return result

    async def _run_step(self, step: ProcedureStep) -> Any:
        low_priority = isinstance(step, AtLowPriority)
        match step.step if isinstance(step, AtLowPriority) else step:
            case ParseSchema() as job:
                return await self._schema_workers.parse(job, low_priority=low_priority)
            case CheckCompatibility() as job:
                return await self._schema_workers.check_compatibility(job, low_priority=low_priority)
            case CommitToCatalog(call):
                return await self._commit(call)

    async def _commit(self, call: Callable[[], Any]) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._threads.submit(RunInThread(call, partial(resolved, done)))
        outcome = await done
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Cancel the tasks under way, since all sessions are closed by now, and stop the worker processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._schema_workers.close()


def resolved(future: asyncio.Future[Any], outcome: Any) -> list[Effect]:
    if not future.done():
        future.set_result(outcome)
    return []
