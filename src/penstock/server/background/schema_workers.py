"""Schema workers: the processes that parse schemas and validate payloads, and how the broker uses them.

One worker is for schemas and one for payloads. Each does one job at a time, and requesters take turns. A block of
payloads is validated in portions, one in each turn, so that others do not wait long. A process is started when it is
first needed.
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
"""The most schema jobs that wait: minutes of work. Beyond it a job of the requester with the most waiting jobs is
refused, and has to be sent again."""
SCHEMAS_WAITING_EACH_MAX: Final = 64
"""The most schema jobs of one requester that wait: twice as many as one connection may have open."""
BLOCKS_WAITING_MAX: Final = 10_000
"""The most blocks that wait for validation. It matters only with very many connections: each of them is limited before.
"""
_ANSWER_SECONDS_MAX: Final = 60.0
"""The most seconds to wait for a worker's answer: far more than the worker allows itself, even on a busy machine."""
_CRASHES_MAX: Final = 16
"""The number of payloads of one block that may each crash a worker. After one more, the rest of the block is rejected
without being validated."""
_PROGRAM: Final = "penstock.schema.worker.process"
_NOT_VALIDATED: Final = PayloadFault("", "it could not be looked at within the limits of an examination")

_SIGNALS: Final[dict[int, str]] = {
    signal.SIGPROF: "it takes too much time",
    signal.SIGSEGV: "it takes too much memory or is nested too deeply",
    signal.SIGABRT: "it takes too much memory or is nested too deeply",
    signal.SIGBUS: "it takes too much memory or is nested too deeply",
}
"""The signals that end a worker because of the schema or payload that it works on, with the reason for the client.
After any other signal the job is tried again."""


class WorkerGone(Exception):
    """The error for a worker that ended without an answer, though not because of its job. The job may be tried
    again."""


class SchemaWorker:
    """A worker process, and the memory that it shares with the broker. Callers wait for their turn in `queue` before
    they use it."""

    def __init__(self, queue: FairQueue, shared_bytes: int) -> None:
        self.queue = queue
        self._shared_bytes = shared_bytes
        self._process: Process | None = None
        self._shared: tuple[int, mmap.mmap] | None = None
        self._number = 0

    async def ask(self, job: protocol.Job) -> protocol.Answer:
        """Have the worker do one job, and return its answer. Call it only during a turn of `queue`. If the worker ends
        without an answer, a new one is started and the job tried once more.

        Raises `ServiceUnavailable` if that fails too, or if no worker can be started, and `InvalidSchema` if the job is
        too large for a worker.
        """
        for attempt in range(2):
            try:
                return await self._ask(job)
            except WorkerGone as error:
                _LOG.warning(
                    "a schema worker ended without an answer", extra={"reason": str(error), "attempt": attempt}
                )
        raise ServiceUnavailable("the worker that examines schemas does not answer; try again")

    async def _ask(self, job: protocol.Job) -> protocol.Answer:
        self._number += 1
        frame = protocol.frame(self._number, job)
        if len(frame) > protocol.JOB_BYTES_MAX:
            raise InvalidSchema("the schema, with all that it refers to, is too large to be examined")
        if self._process is not None and self._process.returncode is not None:
            await self._end()  # its child may have survived it
        process = self._process or await self._start()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                number, answer = await _exchange(process, frame)
        except (OSError, EOFError, RuntimeError, msgspec.MsgspecError) as error:
            await self._end()
            raise WorkerGone(f"{type(error).__name__}: {error}") from error
        except asyncio.CancelledError:
            await self._end()  # its answer would be taken for that of the next job
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
        """Return the shared memory and its file descriptor. It is created at the first use, and kept when the worker is
        replaced."""
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
                os.killpg(process.pid, signal.SIGKILL)  # with its child, which may be in the middle of a job
            await process.wait()
            with contextlib.suppress(OSError, RuntimeError, asyncio.LimitOverrunError):
                await process.stdout.read()  # to its end, which closes the pipe

    def write_job(self, definition: Definition, schema_id: int, block: Block) -> protocol.ValidationJob:
        """Write the payloads of the block into the shared memory, and return the job that validates them."""
        _, shared = self._memory()
        size, count = int(block.payload_sizes.sum()) + len(block), len(block)
        data = np.frombuffer(shared, np.uint8, size, protocol.STATUS.size)
        ends = np.frombuffer(shared, np.int64, count, aligned(protocol.STATUS.size + size))
        return protocol.ValidationJob(definition, 0, count, count, size, block.write_lines(data, ends), schema_id)

    def fitting_count(self, block: Block) -> int:
        """Return how many payloads, from the first of the block on, fit into the shared memory."""
        needed = np.cumsum(block.payload_sizes + 1 + 8)
        return int(np.searchsorted(needed, self._shared_bytes - protocol.STATUS.size - 16, side="right"))

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
    """The questions to `SchemaLanguages` that the broker asks of its worker processes. Each method waits for its turn,
    and raises `QuotaExceeded`, `ServiceUnavailable` or `Timeout` if it gets none."""

    def __init__(self) -> None:
        self._schemas = SchemaWorker(FairQueue(SCHEMAS_WAITING_MAX, SCHEMAS_WAITING_EACH_MAX), mmap.PAGESIZE)
        self._payloads = SchemaWorker(FairQueue(BLOCKS_WAITING_MAX), protocol.SHARED_BYTES)

    async def parse(self, job: ParseSchema, *, low_priority: bool = False) -> str:
        """Return the canonical text of a schema. Raises `InvalidSchema`. `low_priority` is for questions that change
        nothing: other jobs of the same requester go first."""
        answer = await self._ask(job, low_priority=low_priority)
        assert isinstance(answer, protocol.SchemaParsed)  # noqa: S101 - that is how it answers
        return answer.canonical

    async def check_compatibility(self, job: CheckCompatibility, *, low_priority: bool = False) -> list[list[Problem]]:
        """Compare schemas in pairs, and return the problems of each pair. A pair whose comparison exceeds the worker's
        limits has that as its only problem. `low_priority` is as for `parse`."""
        answer = await self._in_turn(job, low_priority=low_priority)
        if not isinstance(answer, protocol.JobFailed):
            _raise_refusal(answer)
            assert isinstance(answer, protocol.CompatibilityChecked)  # noqa: S101 - that is how it answers
            return answer.problems
        if len(job.pairs) == 1:
            return [[_undecided(answer)]]
        alone = [CheckCompatibility((pair,), job.lenient) for pair in job.pairs]
        return [
            problems
            for single in alone
            for problems in await self.check_compatibility(single, low_priority=low_priority)
        ]

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
        """Return the faults of the block's payloads, by the payload's index in the block; payloads without a fault are
        left out. Raises `InvalidSchema` if the schema cannot be used."""
        validation = BlockValidation(self._payloads, definition, schema_id)
        requester = Requester(REQUESTER.get().name)  # a client that has gone has published the block all the same
        first = 0
        while first < len(block):
            async with self._payloads.queue.turn(requester):
                first += await validation.validate_some(block.select(first, len(block)), first)
        return validation.faults

    async def close(self) -> None:
        await self._schemas.close()
        await self._payloads.close()


class BlockValidation:
    """The validation of one block, a portion in each turn. `faults` collects the faults by the payload's index in the
    whole block."""

    def __init__(self, worker: SchemaWorker, definition: Definition, schema_id: int) -> None:
        self._worker = worker
        self._definition = definition
        self._schema_id = schema_id
        self._crashes = 0
        self.faults: dict[int, PayloadFault] = {}

    async def validate_some(self, block: Block, offset: int) -> int:
        """Validate as many payloads of `block` as one turn allows, and return their number. `block` is what is left of
        the whole block, in which it begins at `offset`.

        A payload that crashes the worker is rejected. The payloads before it in the same turn are then validated again.
        """
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
                return stop  # it passed before: try all of it again, in another turn
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
    _LOG.error("unhandled error in a schema worker", extra={"error": failed.message})
    return failed.message
