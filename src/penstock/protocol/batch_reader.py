"""The batch reader: a kernel splits each read of a socket, and consecutive published messages stay together as a
batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np

from penstock.core.errors import PenstockError
from penstock.protocol.actions import Action
from penstock.protocol.frames import LENGTH_BYTES, Frame, FrameLimits, RejectedFrame, oversized_frame, parse_message
from penstock.protocol.header import HEADER_BYTES_MAX, Head, parse_head
from penstock.record.block import Block, Draft, parse_block
from penstock.record.hashing import as_array, as_signed
from penstock.record.kernels import frame_kernels as at
from penstock.record.kernels import stream_kernels
from penstock.record.message import Message, SchemaRef
from penstock.record.payloads import encode_ranges

_ROWS: Final = 4096
"""The most messages split at a time: 100-byte messages of the largest read of a socket. The rest is split next."""

_BEFORE_ID: Final = as_array(b',"id":"')
_AFTER_ID: Final = as_array(b'","duplicate":false}')


class PublishBatch:
    """Consecutive published messages of any topics, which are answered and delivered together."""

    __slots__ = ("_counts", "_ids", "_rows", "_totals", "data", "heads", "largest_bytes", "payload_bytes")

    def __init__(self, heads: list[Head | None], data: Any, rows: Any, totals: Totals | None = None) -> None:
        self.heads = heads
        """Heads by number; heads of messages outside the batch are among them, and None stands for an invalid head."""

        self.data = data
        self._rows = rows
        self._totals = totals or _totals(rows, len(heads))
        counts, self._ids, self.payload_bytes, self.largest_bytes = self._totals
        self._counts = [(number, count) for number, count in enumerate(counts) if count]

    def __len__(self) -> int:
        return len(self._rows)

    def messages(self) -> Iterator[bytes]:
        """Yield each message as it was received."""
        for start, end in zip(self._rows[:, at.START].tolist(), self._rows[:, at.END].tolist(), strict=True):
            yield self.data[start:end].tobytes()

    def counts(self) -> Iterator[tuple[int, Head, int]]:
        """Yield the number of each head in the batch, the head, and the number of messages that have it."""
        for number, count in self._counts:
            head = self.heads[number]
            if head is not None:
                yield number, head, count

    def rows_with_head(self, number: int) -> Any:
        """Return the numbers, within the batch, of the messages that have the head with this number."""
        return np.flatnonzero(self._rows[:, at.HEAD] == number)

    def with_heads(self, numbers: Collection[int]) -> PublishBatch:
        """Return the messages that have one of the heads with these numbers, in order."""
        if len(numbers) == len(self._counts):
            return self
        is_wanted = np.zeros(len(self.heads), np.bool_)
        is_wanted[list(numbers)] = True
        return self.selected(is_wanted[self._rows[:, at.HEAD]])

    def expecting_answers(self) -> PublishBatch:
        """Return the messages with a request id: they expect an answer."""
        return self if self._ids == len(self) else self.selected(self._rows[:, at.KIND] == at.WITH_ID)

    def selected(self, mask: Any) -> PublishBatch:
        """Return the messages for which the mask is true."""
        return PublishBatch(self.heads, self.data, self._rows[mask])

    def copy(self) -> PublishBatch:
        """Return a copy that outlives the reader's scratch arrays."""
        return PublishBatch(self.heads, self.data, self._rows.copy(), self._totals)

    def draft(self, producer_name: bytes, schema: SchemaRef | None = None) -> Draft:
        """Return the messages as records for the log to stamp. Each has the payload, this producer name and this
        schema.

        An invalid UTF-8 name raises `InvalidRequest`.
        """
        starts = self._rows[:, at.NEWLINE] + 1
        # Invalid UTF-8 becomes a lone surrogate, which no text may hold, and is refused as such.
        common = Message(payload=b"", producer_name=producer_name.decode(errors="surrogateescape"), schema=schema)
        return Draft(encode_ranges(self.data, starts, self._rows[:, at.END] - starts, common), len(self))

    def delivery_frames(self, first_id: str) -> bytes:
        """Return the messages as frames for subscribers, each with an id of the broker's: `first_id` with its last
        group counted up."""
        return self._composed(Action.PUBLISH, first_id, b"", own_ids=False, with_payload=True)

    def answer_frames(self, first_id: str, payload: bytes) -> bytes:
        """Return an answer with this payload to each message, under its own request id.

        A message without one is answered under an id of the broker's: `first_id` with its last group counted up.
        """
        return self._composed(Action.RESPONSE, first_id, payload, own_ids=True, with_payload=False)

    def receipt_frames(self, *, partition: int, first_offset: int, first_ticks: int, id_low: int) -> bytes:
        """Return an answer with offset and id to each message that has a request id.

        All messages of the batch were stored one after another, from `first_offset` and from the id of `first_ticks`
        and `id_low` on.
        """
        before = as_array(b'{"partition":%d,"offset":' % partition)
        digits = len(str(first_offset + len(self)))
        fixed = before.size + digits + _BEFORE_ID.size + at.ID_CHARS + _AFTER_ID.size
        lines, places, room = self._lines(Action.RESPONSE, "", at.ID_CHARS + 1 + fixed)
        out = np.empty(room, np.uint8)
        texts = (before, _BEFORE_ID, _AFTER_ID)
        stamps = (first_offset, first_ticks, as_signed(id_low))
        written = stream_kernels.receipts(self.data, self._rows, lines, places, *texts, *stamps, out)
        return out[:written].tobytes()

    def _composed(self, action: Action, first_id: str, tail: bytes, *, own_ids: bool, with_payload: bool) -> bytes:
        lines, places, room = self._lines(action, first_id, 1 + len(tail))
        out = np.empty(room + (self.payload_bytes if with_payload else 0), np.uint8)
        number = _id_tail(first_id)
        at.compose(self.data, self._rows, lines, places, as_array(tail), number, own_ids, with_payload, out)
        return out.tobytes()

    def _lines(self, action: Action, ending: str, more: int) -> tuple[Any, Any, int]:
        """Return the header for each head, where each lies, and the size of all frames. Each frame has `more` bytes
        besides its length and header."""
        places = np.zeros((len(self.heads), 2), np.int64)
        lines, end, room = [], 0, 0
        for number, head, count in self.counts():
            line = f"{action}:{head.topic}:{head.version}:{ending}".encode()
            places[number] = (end, len(line))
            end += len(line)
            room += count * (LENGTH_BYTES + len(line) + more)
            lines.append(line)
        return as_array(b"".join(lines)), places, room


def publish_frames(block: Block, topic: str, version: str, first_id: str) -> bytes:
    """Return a frame with the payload of each record, as a published message. Ids count up from `first_id` in their
    last group."""
    line = as_array(f"{Action.PUBLISH}:{topic}:{version}:{first_id}".encode())
    room = len(block) * (LENGTH_BYTES + line.size + 1) + int(block.payload_sizes.sum())
    out = np.empty(room, np.uint8)
    stream_kernels.publish(block.data, block.columns, line, _id_tail(first_id), out)
    return out.tobytes()


def _id_tail(first_id: str) -> int:
    """Return the last group of an id, 48 bits, as a number. It is counted up from there for each message of a read or
    block."""
    return int(first_id[-at.ID_TAIL_CHARS :], 16)


Totals = tuple[list[int], int, int, int]
"""The numbers of messages by head, the number of messages with a request id, and the bytes of all payloads and of the
largest."""


def _totals(rows: Any, heads: int) -> Totals:
    counts = np.bincount(rows[:, at.HEAD], minlength=heads).tolist()
    ids = int(np.count_nonzero(rows[:, at.KIND] == at.WITH_ID))
    sizes = rows[:, at.END] - rows[:, at.NEWLINE] - 1
    return counts, ids, int(sizes.sum()), int(sizes.max(initial=0))


_MIXED_ROWS: Final = 256
"""The most messages split at a time if they are of several kinds. Their rows are kept while other connections have
their turns, and take many times the room of the shortest messages."""


class BatchReader:
    """A protocol reader: it takes bytes in pieces of any size and returns batches, frames and rejections, in order.

    It gives the same messages as `FrameReader`, many at a time. Take all that `receive_data` yields before the next
    call. A batch is valid until the next call, of this reader or another one with the same scratch arrays.
    """

    __slots__ = ("_failed", "_limits", "_need", "_rest", "_scratch")

    def __init__(self, limits: FrameLimits, scratch: Scratch) -> None:
        self._limits = limits
        self._scratch = scratch
        self._rest = bytearray()
        self._need = LENGTH_BYTES
        self._failed: RejectedFrame | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes received of an incomplete frame."""
        return len(self._rest)

    @property
    def wanted_bytes(self) -> int:
        """The size of the incomplete frame when it is complete; 0 if none has begun."""
        return max(self._need, len(self._rest)) if self._rest else 0

    def widen(self, limits: FrameLimits, scratch: Scratch) -> None:
        """Accept larger messages, and split more at a time, from the next bytes on."""
        self._limits = limits
        self._scratch = scratch

    def receive_data(self, data: bytes) -> Iterable[PublishBatch | Frame | RejectedFrame]:
        """Return all messages that are complete now; nothing after an oversized frame. A frame in many pieces is parsed
        when its last piece arrives."""
        if not self._rest and self._failed is None and is_single_frame(data, self._limits):
            return (parse_message(data[LENGTH_BYTES:], self._limits),)
        return self._received(data)

    def _received(self, data: bytes) -> Iterator[PublishBatch | Frame | RejectedFrame]:
        if self._failed is not None:
            return
        if self._rest or len(data) < self._need:
            self._rest += data
            if len(self._rest) < self._need:
                return
            data, self._rest = bytes(self._rest), bytearray()
        yield from self._split(data)

    def _split(self, whole: bytes) -> Iterator[PublishBatch | Frame | RejectedFrame]:
        data, position, why = as_array(whole), 0, at.ROWS_FULL
        limits, scratch = self._limits, self._scratch
        sizes = (limits.frame_bytes_max, HEADER_BYTES_MAX, limits.payload_bytes_max)
        room = scratch.rows
        while why == at.ROWS_FULL:
            count = at.split(data, *sizes, position, room, scratch.heads, scratch.slots, scratch.state)
            position, why, distinct, others, ids, payloads, largest = scratch.state.tolist()
            if count:
                distinct_heads = scratch.heads[:distinct].tolist()
                heads = [_known(whole[start : start + size]) for start, size, _ in distinct_heads]
                rows = scratch.rows[:count]
                if not others and all(head is not None and head.action is Action.PUBLISH for head in heads):
                    yield PublishBatch(
                        heads, data, rows, ([each for _, _, each in distinct_heads], ids, payloads, largest)
                    )
                else:
                    room = scratch.rows[:_MIXED_ROWS]
                    if count > _MIXED_ROWS:  # the rest is split again later
                        rows, why = rows[:_MIXED_ROWS], at.ROWS_FULL
                        position = int(rows[-1, at.END])
                    yield from self._stretches(whole, data, rows, heads)
        if why == at.TOO_LARGE:
            yield self._fail(whole, position)
        else:
            self._keep(whole, position)

    def _stretches(
        self, whole: bytes, data: Any, rows: Any, heads: list[Head | None]
    ) -> Iterator[PublishBatch | Frame | RejectedFrame]:
        """Yield consecutive published messages as batches, and other messages one by one, in order.

        The rows are copied, since other readers may use the scratch arrays before the iteration ends.
        """
        rows = rows.copy()
        published = np.array([head is not None and head.action is Action.PUBLISH for head in heads] or [False])
        together = published[rows[:, at.HEAD]] & (rows[:, at.KIND] != at.OTHER)
        edges = [0, *(np.flatnonzero(np.diff(together)) + 1).tolist(), len(rows)]
        for first, stop in pairwise(edges):
            if together[first]:
                yield PublishBatch(heads, data, rows[first:stop])
            else:
                yield from self._one_by_one(whole, rows[first:stop])

    def _one_by_one(self, whole: bytes, rows: Any) -> Iterator[Frame | RejectedFrame]:
        for start, end in rows[:, (at.START, at.END)]:
            yield parse_message(whole[start:end], self._limits)

    def _keep(self, whole: bytes, position: int) -> None:
        self._rest += whole[position:]
        self._need = LENGTH_BYTES
        if len(self._rest) >= LENGTH_BYTES:
            self._need += int.from_bytes(self._rest[:LENGTH_BYTES], "big")

    def _fail(self, whole: bytes, position: int) -> RejectedFrame:
        start = position + LENGTH_BYTES
        size = int.from_bytes(whole[position:start], "big")
        self._failed = oversized_frame(size, whole[start : start + HEADER_BYTES_MAX + 1], self._limits)
        return self._failed


def is_single_frame(data: bytes, limits: FrameLimits) -> bool:
    """Return True if the data is exactly one frame of an allowed size, which needs no split."""
    size = int.from_bytes(data[:LENGTH_BYTES], "big")
    return size == len(data) - LENGTH_BYTES and size <= limits.frame_bytes_max


def _known(raw: bytes) -> Head | None:
    """Return a parsed head; None if it is invalid. Its messages are then parsed, and answered with the error, one by
    one."""
    try:
        return parse_head(raw)
    except PenstockError:
        return None


_ANY_ID: Final = "00000000-0000-4000-8000-000000000000"


def warm_up() -> None:
    """Call every kernel of this module once: a first call takes a hundred times as long as the next."""
    frame = len(b"publish:a:1.0.0\n").to_bytes(LENGTH_BYTES, "big") + b"publish:a:1.0.0\n"
    for batch in BatchReader(FrameLimits(), Scratch()).receive_data(frame * 2):
        if isinstance(batch, PublishBatch):
            batch.delivery_frames(_ANY_ID)
            batch.receipt_frames(partition=0, first_offset=0, first_ticks=0, id_low=0)
            publish_frames(parse_block(batch.draft(b"").data, verify=False), "a", "1.0.0", _ANY_ID)


class Scratch:
    """Arrays in which messages are split. All readers of a thread share them, since each finishes before the next
    begins."""

    def __init__(self, rows: int = _ROWS) -> None:
        """Create arrays to split `rows` messages at a time."""
        self.rows = np.empty((rows, at.COLUMNS), np.int64)
        self.heads = np.empty((at.HEADS_MAX, at.HEAD_COLUMNS), np.int64)
        self.slots = np.empty(at.SLOTS, np.int64)
        self.state = np.empty(at.STATE, np.int64)
