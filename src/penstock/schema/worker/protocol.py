"""What the broker asks its worker and what that answers: MessagePack behind a head, on two pipes.

A head is a mark, the number of the job, and the length of what follows. An answer bears the number of its job: one that
bears another is nobody's, and whoever reads it starts a new worker.

Payloads do not go through the pipes. They lie in memory that both processes see: notes of what the worker is doing, the
payloads, each with a newline behind it, and then where each of them ends.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final

import msgspec

from penstock.core.schemas import Definition
from penstock.schema.problems import Problem
from penstock.schema.steps import CheckCompatibility, ParseSchema

HEADER: Final = struct.Struct(">4sQI")
MARK: Final = b"job\n"
"""What a head begins with: whoever has lost the thread finds something else there."""

STATUS: Final = struct.Struct("=qqq")
"""What the worker is doing, on which job, and at which payload."""

SHARED_BYTES: Final = 32 * 1024 * 1024
"""Of the shared memory: the payloads of the largest block with its ends, or of some hundred ordinary ones."""

JOB_BYTES_MAX: Final = 16 * 1024 * 1024
"""Two schemas with all that they refer to, and some: what the worker's memory holds beside what it makes of them."""


class WorkerState(IntEnum):
    """What a child was doing when it ended says whether the pipes are still of use."""

    IDLE = 0
    READING = 1
    WORKING = 2
    WRITING = 3


class ValidationJob(msgspec.Struct, frozen=True, tag="validate", array_like=True):
    """Payloads `first` to `stop` of the `count` in the shared memory, which have `size` bytes in all."""

    definition: Definition
    first: int
    stop: int
    count: int
    size: int
    newlines: bool
    """Some have newlines within: they are no lines."""
    schema_id: int
    """What payloads in the framing of other registries' clients say before they begin."""


Job = ParseSchema | CheckCompatibility | ValidationJob


class SchemaParsed(msgspec.Struct, frozen=True, tag="examined", array_like=True):
    canonical: str


class CompatibilityChecked(msgspec.Struct, frozen=True, tag="compared", array_like=True):
    problems: list[list[Problem]]


class PayloadsValidated(msgspec.Struct, frozen=True, tag="validated", array_like=True):
    """Up to `stop`, which is the end or where its time was over."""

    faults: list[tuple[int, str, str]]
    """The number of the payload, where in it, and what is wrong."""
    stop: int


class SchemaRefused(msgspec.Struct, frozen=True, tag="refused", array_like=True):
    """It is no schema, or none that can be looked at within the limits."""

    message: str
    details: dict[str, Any]


class JobFailed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    """A defect of ours, or a process that ended on the job: `signal` says by what."""

    message: str
    signal: int = 0
    payload: int = -1
    """The one it was looking at."""


Answer = SchemaParsed | CompatibilityChecked | PayloadsValidated | SchemaRefused | JobFailed

_encode: Final = msgspec.msgpack.Encoder().encode
decode_job: Final = msgspec.msgpack.Decoder(Job).decode
decode_answer: Final = msgspec.msgpack.Decoder(Answer).decode


def frame(number: int, message: Job | Answer) -> bytes:
    body = _encode(message)
    return HEADER.pack(MARK, number, len(body)) + body
