"""The worker: the only process that parses schemas and payloads from outside.

It imports all it needs, gives up the right to open anything, and forks. The child does one job after the other within
limits on memory and time; a schema that makes it recurse, expand or crash ends the child alone. Then the parent reports
that and forks the next child, which takes some milliseconds.

    python -m penstock.schema.worker.process FD     reads jobs from standard input; FD is the shared memory
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import signal
import sys
import time
from typing import Final

from penstock.core.errors import PenstockError
from penstock.core.schemas import SchemaKind
from penstock.schema.language import PayloadFault, Validator
from penstock.schema.languages import SchemaLanguages, language
from penstock.schema.steps import CheckCompatibility, ParseSchema
from penstock.schema.worker import protocol
from penstock.schema.worker.protocol import WorkerState

MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Memory that a schema or a payload may take beyond the worker's memory at its start."""
_GROWTH_KIB_MAX: Final = 24 * 1024
"""Memory that earlier jobs may have left behind, caches included: past this the next job gets a fresh child."""

_CPU_SECONDS: Final = 0.15
"""CPU time for one schema or one payload. Large ones get more, in proportion to their size."""
_COMPARISON_CPU_SECONDS: Final = 1.0
"""CPU time for a comparison: every choice of one schema is compared with every choice of the other."""
_CPU_SECONDS_PER_MIB: Final = 0.5
_PAYLOAD_CPU_SECONDS_PER_MIB: Final = 1.0
"""CPU time for a MiB of payload: parsing it takes some 20 ms here, and some machines are slow."""
_WALL_FACTOR: Final = 20
"""Wall-clock time per CPU time: on a busy machine a process may wait long for its turn."""
_SLICE_SECONDS: Final = 0.05
"""Time for payloads before other topics have their turn: a schema that is slow to validate slows its own topic only."""

_ROWS: Final = 256
"""Payloads validated together: their decoded form stays in the processor's cache."""
_CHUNK_BYTES: Final = 256 * 1024
"""Bytes of payloads validated together: their objects take many times as much."""

_STDIN: Final = 0
_STDOUT: Final = 1
_ENDED: Final = 0
_REPLACED: Final = 70
"""Exit status of a child that has answered and must not get another job."""
_OUT_OF_STEP: Final = 71
"""Exit status of a child that found no header where one should be."""


class FramedPayloadValidator:
    """A validator that accepts a payload as it is or, if it does not conform, in the framing of other registries'
    clients: a zero byte, the schema's id in four bytes, in Protobuf another zero for the first message, and then the
    payload."""

    def __init__(self, validator: Validator, job: protocol.ValidationJob) -> None:
        self.validator = validator
        self._prefix = b"\0" + (job.schema_id % 2**32).to_bytes(4)
        if job.definition.kind is SchemaKind.PROTOBUF:
            self._prefix += b"\0"

    def fault(self, payload: bytes) -> PayloadFault | None:
        fault = self.validator.fault(payload)
        if fault is None or not payload.startswith(self._prefix):
            return fault
        return self.validator.fault(payload[len(self._prefix) :])


class Worker:
    """A child process: jobs from a pipe, answers to another."""

    def __init__(self, shared: mmap.mmap) -> None:
        self._shared = shared
        self._view = memoryview(shared)
        self._languages = SchemaLanguages()
        self._number = 0
        self._payload = -1

    def serve(self) -> int:
        """Serve jobs until the broker closes the pipe, a header is wrong, a job leaves the process unfit, or its memory
        has grown too much. Returns the exit status for the process."""
        kib = peak_kib()
        while True:
            self._set_state(WorkerState.IDLE)
            first = os.read(_STDIN, protocol.HEADER.size)
            if not first:
                return _ENDED
            self._payload = -1
            self._set_state(WorkerState.READING)
            body = self._read_body(first)
            if body is None:
                return _OUT_OF_STEP
            job = protocol.decode_job(body)
            self._set_state(WorkerState.WORKING)
            limit = _COMPARISON_CPU_SECONDS if isinstance(job, CheckCompatibility) else _CPU_SECONDS
            set_timers(limit + _CPU_SECONDS_PER_MIB * len(body) / 2**20)
            answer, is_spent = self._answer(job)
            set_timers(0)
            self._set_state(WorkerState.WRITING)
            write_all(_STDOUT, protocol.frame(self._number, answer))
            if is_spent or peak_kib() - kib > _GROWTH_KIB_MAX:
                self._set_state(WorkerState.IDLE)
                return _REPLACED

    def _set_state(self, state: WorkerState) -> None:
        protocol.STATUS.pack_into(self._shared, 0, state, self._number, self._payload)

    def _read_body(self, first: bytes) -> bytearray | None:
        """Read the rest of the header, which begins with `first`, and the body. Returns the body; None if the header is
        wrong or the pipe ends."""
        head = read_exactly(_STDIN, protocol.HEADER.size, first)
        if head is None:
            return None
        mark, self._number, size = protocol.HEADER.unpack(head)
        if mark != protocol.MARK or size > protocol.JOB_BYTES_MAX:
            return None
        return read_exactly(_STDIN, size)

    def _answer(self, job: protocol.Job) -> tuple[protocol.Answer, bool]:
        """Return the answer to a job, and True if the process is unfit for another one."""
        try:
            return self._run(job), False
        except PenstockError as error:
            return protocol.SchemaRefused(error.message, error.details), False
        except RecursionError:
            return protocol.JobFailed("it is nested too deeply", signal.SIGSEGV, self._payload), True
        except MemoryError:
            return protocol.JobFailed("it takes too much memory", signal.SIGSEGV, self._payload), True
        except Exception as error:
            return protocol.JobFailed(f"{type(error).__name__}: {error}"[:500], payload=self._payload), True

    def _run(self, job: protocol.Job) -> protocol.Answer:
        match job:
            case ParseSchema(definition, form):
                return protocol.SchemaParsed(self._languages.parse(definition, form))
            case CheckCompatibility(pairs, lenient):
                return protocol.CompatibilityChecked(self._languages.check_compatibility(pairs, lenient=lenient))
            case protocol.ValidationJob():
                return self._validate(job)

    def _validate(self, job: protocol.ValidationJob) -> protocol.PayloadsValidated:
        """Validate as many payloads as there is time for, and at least one."""
        judge = FramedPayloadValidator(self._languages.validator(job.definition), job)
        payloads, ends = payloads_and_ends(self._view, job)
        faults: list[tuple[int, str, str]] = []
        row, until = job.first, time.thread_time() + _SLICE_SECONDS
        while row < job.stop and (row == job.first or time.thread_time() < until):
            stop = chunk_stop(ends, row, job.stop)
            lines = payloads[start_of(ends, row) : ends[stop - 1]]
            self._start_payload(row, len(lines))
            if not job.newlines and judge.validator.accepts_lines(lines, stop - row):
                row = stop
                continue
            while row < stop and (row == job.first or time.thread_time() < until):
                payload = bytes(payloads[start_of(ends, row) : ends[row] - 1])
                self._start_payload(row, len(payload))
                fault = judge.fault(payload)
                if fault is not None:
                    faults.append((row, fault.path, fault.message))
                row += 1
        return protocol.PayloadsValidated(faults, row)

    def _start_payload(self, row: int, size: int) -> None:
        self._payload = row
        self._set_state(WorkerState.WORKING)
        set_timers(_CPU_SECONDS + _PAYLOAD_CPU_SECONDS_PER_MIB * size / 2**20)


def payloads_and_ends(shared: memoryview, job: protocol.ValidationJob) -> tuple[memoryview, memoryview]:
    """Return the payloads in the shared memory and the offsets at which they end."""
    ends_at = aligned(protocol.STATUS.size + job.size)
    ends = shared[ends_at : ends_at + 8 * job.count].cast("q")
    return shared[protocol.STATUS.size : protocol.STATUS.size + job.size], ends


def start_of(ends: memoryview, row: int) -> int:
    return ends[row - 1] if row else 0


def chunk_stop(ends: memoryview, first: int, last: int) -> int:
    """Return the row after a chunk of payloads that starts at row `first`. The chunk has at most `_ROWS` payloads and,
    unless it is a single one, `_CHUNK_BYTES` bytes. It does not go beyond `last`, the row after the last one."""
    start, stop = start_of(ends, first), min(first + _ROWS, last)
    while stop > first + 1 and ends[stop - 1] - start > _CHUNK_BYTES:
        stop = first + (stop - first) // 2
    return stop


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def aligned(offset: int) -> int:
    return -(-offset // 8) * 8


def set_timers(seconds: float) -> None:
    """Set the CPU timer to `seconds` and the wall-clock timer to a multiple of it; 0 stops both. Either ends the
    process when it runs out: their signals have no handlers."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds * _WALL_FACTOR)


def read_exactly(descriptor: int, size: int, first: bytes = b"") -> bytearray | None:
    """Read `size` bytes, the first of which may be read already; None if the pipe ends before."""
    pieces = bytearray(first)
    while len(pieces) < size:
        piece = os.read(descriptor, min(size - len(pieces), 1 << 20))
        if not piece:
            return None
        pieces += piece
    return pieces


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def limit_memory() -> None:
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - the last file it ever opens
        pages = int(statm.read().split()[0])
    size = pages * resource.getpagesize() + MEMORY_BYTES_MAX
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def give_up_rights() -> None:
    """Forbid files, sockets and core dumps: the limit on descriptors forbids every new one."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def fork_children(shared: mmap.mmap) -> None:
    """Fork one child after the other, and report the job that a child died of. Returns when a child ended because the
    pipe is closed, or in the middle of a message."""
    while True:
        child = os.fork()
        if not child:
            os._exit(Worker(shared).serve())
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        state, number, payload = protocol.STATUS.unpack_from(shared)
        if code == _ENDED or state in (WorkerState.READING, WorkerState.WRITING):
            return  # half a message is in a pipe: neither pipe is usable
        if state == WorkerState.WORKING:
            write_all(_STDOUT, protocol.frame(number, protocol.JobFailed("the examination was ended", -code, payload)))


def listen_to_signals() -> None:
    """Ignore Ctrl-C, which is the broker's: it closes the pipe, and that ends this process. Let the timers' signals end
    it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGPROF, signal.SIGALRM))


def main() -> None:
    listen_to_signals()
    for kind in SchemaKind:
        language(kind)
    shared = mmap.mmap(int(sys.argv[1]), 0)
    gc.freeze()
    limit_memory()
    give_up_rights()
    fork_children(shared)


if __name__ == "__main__":
    main()
