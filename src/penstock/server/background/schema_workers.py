"""Examinations: the worker processes in which schemas and payloads from outside are taken apart, seen from the broker.

One worker is for schemas and one for payloads. Each does one job at a time, and those who ask take turns; of payloads
so many that others soon have theirs. They start when they are first needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

import msgspec
import numpy as np

from penstock.core.errors import ServiceUnavailable
from penstock.core.schemas import Definition
from penstock.record.block import Block
from penstock.schema.errors import InvalidSchema
from penstock.schema.language import PayloadFault
from penstock.schema.problems import Problem
from penstock.schema.steps import CheckCompatibility, ParseSchema
from penstock.schema.worker import protocol
from penstock.schema.worker.process import aligned
from penstock.server.resources.fair_queue import REQUESTER, FairQueue, Requester

_LOG: Final = logging.getLogger(__name__)
SCHEMAS_WAITING_MAX: Final = 256
"""Minutes of work. Who has most waiting then is told to try again."""
SCHEMAS_WAITING_EACH_MAX: Final = 64
"""Of one who asks: twice as much as one connection may have open."""
BLOCKS_WAITING_MAX: Final = 10_000
"""What one connection may have waiting is bounded before; this is for very many connections."""
_ANSWER_SECONDS_MAX: Final = 60.0
"""For an answer: far more than the worker gives itself, also on a machine that is too busy."""
_CRASHES_MAX: Final = 16
"""Payloads of one block that may each end a worker: after that the rest of the block is refused unseen."""
_PROGRAM: Final = "penstock.schema.worker.process"
_NOT_VALIDATED: Final = PayloadFault("", "it could not be looked at within the limits of an examination")

_SIGNALS: Final[dict[int, str]] = {
    signal.SIGPROF: "it takes too much time",
    signal.SIGSEGV: "it takes too much memory or is nested too deeply",
    signal.SIGABRT: "it takes too much memory or is nested too deeply",
    signal.SIGBUS: "it takes too much memory or is nested too deeply",
}
"""What a schema, or a payload, does to the process. Other ends are not its doing."""


class WorkerGone(Exception):
    """The worker did not answer, for no fault of what it was asked: it may answer when it is asked again."""


class SchemaWorker:
    """One worker process and the memory it shares with the broker."""

    def __init__(self, queue: FairQueue, shared_bytes: int) -> None:
        self.queue = queue
        self._shared_bytes = shared_bytes
        self._process: Process | None = None
        self._shared: tuple[int, mmap.mmap] | None = None
        self._number = 0

    async def ask(self, job: protocol.Job) -> protocol.Answer:
        """To be called in turn. A worker that is gone is replaced, once; raises `ServiceUnavailable` after that.

        Raises `InvalidSchema` for more than a worker can be asked at once.
        """
        for attempt in range(2):
            try:
                return await self._ask(job)
            except WorkerGone as error:
                _LOG.warning("a worker that examines schemas is gone", extra={"reason": str(error), "attempt": attempt})
        raise ServiceUnavailable("the worker that examines schemas does not answer; try again")

    async def _ask(self, job: protocol.Job) -> protocol.Answer:
        self._number += 1
        frame = protocol.frame(self._number, job)
        if len(frame) > protocol.JOB_BYTES_MAX:
            raise InvalidSchema("the schema, with all that it refers to, is too large to be examined")
        if self._process is not None and self._process.returncode is not None:
            await self._end()  # its child may still be there, and nobody looks after it
        process = self._process or await self._start()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                number, answer = await _exchange(process, frame)
        except (OSError, EOFError, RuntimeError, msgspec.MsgspecError) as error:
            await self._end()
            raise WorkerGone(f"{type(error).__name__}: {error}") from error
        except asyncio.CancelledError:
            await self._end()  # its answer would be taken for the next one's
            raise
        if number != self._number:
            await self._end()
            raise WorkerGone(f"it answered job {number} and not {self._number}")
        if isinstance(answer, protocol.JobFailed) and answer.signal and answer.signal not in _SIGNALS:
            raise WorkerGone(f"it was ended by signal {answer.signal}")
        return answer

    async def _start(self) -> Process:
        descriptor, _ = self._memory()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _PROGRAM, str(descriptor)),
                stdin=PIPE,
                stdout=PIPE,
                start_new_session=True,
                pass_fds=(descriptor,),
                limit=protocol.JOB_BYTES_MAX,
            )
        except OSError as error:
            raise ServiceUnavailable(f"the worker that examines schemas cannot be started: {error}") from error
        return self._process

    def _memory(self) -> tuple[int, mmap.mmap]:
        """Made when it is first needed, and kept when the worker is replaced."""
        if self._shared is None:
            descriptor = os.memfd_create("penstock-payloads")
            os.ftruncate(descriptor, self._shared_bytes)
            self._shared = descriptor, mmap.mmap(descriptor, self._shared_bytes)
        return self._shared

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both were asked for
            process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with its child, which may be in the middle of something
            await process.wait()
            with contextlib.suppress(OSError, RuntimeError, asyncio.LimitOverrunError):
                await process.stdout.read()  # up to its end: so the pipe is closed

    def write_job(self, definition: Definition, schema_id: int, block: Block) -> protocol.ValidationJob:
        """Lay its payloads out; the job to look at all of them."""
        _, shared = self._memory()
        size, count = int(block.payload_sizes.sum()) + len(block), len(block)
        data = np.frombuffer(shared, np.uint8, size, protocol.STATUS.size)
        ends = np.frombuffer(shared, np.int64, count, aligned(protocol.STATUS.size + size))
        return protocol.ValidationJob(definition, 0, count, count, size, block.write_lines(data, ends), schema_id)

    def fitting_count(self, block: Block) -> int:
        """How many of its payloads fit into the shared memory."""
        permission = np.cumsum(block.payload_sizes + 1 + 8)
        return int(np.searchsorted(permission, self._shared_bytes - protocol.STATUS.size - 16, side="right"))

    async def close(self) -> None:
        await self._end()
        if self._shared is not None:
            os.close(self._shared[0])


async def _exchange(process: Process, frame: bytes) -> tuple[int, protocol.Answer]:
    pipe_in, pipe_out = process.stdin, process.stdout
    assert pipe_in is not None and pipe_out is not None  # noqa: S101, PT018 - both were asked for
    pipe_in.write(frame)
    await pipe_in.drain()
    mark, number, size = protocol.HEADER.unpack(await pipe_out.readexactly(protocol.HEADER.size))
    if mark != protocol.MARK:
        raise EOFError("it has lost the thread")
    return number, protocol.decode_answer(await pipe_out.readexactly(size))


class SchemaWorkers:
    """Who understands schemas, for the broker: the same questions as `SchemaLanguages`, answered elsewhere."""

    def __init__(self) -> None:
        self._schemas = SchemaWorker(FairQueue(SCHEMAS_WAITING_MAX, SCHEMAS_WAITING_EACH_MAX), mmap.PAGESIZE)
        self._payloads = SchemaWorker(FairQueue(BLOCKS_WAITING_MAX), protocol.SHARED_BYTES)

    async def examine(self, examine: ParseSchema, *, low_priority: bool = False) -> str:
        """`aside`: somebody only asks; what changes something goes before it."""
        answer = await self._ask(examine, low_priority=low_priority)
        assert isinstance(answer, protocol.SchemaParsed)  # noqa: S101 - that is how it answers
        return answer.canonical

    async def compare(self, compare: CheckCompatibility, *, low_priority: bool = False) -> list[list[Problem]]:
        """What cannot be compared within the limits is a problem of that pair."""
        answer = await self._in_turn(compare, low_priority=low_priority)
        if not isinstance(answer, protocol.JobFailed):
            _raise_refusal(answer)
            assert isinstance(answer, protocol.CompatibilityChecked)  # noqa: S101 - that is how it answers
            return answer.problems
        if len(compare.pairs) == 1:
            return [[_undecided(answer)]]
        alone = [CheckCompatibility((pair,), compare.lenient) for pair in compare.pairs]
        return [problems for each in alone for problems in await self.compare(each, low_priority=low_priority)]

    async def _in_turn(self, job: protocol.Job, *, low_priority: bool) -> protocol.Answer:
        async with self._schemas.queue.turn(REQUESTER.get(), low_priority=low_priority):
            return await self._schemas.ask(job)

    async def _ask(self, job: protocol.Job, *, low_priority: bool) -> protocol.Answer:
        answer = await self._in_turn(job, low_priority=low_priority)
        _raise_refusal(answer)
        if isinstance(answer, protocol.JobFailed):
            raise InvalidSchema(f"the schema cannot be examined: {_reason(answer)}")
        return answer

    async def validate(self, definition: Definition, block: Block, schema_id: int = 0) -> dict[int, PayloadFault]:
        """What is wrong with which of its payloads. Raises `InvalidSchema` if nothing can be held against it."""
        validation = BlockValidation(self._payloads, definition, schema_id)
        requester = Requester(REQUESTER.get().name)  # who has gone since has sent it all the same
        first = 0
        while first < len(block):
            async with self._payloads.queue.turn(requester):
                first += await validation.validate_some(block.select(first, len(block)), first)
        return validation.faults

    async def close(self) -> None:
        await self._schemas.close()
        await self._payloads.close()


class BlockValidation:
    """The payloads of one block, in turns."""

    def __init__(self, worker: SchemaWorker, definition: Definition, schema_id: int) -> None:
        self._worker = worker
        self._definition = definition
        self._schema_id = schema_id
        self._crashes = 0
        self.faults: dict[int, PayloadFault] = {}

    async def validate_some(self, block: Block, offset: int) -> int:
        """At as many as there is time for; how many. A payload that ends the worker is refused, and those before it in
        the same turn are looked at once more."""
        count = self._worker.fitting_count(block)
        if self._crashes > _CRASHES_MAX or not count:
            unseen = len(block) if self._crashes > _CRASHES_MAX else 1
            self.faults |= dict.fromkeys(range(offset, offset + unseen), _NOT_VALIDATED)
            return unseen
        whole = self._worker.write_job(self._definition, self._schema_id, block.select(0, count))
        answer = await self._ask(whole)
        if isinstance(answer, protocol.JobFailed):
            return await self._isolate_culprit(whole, answer, offset)
        self._add(answer, offset)
        return answer.stop

    async def _isolate_culprit(self, whole: protocol.ValidationJob, failed: protocol.JobFailed, offset: int) -> int:
        crashing_row = failed.payload
        if crashing_row < 0:
            raise InvalidSchema(f"the schema cannot be examined: {_reason(failed)}")
        self._crashes += 1
        stop = 0
        while stop < crashing_row:
            answer = await self._ask(msgspec.structs.replace(whole, first=stop, stop=crashing_row))
            if isinstance(answer, protocol.JobFailed):
                return stop  # it was well before: all of it again, in another turn
            self._add(answer, offset)
            stop = answer.stop
        self.faults[offset + crashing_row] = PayloadFault("", f"it cannot be examined: {_reason(failed)}")
        return crashing_row + 1

    async def _ask(self, job: protocol.ValidationJob) -> protocol.PayloadsValidated | protocol.JobFailed:
        answer = await self._worker.ask(job)
        _raise_refusal(answer)
        assert isinstance(answer, protocol.PayloadsValidated | protocol.JobFailed)  # noqa: S101 - that is how it answers
        return answer

    def _add(self, answer: protocol.PayloadsValidated, offset: int) -> None:
        self.faults |= {offset + row: PayloadFault(path, message) for row, path, message in answer.faults}


def _raise_refusal(answer: protocol.Answer) -> None:
    if isinstance(answer, protocol.SchemaRefused):
        raise InvalidSchema(answer.message, **answer.details)


def _undecided(failed: protocol.JobFailed) -> Problem:
    return Problem(
        kind="UNDECIDED",
        path="",
        message=f"it cannot be shown that this can be read: {_reason(failed)}",
        fix="use fewer choices within choices, or register it where compatibility is NONE",
    )


def _reason(failed: protocol.JobFailed) -> str:
    if failed.signal:
        return _SIGNALS[failed.signal]
    _LOG.error("a defect in the examination of schemas", extra={"error": failed.message})
    return failed.message
