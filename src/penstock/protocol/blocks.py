"""Blocks: what one read of a socket brought, split by a kernel; messages that begin alike stay together as a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from penstock.core.errors import PenstockError
from penstock.protocol.actions import Action
from penstock.protocol.frames import LENGTH_BYTES, Frame, FrameLimits, Rejected, parse_message, too_large
from penstock.protocol.header import HEADER_BYTES_MAX, Head, parse_head
from penstock.record import frame_kernels as at
from penstock.record.hashing import as_array

_ROWS: Final = 4096
"""Messages split at a time: 100-byte ones of the largest read a socket gives. What is left is split next."""


class Run:
    """Published messages with one head, all with a request id or all without: answered and passed on as one."""

    __slots__ = ("answered", "data", "head", "rows")

    def __init__(self, head: Head, data: Any, rows: Any, *, answered: bool) -> None:
        self.head = head
        self.data = data
        self.rows = rows
        self.answered = answered
        """Each of them has a request id."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def payload_bytes(self) -> int:
        return int((self.rows[:, at.END] - self.rows[:, at.NEWLINE]).sum()) - len(self.rows)

    def part(self, start: int, stop: int | None = None) -> Run:
        return Run(self.head, self.data, self.rows[start:stop], answered=self.answered)

    def deliveries(self, first_id: str) -> bytes:
        """Each message framed again under an id of the broker's: `first_id` and those that follow it."""
        return self._composed(Action.PUBLISH, first_id, b"", own_ids=False, payload_bytes=self.payload_bytes)

    def answers(self, first_id: str, payload: bytes) -> bytes:
        """An answer to each: under its own id, or under one of the broker's where it has none."""
        return self._composed(Action.RESPONSE, first_id, payload, own_ids=True, payload_bytes=None)

    def _composed(
        self, action: Action, first_id: str, tail: bytes, *, own_ids: bool, payload_bytes: int | None
    ) -> bytes:
        head = f"{action}:{self.head.topic}:{self.head.version}:{first_id}".encode()
        room = len(self.rows) * (LENGTH_BYTES + len(head) + 1 + len(tail)) + (payload_bytes or 0)
        out = np.empty(room, np.uint8)
        number = int(first_id[-12:], 16)
        with_payload = payload_bytes is not None
        at.compose(self.data, self.rows, as_array(head), as_array(tail), number, own_ids, with_payload, out)
        return out.tobytes()


class BlockReader:
    """Bytes in any pieces in; runs, frames and rejections out, in order.

    `FrameReader` for many messages at a time. What it yields is valid until it is asked for more.
    """

    __slots__ = ("_failed", "_have", "_limits", "_need", "_parts", "_rows", "_state")

    def __init__(self, limits: FrameLimits, scratch: Scratch) -> None:
        self._limits = limits
        self._rows, self._state = scratch.rows, scratch.state
        self._parts: list[bytes] = []
        self._have = 0
        self._need = LENGTH_BYTES
        self._failed: Rejected | None = None

    @property
    def waiting(self) -> bool:
        """Part of a frame has come, and the rest has not."""
        return self._have > 0

    def receive_data(self, data: bytes) -> Iterable[Run | Frame | Rejected]:
        """All that is complete now. A frame in many pieces is looked at when its last piece is there."""
        if not self._have and self._failed is None and is_one_frame(data, self._limits):
            return (parse_message(data[LENGTH_BYTES:], self._limits),)
        return self._received(data)

    def _received(self, data: bytes) -> Iterator[Run | Frame | Rejected]:
        if self._failed is not None:
            return
        self._parts.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        yield from self._split(whole)

    def _split(self, whole: bytes) -> Iterator[Run | Frame | Rejected]:
        data, position, why = as_array(whole), 0, at.ROWS_FULL
        limits = self._limits
        sizes = (limits.frame_bytes_max, HEADER_BYTES_MAX, limits.payload_bytes_max)
        while why == at.ROWS_FULL:
            count = at.split(data, *sizes, position, self._rows, self._state)
            position, why = self._state.tolist()
            yield from self._runs(whole, data, count)
        if why == at.TOO_LARGE:
            yield self._fail(whole, position)
        else:
            self._keep(whole, position)

    def _runs(self, whole: bytes, data: Any, count: int) -> Iterator[Run | Frame | Rejected]:
        rows = self._rows[:count]
        firsts = np.flatnonzero(rows[:, at.SAME] == 0)
        stops = [*firsts[1:].tolist(), count]
        for row, first, stop in zip(rows[firsts].tolist(), firsts.tolist(), stops, strict=bool(count)):
            head = None if row[at.KIND] == at.OTHER else _known(whole[row[at.START] : row[at.HEAD_END]])
            if head is not None and head.action is Action.PUBLISH:
                yield Run(head, data, rows[first:stop], answered=row[at.KIND] == at.WITH_ID)
            else:
                yield from self._one_by_one(whole, rows[first:stop])

    def _one_by_one(self, whole: bytes, rows: Any) -> Iterator[Frame | Rejected]:
        for start, end in zip(rows[:, at.START].tolist(), rows[:, at.END].tolist(), strict=True):
            yield parse_message(whole[start:end], self._limits)

    def _keep(self, whole: bytes, position: int) -> None:
        rest = whole[position:]
        self._have, self._need = len(rest), LENGTH_BYTES
        if rest:
            self._parts.append(rest)
        if len(rest) >= LENGTH_BYTES:
            self._need += int.from_bytes(rest[:LENGTH_BYTES], "big")

    def _fail(self, whole: bytes, position: int) -> Rejected:
        start = position + LENGTH_BYTES
        size = int.from_bytes(whole[position:start], "big")
        self._failed = too_large(size, whole[start : start + HEADER_BYTES_MAX + 1], self._limits)
        self._have = 0
        return self._failed


def is_one_frame(data: bytes, limits: FrameLimits) -> bool:
    """What one message at a time looks like: no need to split it."""
    size = int.from_bytes(data[:LENGTH_BYTES], "big")
    return size == len(data) - LENGTH_BYTES and size <= limits.frame_bytes_max


def _known(raw: bytes) -> Head | None:
    """None where it is wrong: each message that begins so is then answered."""
    try:
        return parse_head(raw)
    except PenstockError:
        return None


class Scratch:
    """Where messages are split: one for all readers of a thread, since each is done with it before the next begins."""

    def __init__(self) -> None:
        self.rows = np.empty((_ROWS, at.COLUMNS), np.int64)
        self.state = np.empty(2, np.int64)
