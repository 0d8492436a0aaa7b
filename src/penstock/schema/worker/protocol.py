"""The protocol between the broker and its worker: MessagePack behind a header, on two pipes.

A header is a mark, the number of the job and the length of the body. An answer bears the number of its job; a broker
that finds another number there starts a new worker.

Payloads do not go through the pipes. They lie in memory that both processes see: the worker's status, the payloads,
each with a newline behind it, and then the offsets at which they end.
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
"""The first bytes of a header: a reader that is out of step finds other bytes there."""

STATUS: Final = struct.Struct("=qqq")
"""The worker's state, the number of its job, and the index of the payload being validated."""

SHARED_BYTES: Final = 32 * 1024 * 1024
"""Size of the shared memory: the payloads of the largest block with its ends, or of some hundred ordinary blocks."""

JOB_BYTES_MAX: Final = 16 * 1024 * 1024
"""Size of a job: two schemas with all that they refer to, and some more; the worker holds this beside the parsed
form."""


class WorkerState(IntEnum):
    """The state of a child. The last one before it ended tells whether the pipes are still usable."""

    IDLE = 0
    READING = 1
    WORKING = 2
    WRITING = 3


class ValidationJob(msgspec.Struct, frozen=True, tag="validate", array_like=True):
    """A job: validate the payloads from index `first` to before `stop`, of the `count` payloads in the shared memory,
    which have `size` bytes in all."""

    definition: Definition
    first: int
    stop: int
    count: int
    size: int
    newlines: bool
    """True if some payloads contain newlines, so that they are not lines."""
    schema_id: int
    """The schema id that payloads in the framing of other registries' clients begin with."""


Job = ParseSchema | CheckCompatibility | ValidationJob


class SchemaParsed(msgspec.Struct, frozen=True, tag="examined", array_like=True):
    canonical: str


class CompatibilityChecked(msgspec.Struct, frozen=True, tag="compared", array_like=True):
    problems: list[list[Problem]]


class PayloadsValidated(msgspec.Struct, frozen=True, tag="validated", array_like=True):
    """The faults of the payloads before `stop`, which is the end of the job or the first payload for which no time was
    left."""

    faults: list[tuple[int, str, str]]
    """The index of each faulty payload, the path in it, and the message."""
    stop: int


class SchemaRefused(msgspec.Struct, frozen=True, tag="refused", array_like=True):
    """The text is not a schema, or not one that can be processed within the limits."""

    message: str
    details: dict[str, Any]


class JobFailed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    """A job that failed: by an unhandled error in the worker, or because the child ended on it, by `signal`."""

    message: str
    signal: int = 0
    payload: int = -1
    """The index of the payload that was being validated; -1 if none was."""


Answer = SchemaParsed | CompatibilityChecked | PayloadsValidated | SchemaRefused | JobFailed

_encode: Final = msgspec.msgpack.Encoder().encode
decode_job: Final = msgspec.msgpack.Decoder(Job).decode
decode_answer: Final = msgspec.msgpack.Decoder(Answer).decode


def frame(number: int, message: Job | Answer) -> bytes:
    body = _encode(message)
    return HEADER.pack(MARK, number, len(body)) + body
