"""Scans: topics are browsed in bounded pieces. Each piece resumes exactly where the last one stopped.

Partitions are merged by message id, which is the order in which the broker stored the messages. A scan runs in another
thread, in steps: between two steps other work gets its turn, and the scan ends if its caller has disconnected. It reads
logs and changes no other state.
"""

from __future__ import annotations

import heapq
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec
import numpy as np

from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client
from penstock.broker.reads.message_filter import MessageFilter
from penstock.broker.topics.topics import TopicState
from penstock.core.errors import InvalidRequest, OffsetOutOfRange, PenstockError, QuotaExceeded, TopicNotSupported
from penstock.core.limits import KIB, MIB
from penstock.record import layout as at
from penstock.record.block import EMPTY_BLOCK, Block
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import ReadChunk

SCAN_MESSAGES: Final = 10_000
"""The default number of messages scanned in one call."""
SCAN_MESSAGES_MAX: Final = 100_000
"""The largest number of messages scanned in one call: some tens of milliseconds of one processor."""
SCAN_BYTES_MAX: Final = 16 * MIB
"""The most bytes that one call scans: an idle disk reads them in a moment."""
SCANS_MAX: Final = 16
"""The most scans at one time: each may hold some megabytes, and they share two threads."""
_STEP_MESSAGES: Final = 4_096
_STEP_BYTES: Final = 1 * MIB
"""Bytes of one step. After each step the scan checks that its caller still waits, and lets others read."""
_CHUNK_BYTES: Final = 256 * KIB
_CHUNK_BYTES_MIN: Final = 4 * KIB
_HELD_BYTES_MAX: Final = 8 * MIB
"""The most bytes in memory that were read but not scanned yet, of all partitions. Past it, blocks are dropped and read
a second time."""
_DAMAGES_MAX: Final = 100
"""Damaged ranges in one answer, at which the call ends."""
_TOKEN_CHARS_MAX: Final = 16 * KIB
"""The most characters of a resume token: nine bytes for each of a thousand partitions, in base64."""
_TOKEN_VERSION: Final = 1
_LOW: Final = 0xFFFF_FFFF_FFFF_FFFF
_COLUMNS: Final = (at.OFFSET, at.ID_HIGH, at.ID_LOW)

Positions = dict[int, int]
"""The next offset of each partition."""


# resume tokens


def resume_token(topic: TopicState, positions: Mapping[int, int]) -> str:
    """Return the positions as a text from which a later call can resume. Clients must not interpret it."""
    first, count = min(positions), len(positions)
    offsets = [positions[first + number] for number in range(count)]
    packed = msgspec.msgpack.encode([_TOKEN_VERSION, topic.uid, first, offsets])
    return urlsafe_b64encode(packed).rstrip(b"=").decode()


def parse_resume_token(topic: TopicState, text: object, partition: int | None, name: str = "resume") -> Positions:
    """Return the positions in a resume token. Raises `InvalidRequest` if the text is no token, or is one of another
    topic or of other partitions; `name` is the field of the request that the error names."""
    try:
        if not isinstance(text, str) or len(text) > _TOKEN_CHARS_MAX:
            raise InvalidRequest("too long")
        packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        version, uid, first, offsets = _TOKEN.decode(packed)
    except (InvalidRequest, Base64Error, ValueError, msgspec.DecodeError):
        raise InvalidRequest(f"Invalid {name}: expected what an earlier answer gave", field=name) from None
    partitions = list(range(len(topic.logs))) if partition is None else [partition]
    if version != _TOKEN_VERSION or uid != topic.uid or any(offset < 0 for offset in offsets):
        raise InvalidRequest(f"Invalid {name}: it is not of {topic.name} as it is now", field=name)
    if list(range(first, first + len(offsets))) != partitions:
        raise InvalidRequest(f"Invalid {name}: it is of other partitions; ask for the same again", field=name)
    return dict(zip(partitions, offsets, strict=True))


_TOKEN: Final = msgspec.msgpack.Decoder(tuple[int, int, int, list[int]])


# scans


class ScanHit(NamedTuple):
    """A message that matches the filter: a row of a block."""

    partition: int
    block: Block
    row: int


class TakeResult(Enum):
    """The answer of the function that a scan calls with each matching message."""

    YES = auto()
    NO = auto()
    """The message is not wanted: the scan goes on and does not count it as matched."""
    FULL = auto()
    """There is no room for the message: the scan ends before it."""


Take = Callable[[ScanHit], TakeResult]


@dataclass(slots=True)
class _PartitionReader:
    """One partition of a scan, with the block that was read last and the current row in it."""

    partition: int
    log: Log
    stop: int
    block: Block = EMPTY_BLOCK
    table: list[list[int]] = field(default_factory=list)
    """For each record of the block, its size and the columns named in `_COLUMNS`."""

    ends: list[int] = field(default_factory=list)
    """For each record of the block, the size of all records up to and including it."""

    wanted: list[bool] = field(default_factory=list)
    row: int = 0

    @property
    def left(self) -> int:
        return len(self.table) - self.row

    @property
    def head(self) -> tuple[int, int]:
        """The id of the next message, as two integers."""
        _, _, high, low = self.table[self.row]
        return high, low & _LOW

    def load(self, block: Block, wanted: list[bool]) -> None:
        sizes = block.columns[:, at.END] - block.columns[:, at.START]
        columns = (sizes, *(block.columns[:, each] for each in _COLUMNS))
        self.block, self.wanted, self.row = block, wanted, 0
        self.table, self.ends = np.stack(columns, axis=1).tolist(), np.cumsum(sizes).tolist()

    def next_wanted(self) -> int:
        """Return the row of the next record that matches; the number of rows if none does."""
        try:
            return self.wanted.index(True, self.row)
        except ValueError:
            return len(self.wanted)


@dataclass(slots=True)
class Scan:
    """One scan of partitions of a topic, from `positions` up to, not including, `stops`. `take` is called with each
    matching message."""

    topic: TopicState
    positions: Positions
    """The next offset of each partition: every message before it was scanned, or is lost."""

    stops: Positions
    message_filter: MessageFilter
    take: Take
    scanned_max: int = SCAN_MESSAGES
    matched_max: int = SCAN_MESSAGES_MAX
    scanned: int = 0
    matched: int = 0
    bytes: int = 0
    lost: list[Fields] = field(default_factory=list)
    """Ranges that retention deleted before the scan came to them."""

    damaged: list[Fields] = field(default_factory=list)
    done: bool = False
    _readers: dict[int, _PartitionReader] = field(default_factory=dict)
    _heads: list[tuple[tuple[int, int], int]] = field(default_factory=list)
    _held: int = 0

    @property
    def at_end(self) -> bool:
        """True if the scan has reached `stops` in every partition."""
        return all(self.positions[partition] >= self.stops[partition] for partition in self.positions)

    def step(self) -> None:
        """Scan some further messages. Sets `done` when a limit or the end is reached. Raises the error of a log that
        cannot be read."""
        if not self._readers:
            self._begin()
        until, until_bytes = self.scanned + _STEP_MESSAGES, self.bytes + _STEP_BYTES
        while not self.done and self.scanned < until and self.bytes < until_bytes:
            self._next()

    def _begin(self) -> None:
        for partition in self.positions:
            self._readers[partition] = _PartitionReader(partition, self.topic.logs[partition], self.stops[partition])
        for reader in self._readers.values():
            self._push(reader)

    def _next(self) -> None:
        """Scan the message with the oldest id among all partitions."""
        if not self._heads or self._is_full():
            self.done = True
            return
        reader = self._readers[heapq.heappop(self._heads)[1]]
        if not reader.left:
            self._read(reader)  # it was dropped, to save memory
        if not self._heads and reader.left:
            self._pass_over(reader)
        if reader.left and not self._is_full() and not self._take_next(reader):
            self.done = True
            return
        self._push(reader)

    def _pass_over(self, reader: _PartitionReader) -> None:
        """Skip the next rows that do not match, all at once. Only for the last partition that has messages: no others
        come in between."""
        row, before = reader.row, reader.ends[reader.row - 1] if reader.row else 0
        fitting = bisect_left(reader.ends, before + SCAN_BYTES_MAX - self.bytes, lo=row) + 1
        stop = min(reader.next_wanted(), row + self.scanned_max - self.scanned, fitting)
        if stop > row:
            self.scanned += stop - row
            self.bytes += reader.ends[stop - 1] - before
            reader.row = stop
            self.positions[reader.partition] = reader.table[stop - 1][1] + 1

    def _is_full(self) -> bool:
        return (
            self.scanned >= self.scanned_max
            or self.matched >= self.matched_max
            or self.bytes >= SCAN_BYTES_MAX
            or len(self.damaged) >= _DAMAGES_MAX
        )

    def _take_next(self, reader: _PartitionReader) -> bool:
        """Scan the next message of a partition. Returns False if it matches and there is no room for it: the position
        then stays before it."""
        if reader.wanted[reader.row]:
            taken = self.take(ScanHit(reader.partition, reader.block, reader.row))
            if taken is TakeResult.FULL:
                return False
            self.matched += taken is TakeResult.YES
        size, offset, _, _ = reader.table[reader.row]
        self.scanned += 1
        self.bytes += size
        reader.row += 1
        self.positions[reader.partition] = offset + 1
        return True

    def _push(self, reader: _PartitionReader) -> None:
        """Add the next message of a partition to the heap from which the oldest is taken. Nothing is added at its
        end."""
        if not reader.left:
            self._drop(reader)
            self._read(reader)
        if reader.left:
            heapq.heappush(self._heads, (reader.head, reader.partition))
            if self._held > _HELD_BYTES_MAX:
                self._drop(reader)

    def _drop(self, reader: _PartitionReader) -> None:
        self._held -= reader.block.data.nbytes
        reader.load(EMPTY_BLOCK, [])

    def _read(self, reader: _PartitionReader) -> None:
        """Read the next block of a partition. Leaves the reader empty at the end."""
        partition = reader.partition
        while self.positions[partition] < reader.stop and not reader.left and len(self.damaged) < _DAMAGES_MAX:
            chunk = self._chunk(reader)
            block = chunk.block.select(0, int(np.searchsorted(chunk.block.columns[:, at.OFFSET], reader.stop)))
            if len(block):
                self._held += block.data.nbytes
                reader.load(block, self.message_filter.mask(block).tolist())
            following = block.offsets.start if len(block) else min(chunk.next_offset, reader.stop)
            self.positions[partition] = max(self.positions[partition], int(following))

    def _chunk(self, reader: _PartitionReader) -> ReadChunk:
        size = max(_CHUNK_BYTES_MIN, min(_CHUNK_BYTES, _STEP_BYTES // len(self._readers)))
        while True:
            position = self.positions[reader.partition]
            try:
                chunk = reader.log.read(position, bytes_max=size)
            except OffsetOutOfRange:
                first = int(reader.log.first_offset)
                if first <= position:
                    raise
                self.lost.append({"partition": reader.partition, "start": position, "stop": first})
                self.positions[reader.partition] = first
                continue
            self._note_damage(reader, chunk)
            return chunk

    def _note_damage(self, reader: _PartitionReader, chunk: ReadChunk) -> None:
        for damage in chunk.damages:
            start, stop = int(damage.offsets.start), min(int(damage.offsets.stop), reader.stop)
            if start < stop:
                self.damaged.append(
                    {"partition": reader.partition, "start": start, "stop": stop, "reason": damage.reason}
                )

    def summary(self) -> Fields:
        """Return the counts of the scan, what was lost, and the token to resume from, as fields of an answer."""
        summary: Fields = {
            "scanned": self.scanned,
            "matched": self.matched,
            "bytes": self.bytes,
            "end": self.at_end,
            "resume": resume_token(self.topic, self.positions),
        }
        losses = {"lost": self.lost, "damaged": self.damaged}
        return summary | {name: ranges for name, ranges in losses.items() if ranges}


def check_durable(topic: TopicState) -> None:
    if not topic.is_durable:
        raise TopicNotSupported(f"{topic.name} is a live topic: it keeps nothing to look at", topic=str(topic.name))


# the scans of a broker


class Scans:
    """The scans that run now: at most `SCANS_MAX`."""

    def __init__(self) -> None:
        self.open = 0

    def run(
        self,
        client: Client,
        begin: Callable[[], Scan],
        reply: Reply,
        then: Callable[[Scan], list[Effect]],
    ) -> list[Effect]:
        """Run a scan step by step, then call `then` with it. An error goes to `reply`. If the client disconnects, the
        scan ends and neither is called. Raises `QuotaExceeded` if too many scans run.

        `begin` makes the scan. It is called in another thread, as finding the start may read the log.
        """
        if self.open >= SCANS_MAX:
            raise QuotaExceeded(f"at most {SCANS_MAX} look through messages at once: try again", scans_max=SCANS_MAX)
        self.open += 1

        def stepped(outcome: Scan | PenstockError) -> list[Effect]:
            if isinstance(outcome, Scan) and not outcome.done and client.awaits_answer:
                return [RunInThread(lambda: _stepped(outcome), stepped, read_only=True)]
            self.open -= 1
            if isinstance(outcome, PenstockError):
                return reply(outcome)
            return then(outcome) if client.awaits_answer else []

        return [RunInThread(lambda: _stepped(begin()), stepped, read_only=True)]


def _stepped(scan: Scan) -> Scan:
    scan.step()
    return scan
