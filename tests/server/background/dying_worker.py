"""The worker, with payloads that kill it: `die`, `loop` and `grow` do what their names say."""

from __future__ import annotations

import os
import signal

from penstock.schema import plain
from penstock.schema.language import PayloadFault
from penstock.schema.worker import process


def fault(_schema: plain.PlainSchema, payload: bytes) -> PayloadFault | None:
    match payload:
        case b"die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"loop":
            while True:
                pass
        case b"grow":
            bytearray(2**40)
    return PayloadFault("", "bad") if payload == b"bad" else None


if __name__ == "__main__":
    plain.PlainSchema.fault = fault  # type: ignore[method-assign, assignment]
    plain.PlainSchema.accepts_lines = lambda *_: False  # type: ignore[method-assign]
    process.main()
