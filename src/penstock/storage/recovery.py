"""What a segment's bytes say after a crash or damage, decided in one place; acting on it is elsewhere (`repair`).

Two things can be wrong, and they are not the same:

- **torn**: the tail of the newest segment that was being written when the process or the machine stopped. Nothing in it
  was acknowledged. It is cut.
- **damaged**: anything else that does not verify. Exactly those records are stepped over; nothing is cut.

The index tells them apart. It lists records only after they are durable, so a listed record that does not verify is
damaged, and its neighbours are where the index says. Past the index of a segment that was being written, the first
record that does not verify begins the torn tail. Where the index itself is lost, what follows a gap is believed only
if an unbroken run of verified records leads from there to the clean end of the data, or fits, by offsets, before one
that does: a record inside another record's payload does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.core.limits import BLOCK_BYTES_CEILING
from penstock.core.offsets import OFFSET_MAX, OffsetRange
from penstock.record import kernels
from penstock.record import layout as at
from penstock.record.block import After, Block, Longs, Stop
from penstock.storage.disk import File
from penstock.storage.index import Header, State
from penstock.storage.segment import READ_BYTES, Damage, read_block, read_tolerant

_RUNS_MAX: Final = 1024
"""Runs considered behind one gap; a segment with more separate islands than this is beyond repair by guessing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is known of a segment besides its own bytes."""

    base: int
    header: Header | None
    ends: Longs
    """From the index: where each listed record ends, -1 where an entry is not sound."""
    count: int | None = None
    """How many records it must hold, where that is known: the next segment's base, or a closed header."""

    @property
    def listed(self) -> int:
        return int(self.ends.size)

    def end(self, ordinal: int) -> int:
        return int(self.ends[ordinal]) if ordinal < self.ends.size else -1

    @property
    def was_being_written(self) -> bool:
        """The index is there and says that the segment was open: its unlisted rest is unacknowledged."""
        return self.header is not None and self.header.state is State.OPEN and self.count is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result: every record's end, what is damaged, what is torn."""

    base: int
    ends: Longs
    damages: tuple[Damage, ...]
    torn_start: int
    """Where the data ends. What lies behind it up to `torn_stop` is torn; nothing if the two are equal."""
    torn_stop: int
    first_id: bytes
    last: After
    """The last id that was seen, and the next offset."""

    @property
    def size(self) -> int:
        return self.torn_start

    @property
    def count(self) -> int:
        return int(self.ends.size)

    def header(self, state: State, digest: int = 0) -> Header:
        last_id = id_of(self.last)
        return Header(
            state=state,
            base=self.base,
            count=self.count,
            size=self.size,
            first_id=self.first_id,
            last_id=last_id,
            hash=digest,
        )


def id_of(after: After) -> bytes:
    return b"".join((word & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") for word in (after.id_high, after.id_low))


def survey(file: File, size: int, claim: Claim) -> Finding:
    """Read a whole segment of `size` bytes and say what is there. Reads only; memory is bounded by a block."""
    walk = _Walk(file, size, claim)
    walk.run()
    return walk.finding()


@dataclass(frozen=True, slots=True)
class _Run:
    """An unbroken run of verified records behind a gap."""

    start: int
    stop: int
    first_offset: int
    count: int

    @property
    def next_offset(self) -> int:
        return self.first_offset + self.count


@dataclass
class _Walk:
    """The state of one pass over a segment."""

    file: File
    size: int
    claim: Claim
    stop: Stop = field(default_factory=lambda: Stop(0, at.AT_END))
    position: int = 0
    torn_stop: int = 0
    last: After = field(default_factory=After)
    first_id: bytes = bytes(at.ID_BYTES)
    pieces: list[Longs] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last = After(0, 0, self.claim.base)

    @property
    def ordinal(self) -> int:
        return self.last.next_offset - self.claim.base

    def run(self) -> None:
        while True:
            for block, at_position in self._verified():
                self._take(block, at_position)
            if not self._step_over():
                return

    def _verified(self) -> Iterator[tuple[Block, int]]:
        """Blocks up to the first thing that is not a good record; `self.stop` says what that was."""
        position = self.position
        while True:
            block, self.stop = read_block(self.file, position, self.size, after=self.last)
            if len(block):
                yield block, position
            position = self.stop.position
            if self.stop.reason != at.MORE:
                return

    def _take(self, block: Block, at_position: int) -> None:
        if self.first_id == bytes(at.ID_BYTES):
            self.first_id = block.id(0)
        self.pieces.append(block.columns[:, at.END] + at_position)
        self.position = at_position + int(block.columns[-1, at.END])
        self.last = block.last

    def _step_over(self) -> bool:
        """Past what stopped the walk, if anything follows; False when the data ends here."""
        if self._listed_further():
            return self._step_by_index()
        used = _last_used(self.file, self.position, self.size)
        self.torn_stop = max(used, self.position)
        if self.torn_stop == self.position and not self._missing():
            return False
        if self.claim.was_being_written:
            return False
        return self._step_by_search()

    def _listed_further(self) -> bool:
        return self.ordinal < self.claim.listed

    def _missing(self) -> bool:
        return self.claim.count is not None and self.ordinal < self.claim.count

    def _step_by_index(self) -> bool:
        """The index lists the record here, so it was acknowledged: it is damaged, and the index says where it ends."""
        following = np.flatnonzero(self.claim.ends[self.ordinal :] >= self.position)
        if not following.size:
            return self._step_by_search()
        lost = int(following[0]) + 1
        end = self.claim.end(self.ordinal + lost - 1)
        if lost > 1:
            return self._step_to_known(end, lost)
        self._lose(end, 1, str(self.stop))
        return True

    def _step_to_known(self, end: int, span: int) -> bool:
        """The next `span` records end at `end`; the entries between are lost too. Take what can be told apart."""
        first, limit = self.last.next_offset, self.last.next_offset + span
        for offset, start in self._candidates(self.position + 1, end, first + 1, limit):
            if self._chain(start, end, offset, limit):
                self._lose(start, offset - first, str(self.stop))
                return True
        self._lose(end, span, str(self.stop))
        return True

    def _chain(self, start: int, end: int, offset: int, limit: int) -> bool:
        """Whether verified records lead from `start` to exactly `end`, with the offsets up to `limit`."""
        block, stop = read_block(
            self.file, start, end, after=After(self.last.id_high, self.last.id_low, offset), bytes_max=end - start
        )
        return stop.position == end and offset + len(block) == limit

    def _candidates(self, start: int, stop: int, low: int, high: int) -> Iterator[tuple[int, int]]:
        for position in _find_all(self.file, start, stop, self.last, low, high):
            yield self._offset_at(position, stop), position

    def _step_by_search(self) -> bool:
        """No index to go by: believe what fits together."""
        limit = OFFSET_MAX if self.claim.count is None else self.claim.base + self.claim.count
        runs = self._runs(limit)
        chosen = _believed(runs, limit, _last_used(self.file, self.position, self.size))
        if chosen is not None:
            self._lose(chosen.start, chosen.first_offset - self.last.next_offset, str(self.stop))
            return True
        if self._missing():
            lost = limit - self.last.next_offset
            self._lose(max(self.position, self.torn_stop), lost, str(self.stop))
            self.torn_stop = self.position
        return False

    def _runs(self, limit: int) -> list[_Run]:
        """Every unbroken run of verified records from here to the end of the segment."""
        runs: list[_Run] = []
        position = self.position + 1
        while len(runs) < _RUNS_MAX:
            start = _find(self.file, position, self.size, self.last, self.last.next_offset + 1, limit)
            if start < 0:
                break
            run = self._run_at(start)
            runs.append(run)
            position = run.stop
        return runs

    def _run_at(self, start: int) -> _Run:
        first = self._offset_at(start, self.size)
        after = After(self.last.id_high, self.last.id_low, first)
        position = start
        while True:
            block, stop = read_block(self.file, position, self.size, after=after)
            if len(block):
                after, position = block.last, stop.position
            if stop.reason != at.MORE:
                return _Run(start, position, first, after.next_offset - first)

    def _offset_at(self, position: int, stop: int) -> int:
        block, _ = read_block(self.file, position, stop, rows_max=1)
        return int(block.columns[0, at.OFFSET])

    def _lose(self, end: int, count: int, reason: str) -> None:
        """`count` records are damaged; the first of them is charged with all the bytes up to `end`."""
        first = self.last.next_offset
        lost = Damage(self.claim.base, OffsetRange.of(first, first + count), self.position, end, reason)
        if self.damages and self.damages[-1].stop == lost.start and self.damages[-1].offsets.stop == first:
            before = self.damages.pop()
            offsets = OffsetRange(before.offsets.start, lost.offsets.stop)
            lost = Damage(lost.base, offsets, before.start, lost.stop, before.reason)
        self.damages.append(lost)
        self.pieces.append(np.full(count, end, dtype=np.int64))
        self.position = end
        self.last = After(self.last.id_high, self.last.id_low, first + count)

    def finding(self) -> Finding:
        return Finding(
            base=self.claim.base,
            ends=np.concatenate(self.pieces) if self.pieces else np.empty(0, dtype=np.int64),
            damages=tuple(self.damages),
            torn_start=self.position,
            torn_stop=max(self.position, self.torn_stop),
            first_id=self.first_id,
            last=self.last,
        )


def _believed(runs: list[_Run], limit: int, used: int) -> _Run | None:
    """The first of the runs to believe; None if there is none.

    Where the number of records is not known, only a run that ends where the data ends can be the last: anything may be
    behind the others. Of all runs those are believed that keep the most records and fit by their offsets: between
    two of them at least one record is lost. On a tie the later ones win, because what a payload pretends to be comes
    before the record that really follows it.
    """
    kept = [0] * len(runs)
    for place in reversed(range(len(runs))):
        run = runs[place]
        fitting = [kept[later] for later in range(place + 1, len(runs)) if run.next_offset < runs[later].first_offset]
        is_last = run.next_offset <= limit if limit != OFFSET_MAX else run is runs[-1] and run.stop >= used
        if is_last or any(fitting):
            kept[place] = run.count + max(fitting, default=0)
    most = max(kept, default=0)
    if not most:
        return None
    return next(run for run, count in zip(reversed(runs), reversed(kept), strict=True) if count == most)


def _find(file: File, start: int, stop: int, after: After, low: int, high: int) -> int:
    """The first verified record from `start` on that could come after; -1 if there is none. Reads in pieces that
    overlap by the largest record."""
    return next(_find_all(file, start, stop, after, low, high), -1)


def _find_all(file: File, start: int, stop: int, after: After, low: int, high: int) -> Iterator[int]:
    step = BLOCK_BYTES_CEILING
    while start < stop:
        data = read_tolerant(file, start, min(stop - start, 2 * step))
        place = 0
        while True:
            place = int(kernels.find(data, place, data.size, after.id_high, after.id_low, low, high))
            if place < 0 or place >= step:
                break
            yield start + place
            place += 1
        start += step


def _last_used(file: File, start: int, stop: int) -> int:
    """One past the last byte from `start` on that is not zero; `start` if all are."""
    used = start
    for position in range(start, stop, READ_BYTES):
        data = read_tolerant(file, position, min(READ_BYTES, stop - position))
        if kernels.first_used(data) >= 0:
            used = position + int(np.flatnonzero(data)[-1]) + 1
    return used
