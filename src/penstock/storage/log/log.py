"""The log of one partition: append blocks, read from any offset, truncate the oldest messages.

One thread appends (see `group_commit`); any thread reads. Readers see a change only after the disk has confirmed it.
After a failed write or sync the log refuses all appends until it is opened again; reads go on.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from penstock.core.clock import Clock, now_ms
from penstock.core.errors import DiskFull, InvalidRequest, OffsetOutOfRange, PenstockError, StorageFailed
from penstock.core.ids import ID_BYTES, IdGenerator, IdRun, format_id, ticks_of_id, unix_ms_of_ticks
from penstock.core.limits import Limits
from penstock.core.offsets import Offset, OffsetRange
from penstock.core.positions import Position
from penstock.record.block import Draft, stamp, stamp_each
from penstock.record.message import Record
from penstock.storage.base.disk import FULL_ERRORS, Disk, opened, storage_error
from penstock.storage.catalog.topics import LogEnd, Retention
from penstock.storage.log import log_view
from penstock.storage.log.active_segment import ActiveSegment
from penstock.storage.log.append_result import AppendResult, Durability
from penstock.storage.log.index import IndexFile, SegmentState
from penstock.storage.log.log_view import MISSING, LogView, ReadChunk, Segment, gaps_in
from penstock.storage.log.repair import is_index_of, put_empty_segment, quarantine_damage, rebuild_sealed
from penstock.storage.log.retention import SegmentAge, expired_count
from penstock.storage.log.segment import (
    LOG_START_NAME,
    READ_BYTES,
    SPARE_NAME,
    START_OF_EMPTY_LOG,
    Damage,
    LogStart,
    base_of,
    index_path,
    read_log_start,
    segment_name,
    write_log_start,
)

_LOG = logging.getLogger(__name__)
_NEW_IDS = "let the log give new ones (--restamp)"
_AHEAD_MS_MAX = 60_000
"""The largest lead of ids made elsewhere over the clock here, in milliseconds: as much as two well kept clocks may
differ."""


class Log:
    """A partition's log, opened with `Log.open`. The caller holds the owner lock of the data directory."""

    def __init__(self, disk: Disk, path: Path, *, ids: IdGenerator, clock: Clock, limits: Limits) -> None:
        self._disk = disk
        self._path = path
        self._ids = ids
        self._clock = clock
        self._limits = limits
        self._durability = Durability.SYNC
        self._view = LogView()
        self._active: ActiveSegment | None = None
        self._failure: StorageFailed | None = None
        self._last_refusal: DiskFull | None = None
        self._closed = False
        self._last_id = bytes(ID_BYTES)
        self.damages: list[Damage] = []
        """Damaged and missing offsets, found by recovery when the log was opened and by reads since."""

        self.on_change: Callable[[], None] = lambda: None
        """Callback that runs in the appending thread when a segment is sealed or the log's first offset changes."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: Path,
        *,
        ids: IdGenerator,
        clock: Clock,
        limits: Limits | None = None,
        durability: Durability = Durability.SYNC,
        recorded_end: LogEnd | None = None,
    ) -> Self:
        """Open or create a log and recover it: everything acknowledged before is present, and appends may begin.
        `recorded_end` is the end that the catalog has on record: offsets before it that no file holds are damage,
        and the log goes on behind them. Raises `StorageFailed` if the disk fails."""
        log = cls(disk, path, ids=ids, clock=clock, limits=(limits or Limits()).check())
        log._durability = durability
        try:
            log._recover(recorded_end)
        except OSError as error:
            raise storage_error(error, f"{path} cannot be opened") from error
        return log

    # reading

    @property
    def path(self) -> Path:
        return self._path

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def view(self) -> LogView:
        """The readable part of the log now, as an immutable value."""
        return self._view

    @property
    def first_offset(self) -> Offset:
        return self._view.first_offset

    @property
    def next_offset(self) -> Offset:
        return self._view.next_offset

    @property
    def last_id(self) -> bytes:
        """The id of the newest record; sixteen zero bytes if the log never had one."""
        return self._last_id

    @property
    def end(self) -> LogEnd:
        """The first and the next offset, and the last id. The catalog saves them, so that a later loss of files is
        noticed."""
        view = self._view
        return LogEnd(int(view.first_offset), int(view.next_offset), self._last_id)

    @property
    def missing(self) -> list[OffsetRange]:
        """Ranges of offsets whose files are gone, in order, without those that lie before the first offset by now."""
        gaps = (damage.offsets for damage in self.damages if damage.reason == MISSING)
        return sorted((gap for gap in gaps if gap.stop > self.first_offset), key=lambda gap: gap.start)

    @property
    def failure(self) -> StorageFailed | None:
        """The reason why the log takes no more appends; None while it takes them."""
        return self._failure

    @property
    def refusal(self) -> DiskFull | None:
        """The reason why the last append found no room on the disk; None if it found room."""
        return self._last_refusal

    def lacks_room(self, free_bytes: int) -> bool:
        """Return True if the last append was refused for lack of room, and would be refused again with `free_bytes`
        free."""
        if self._last_refusal is None:
            return False
        needed = self._last_refusal.details.get("needed_bytes")
        wanted = needed if isinstance(needed, int) else self._limits.segment_bytes_first
        return free_bytes - wanted < self._limits.disk_reserve_bytes

    def read(self, offset: int, *, bytes_max: int = READ_BYTES, verify: bool = True) -> ReadChunk:
        """Return verified records from `offset` on, about `bytes_max` bytes; an empty block at the end of the log.
        Damaged records are stepped over, named in the result, and copied to quarantine. With `verify=False`
        checksums are not checked. Raises `OffsetOutOfRange` for an offset outside the log, `StorageFailed` if the
        disk cannot be read."""
        view = self._view
        try:
            chunk = log_view.read(self._disk, view, offset, bytes_max=bytes_max, verify=verify)
        except OSError as error:
            log_view.check_range(self._view, offset)  # retention may have dropped it meanwhile
            raise storage_error(error, f"{self._path} cannot be read") from error
        for damage in chunk.damages:
            self._quarantine(view, damage)
        return chunk

    def records(self, start: int | None = None, stop: int | None = None) -> Iterator[Record]:
        """Yield the good records in `[start, stop)`; by default, all from the first to the end that the log has now."""
        offset = self.first_offset if start is None else start
        stop = self.next_offset if stop is None else stop
        while offset < stop:
            chunk = self.read(offset)
            yield from (record for record in chunk if record.offset < stop)
            if chunk.next_offset == offset:
                return
            offset = chunk.next_offset

    def offset_of(self, position: Position) -> Offset:
        """Return the offset of a position now. Raises `OffsetOutOfRange` for an offset outside the log."""
        while True:
            view = self._view
            try:
                return log_view.offset_of(self._disk, view, position)
            except OSError as error:
                # If retention has dropped segments meanwhile, search the rest again.
                if view.first_offset == self._view.first_offset:
                    raise storage_error(error, f"{self._path} cannot be read") from error

    def _quarantine(self, view: LogView, damage: Damage) -> None:
        if damage in self.damages or self._is_in_known_gap(damage):
            return
        self.damages.append(damage)
        segment = view.segment_of(damage.offsets.start)
        if segment is None or segment.base != damage.base:
            return
        try:
            with opened(self._disk, segment.path) as file:
                quarantine_damage(self._disk, segment.path, file, damage, self._limits)
        except OSError as error:
            _LOG.error("%s: %s; its bytes could not be kept: %s", segment.path, damage, error)

    def _is_in_known_gap(self, damage: Damage) -> bool:
        """Return True if the damage is a part of missing offsets that were found before: a read may begin anywhere in
        them."""
        return damage.reason == MISSING and any(
            known.reason == MISSING and damage.offsets.start in known.offsets for known in self.damages
        )

    # appending

    def append(self, draft: Draft) -> AppendResult:
        """Append one block. It is durable on return, unless the log was opened with `Durability.OS`. Raises `DiskFull`
        if there is no room, `StorageFailed` if a write or sync fails now or failed before."""
        outcome = self.append_group([draft])[0]
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome

    def append_group(self, drafts: Sequence[Draft]) -> list[AppendResult | PenstockError]:
        """Append blocks with as few writes and syncs as segments allow, and return the result or error of each, in
        order. If a block cannot be appended, it and all blocks behind it get the same error. After a lack of room or
        of file descriptors, the log takes later appends. After a failed write or sync, it takes no more."""
        outcomes: list[AppendResult | PenstockError] = []
        while len(outcomes) < len(drafts):
            rest = drafts[len(outcomes) :]
            try:
                outcomes += self._append_first(rest)
                self._report_room(None)
            except PenstockError as error:
                outcomes += [error] * len(rest)
                self._report_room(error if isinstance(error, DiskFull) else self._last_refusal)
        return outcomes

    def _report_room(self, refused: DiskFull | None) -> None:
        """Log once when appends begin to fail for lack of room, and once when they succeed again. `refused` is the
        error of the last append; None if it found room."""
        if refused is not None and self._last_refusal is None:
            _LOG.error("%s takes no messages for want of room: %s", self._path, refused.message)
        elif refused is None and self._last_refusal is not None:
            _LOG.info("%s takes messages again: there is room", self._path)
        self._last_refusal = refused

    def _append_first(self, drafts: Sequence[Draft]) -> list[AppendResult]:
        """Append, with one write and one sync, as many of the first blocks as the active segment has room for; return
        their results."""
        self._check_open()
        active = self._active_segment_for(len(drafts[0].data))
        count = active.fitting(drafts)
        records = sum(draft.count for draft in drafts[:count])
        try:
            active.reserve(records)
        except OSError as error:
            raise self._refusal(error) from error
        data = bytearray().join([draft.data for draft in drafts[:count]])
        ids = self._ids.take(records)
        first = self._view.next_offset
        ends = stamp(data, records, ids, first)
        self._commit(active, data, ends, ids[ids.count - 1])
        return _split_results(drafts[:count], first, ids, memoryview(data))

    def append_with_ids(self, draft: Draft, ids: Sequence[bytes]) -> OffsetRange:
        """Append one block whose messages already have ids, and return its offsets; durable on return. Call it only in
        the appending thread. Raises `InvalidRequest` unless the ids are UUIDv6, rise above all ids of the log, and
        are not more than a minute in the future, since the next published message must get a later id."""
        self._check_open()
        self._check_ids(ids)
        draft.check_sizes(self._limits)
        active = self._active_segment_for(len(draft.data))
        try:
            active.reserve(draft.count)
        except OSError as error:
            raise self._refusal(error) from error
        data, first = bytearray(draft.data), self._view.next_offset
        ends = stamp_each(data, ids, first)
        self._commit(active, data, ends, ids[-1])
        self._ids.advance(ticks_of_id(ids[-1]))
        return OffsetRange.of(first, first + draft.count)

    def _check_ids(self, ids: Sequence[bytes]) -> None:
        last = self._last_id
        for id_ in ids:
            if not last < id_:
                raise InvalidRequest(
                    f"id {format_id(id_)} is not greater than {format_id(last)}, which comes before it: {_NEW_IDS}"
                )
            last = id_
        if unix_ms_of_ticks(ticks_of_id(last)) > now_ms(self._clock) + _AHEAD_MS_MAX:
            raise InvalidRequest(f"id {format_id(last)} is of the future: check the clocks, or {_NEW_IDS}")

    def _commit(self, active: ActiveSegment, data: bytearray, ends: Any, last_id: bytes) -> None:
        try:
            active.write(data, ends, sync=self._durability is Durability.SYNC)
        except OSError as error:
            raise self._fail(error) from error
        self._last_id = last_id
        self._publish_segment(active.segment)

    def _publish_segment(self, segment: Segment) -> None:
        others = self._view.segments
        if others and others[-1].base == segment.base:
            others = others[:-1]
        self._view = LogView((*others, segment), self._view.start)

    def refuse(self, failure: StorageFailed) -> None:
        """Refuse appends with the error `failure` from now on. An earlier failure stays. Call it only in the appending
        thread."""
        self._failure = self._failure or failure

    def set_limits(self, limits: Limits) -> None:
        """Apply new limits from now on; an existing segment, also the spare, keeps its size. Only for the appending
        thread. Raises `InvalidRequest` for impossible limits."""
        self._limits = limits.check()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._check_not_closed()

    def _check_not_closed(self) -> None:
        if self._closed:
            raise StorageFailed(f"{self._path} is closed")

    def _fail(self, error: OSError) -> StorageFailed:
        self._failure = StorageFailed(
            f"{self._path}: a write failed ({error.strerror or error}); it takes no more appends until it is opened"
            " again, which recovers it. Reads go on.",
            errno=error.errno,
        )
        _LOG.error("%s", self._failure.message)
        return self._failure

    def _active_segment_for(self, size: int) -> ActiveSegment:
        """Return a segment with room for `size` bytes: the active one, or a new one if that is full or old. Raises
        `DiskFull`, before anything is written, if there is no room for it."""
        try:
            active = self._active
            if active is not None and self._must_roll(active, size):
                self._roll(active)
                active = None
            if active is None:
                active = self._active = self._next_segment(size)
            elif not active.has_room(size):
                active.enlarge(self._next_segment_bytes(size))
            active.open_files()
            active.prepare_spare(self._limits)
        except OSError as error:
            raise self._refusal(error) from error
        return active

    def _refusal(self, error: OSError) -> PenstockError:
        """Return the error for an append that wrote nothing. A lack of room or of file descriptors is temporary: the
        log goes on taking appends. Any other cause is final."""
        if error.errno in (*FULL_ERRORS, errno.EMFILE, errno.ENFILE):
            return storage_error(error, f"{self._path} cannot take an append")
        return self._fail(error)

    def _must_roll(self, active: ActiveSegment, size: int) -> bool:
        """Return True if a new segment must begin: the active one is full or old, or ends before the offset at which
        the log goes on after a truncation."""
        if active.segment.stop < self.next_offset:
            return True
        return active.segment.count > 0 and (not active.has_room(size) or self._is_old(active))

    def _is_old(self, active: ActiveSegment) -> bool:
        return now_ms(self._clock) - active.first_time_ms >= self._limits.segment_age_ms_max

    def _next_segment(self, size: int) -> ActiveSegment:
        wanted = self._next_segment_bytes(size)
        active = ActiveSegment.create(self._disk, self._path, self.next_offset, wanted, self._limits, needed=size)
        self._publish_segment(active.segment)
        return active

    def _next_segment_bytes(self, size: int) -> int:
        """Return the next segment's size: twice the last one's, within the limits, and enough for the next block."""
        before = self._view.segments[-1].size if self._view.segments else 0
        wanted = min(max(self._limits.segment_bytes_first, 2 * before), self._limits.segment_bytes_max)
        return max(wanted, size)

    def _roll(self, active: ActiveSegment) -> None:
        try:
            self._publish_segment(active.seal(sync=self._durability is Durability.OS))
        except OSError as error:
            raise self._fail(error) from error
        self._active = None
        self.on_change()

    def roll(self) -> None:
        """Seal the active segment now, if it holds records; the next append begins a new one."""
        self._check_open()
        if self._active is not None and self._active.segment.count:
            self._roll(self._active)

    # truncation and retention

    def truncate_before(self, offset: int) -> None:
        """Forget everything below `offset`; durable on return. Segments with no other messages are removed. Later reads
        of those offsets raise `OffsetOutOfRange`. Raises that too for an offset outside the log, and `StorageFailed`
        if the disk fails or the log is closed, since another log may lie at its path by now."""
        self._check_not_closed()
        if not self.first_offset <= offset <= self.next_offset:
            raise OffsetOutOfRange(
                f"cannot truncate before {offset}: the log holds [{self.first_offset}, {self.next_offset})",
                offset=offset,
            )
        offset = self._view.past_gap(offset)  # or the next opening would report the gap again
        try:
            write_log_start(self._disk, self._path, LogStart(offset, self._last_id))
            self._drop(sum(segment.sealed and segment.stop <= offset for segment in self._view.segments), offset)
        except OSError as error:
            raise storage_error(error, f"{self._path} cannot be truncated") from error

    def retain(self, policy: Retention, *, floor: int | None = None) -> int:
        """Drop the segments that have outlived `policy`, and return how many. Raises as `truncate_before` does.
        Messages from the offset `floor` on are not dropped, whatever the policy says."""
        view = self._view
        gone = self._outlived_count(view, policy, floor)
        if gone > 0:
            # A crash may have left segments that were already truncated.
            self.truncate_before(max(view.segments[gone].base, self.first_offset))
        return gone

    def retained_from(self, policy: Retention, *, floor: int | None = None) -> int | None:
        """Return the base of the first segment that `retain` would keep; None if it would drop none. For any thread."""
        view = self._view
        gone = self._outlived_count(view, policy, floor)
        return view.segments[gone].base if gone > 0 else None

    def _outlived_count(self, view: LogView, policy: Retention, floor: int | None) -> int:
        """Return how many of the oldest segments have outlived the policy."""
        try:
            return self._expired(view, policy, floor)
        except OSError as error:
            raise storage_error(error, f"{self._path} cannot be read") from error

    def _expired(self, view: LogView, policy: Retention, floor: int | None) -> int:
        sealed = [segment for segment in view.segments if segment.sealed]
        others = [segment for segment in view.segments if not segment.sealed]
        active = SegmentAge(size=sum(s.size for s in others), count=sum(s.count for s in others), last_time_ms=0)
        gone = expired_count(self._segment_ages(sealed), active, policy, now_ms=now_ms(self._clock), floor=floor)
        if gone == len(view.segments):
            gone -= 1  # the newest segment says where the log goes on
        return max(0, gone)

    def _segment_ages(self, sealed: Sequence[Segment]) -> list[SegmentAge]:
        aged, last = [], now_ms(self._clock)
        for segment in reversed(sealed):
            last = self._last_time_ms(segment, last)
            aged.append(SegmentAge(size=segment.size, count=segment.count, last_time_ms=last, stop=segment.stop))
        return aged[::-1]

    def _last_time_ms(self, segment: Segment, following_ms: int) -> int:
        """Return the time of the segment's last record, in Unix milliseconds; `following_ms`, which is that of the next
        segment, if it has no records; the current time if its index cannot be read."""
        header = IndexFile(self._disk, index_path(segment.path), segment.base).header()
        if header is None:
            return now_ms(self._clock)
        return unix_ms_of_ticks(ticks_of_id(header.last_id)) if header.count else following_ms

    def _drop(self, count: int, start: int) -> None:
        """Remove the `count` oldest segments and let the log begin at `start`; the newest segment always stays. The
        oldest goes first, so that a crash in between leaves no hole."""
        if count == len(self._view.segments):
            count -= 1
        gone, kept = self._view.segments[:count], self._view.segments[count:]
        self._view = LogView(kept, start)
        for segment in gone:
            self._disk.remove(segment.path)
            self._disk.remove(index_path(segment.path))
        self._disk.sync_directory(self._path)
        self.on_change()

    # opening and closing

    def _recover(self, recorded_end: LogEnd | None) -> None:
        self._disk.make_directory(self._path)
        names = self._disk.names(self._path)  # once: of a thousand logs, most have nothing but a segment
        if SPARE_NAME in names:
            self._disk.remove(self._path / SPARE_NAME)
        start = read_log_start(self._disk, self._path) if LOG_START_NAME in names else START_OF_EMPTY_LOG
        bases = sorted(base for base in map(base_of, names) if base is not None)
        if recorded_end is not None:
            self._ensure_first_segment(bases, max(start.offset, recorded_end.first_offset), recorded_end)
        self._last_id = start.last_id if recorded_end is None else max(start.last_id, recorded_end.last_id)
        segments = [self._open_sealed(base, following) for base, following in pairwise(bases)]
        self._view = LogView(tuple(segments), start.offset)
        if bases:
            self._open_newest(self._path / segment_name(bases[-1]), bases[-1])
        if recorded_end is not None and recorded_end.next_offset > self.next_offset:
            self._resume_at(recorded_end.next_offset)
        self._ids.advance(ticks_of_id(self._last_id))
        for gap in gaps_in(self._view):
            self._report_gap(gap)

    def _ensure_first_segment(self, bases: list[int], begins: int, recorded_end: LogEnd) -> None:
        """Create an empty first segment at offset `begins`, where the log begins, if the file with that offset is
        gone."""
        if begins < (bases[0] if bases else recorded_end.next_offset):
            put_empty_segment(self._disk, self._path, begins, sealed=True)
            bases.insert(0, begins)

    def _resume_at(self, offset: int) -> None:
        """Let the log go on at `offset`, because its newest records are gone. Their offsets count as damage, and are
        never used again."""
        if self._active is not None:
            self._roll(self._active)
        put_empty_segment(self._disk, self._path, offset, sealed=False)
        self._open_newest(self._path / segment_name(offset), offset)

    def _report_gap(self, gap: Damage) -> None:
        self.damages.append(gap)
        _LOG.error(
            "%s: offsets %s are missing: segment files are gone. The log goes on at %d; to have the messages back, stop"
            " the broker and put the files back, or restore them from a backup",
            self._path,
            gap.offsets,
            self.next_offset,
        )

    def _open_sealed(self, base: int, following: int) -> Segment:
        path = self._path / segment_name(base)
        header = IndexFile(self._disk, index_path(path), base).header()
        if header is None or header.state is not SegmentState.SEALED or not is_index_of(self._disk, path, header):
            scan = rebuild_sealed(self._disk, path, self._limits, count=following - base)
            self.damages += scan.damages
            header = scan.header(SegmentState.SEALED)
        if base + header.count > following:
            raise StorageFailed(
                f"{path} goes up to offset {base + header.count - 1}, and {segment_name(following)} begins before that:"
                " one of the two does not belong here. Neither was changed; move it away and open the log again."
            )
        self._last_id = max(self._last_id, header.last_id)
        return Segment(path=path, base=base, stop=base + header.count, size=header.size, sealed=True)

    def _open_newest(self, path: Path, base: int) -> None:
        header = IndexFile(self._disk, index_path(path), base).header()
        if header is not None and header.state is SegmentState.SEALED and is_index_of(self._disk, path, header):
            self._last_id = max(self._last_id, header.last_id)
            self._publish_segment(
                Segment(path=path, base=base, stop=base + header.count, size=header.size, sealed=True)
            )
            return
        self._active, damages = ActiveSegment.reopen(self._disk, path, header, self._limits)
        self.damages += damages
        self._last_id = max(self._last_id, self._active.last_id)
        self._publish_segment(self._active.segment)

    def close_files(self) -> None:
        """Close open files; the next append opens them again."""
        if self._active is not None:
            self._active.close_files()

    def close(self) -> None:
        """Mark the index as closed in order, so that the next opening need not scan. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._active is None:
            return
        if self._failure is None:
            try:
                self._active.close(sync=self._durability is Durability.OS)
            except OSError as error:
                _LOG.warning("%s: not closed in order (%s); the next opening recovers it", self._path, error)
        self._active.close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _split_results(drafts: Sequence[Draft], first: int, ids: IdRun, stamped: memoryview) -> list[AppendResult]:
    """Return the result of each block of a common append."""
    shares = []
    ticks, low, position = ids.first_ticks, ids.low, 0
    for draft in drafts:
        count, size = draft.count, len(draft.data)
        shares.append(AppendResult(Offset(first), count, ticks, low, stamped[position : position + size]))
        first += count
        ticks += count
        position += size
    return shares
