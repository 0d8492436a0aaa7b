"""The follower of topics: decides for a stream which offsets to read next, and checks that its logs were not
replaced."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.spark.scan.slice_reader import READ_ON, DataLoss, LostRange, raise_loss
from penstock.spark.scan.slices import ByteRuler, open_data, view_within
from penstock.spark.source.batch_ranges import OffsetSpan, check_partitions_exist, resolve_bound
from penstock.spark.source.offsets import Offsets, PartitionKey, StreamPosition
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.topic_selection import PartitionLog, TopicSelection

K = TypeVar("K")


def split_fairly(wants: Mapping[K, int], bound: int, *, turn: int = 0) -> dict[K, int]:
    """Divide `bound` among the keys: small wants are met in full, and the others share the rest equally.

    If the bound is enough, every want is met. Otherwise the shares add up to the bound. Where the rest cannot be
    divided equally, some keys get one more than others, in order from the key at place `turn`; a caller that changes
    `turn` from batch to batch favours no key. The same arguments always give the same shares.
    """
    shares = dict.fromkeys(wants, 0)
    left = min(bound, sum(wants.values()))
    waiting = sorted((key for key in wants if wants[key] > 0), key=wants.__getitem__)
    while waiting and wants[waiting[0]] <= left // len(waiting):
        key = waiting.pop(0)
        shares[key] = wants[key]
        left -= wants[key]
    in_order = [key for key in wants if key in waiting]
    for place, key in enumerate(in_order):
        each, over = divmod(left, len(in_order))
        shares[key] = each + ((place - turn) % len(in_order) < over)
    return shares


_LOG: Final = logging.getLogger(__name__)
_SEARCH_SECONDS: Final = 1.0
"""Seconds between searches for new partitions and topics; messages in known ones are seen at every trigger."""
_TOLERANCE: Final = 16
"""The tolerance of a limit on bytes: a partition's part of a batch may miss its size by one part in so many."""


class TopicFollower:
    def __init__(self, options: ReadOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._selection = TopicSelection(options.topics, options.pattern)
        self._clock = clock
        self._logs: dict[PartitionKey, PartitionLog] = {}
        self._searched_at: float | None = None
        self._target: dict[PartitionKey, int] | None = None
        self._last_latest: Offsets | None = None
        self._reported_lost: set[PartitionKey] = set()

    # ---- the calls of Spark

    def initial(self) -> Offsets:
        """Return the offsets at which a new query begins.

        Raises `TopicNotSupported` for a named topic that does not exist. Raises `InvalidRequest` if the option
        `startingOffsets` names a partition that is not read, or an offset behind the end of its log. Raises `DataLoss`
        if it names an offset that the log does not hold any more, unless `failOnDataLoss` is false.
        """
        logs = self._find_logs(missing_ok=False)
        bounds = self._options.starting
        check_partitions_exist("startingOffsets", bounds, logs)
        positions = {}
        for key, log in logs.items():
            first, following = log.offset_range()
            offset = self._clamped_start(
                key, resolve_bound(bounds, log, first, following, missing=first), first, following
            )
            positions[key] = StreamPosition(offset, log.id_at(offset - 1), since=offset)
        return Offsets(positions)

    def freeze(self) -> None:
        """Record where the logs end now. Later batches read nothing behind these ends, and no partition that is new."""
        self._target = {key: log.offset_range()[1] for key, log in self._find_logs().items()}

    def latest(self, start: Offsets, *, rows_max: int | None = None, bytes_max: int | None = None) -> Offsets:
        """Return the offsets at which the batch that begins at `start` ends; equal to `start` if there is nothing to
        read.

        `rows_max` and `bytes_max` limit the whole batch. Raises `DataLoss` if a topic was deleted or created anew, or
        if its next offset is not in the log any more, unless `failOnDataLoss` is false.
        """
        edges = self._log_ranges()
        begin = {key: self._resume_position(key, position, edges.get(key)) for key, position in start.positions.items()}
        for key, (first, following) in edges.items():
            if key not in begin and first < following:  # a new log, and not empty
                begin[key] = StreamPosition(first, since=first)
        there = {key: (position.offset, edges[key][1]) for key, position in begin.items() if key in edges}
        ends = self._batch_ends(_not_empty(there), rows_max, bytes_max)
        self._last_latest = Offsets(
            {key: self._position_at(key, position, ends.get(key)) for key, position in begin.items()}
        )
        return self._last_latest

    def newest(self) -> Offsets:
        """Return the offsets at which the logs end now. Spark reports them, to show how far the query is behind."""
        return Offsets({key: StreamPosition(log.offset_range()[1]) for key, log in self._find_logs().items()})

    def ranges(self, start: Offsets, end: Offsets) -> dict[PartitionKey, OffsetSpan]:
        """Return the offsets of the batch from `start` to `end`, as `(start, stop)` by partition, without those
        filtered out.

        The result for a given `end` is the same whenever Spark repeats the batch. A partition begins at its position in
        `start` if that is of the same log, and otherwise where the stream began with the log, which `end` records
        (`since`). This is needed since Spark does not store the start of a query's first batch: after a restart it
        calls `initial` again, which may then give other offsets.

        Raises `DataLoss` if a topic was deleted or created anew before the batch was repeated, unless `failOnDataLoss`
        is false; then the partition is left out.
        """
        found = {}
        for key, position in end.positions.items():
            begin = _batch_start(start.positions.get(key), position)
            if begin >= position.offset:
                continue
            if end != self._last_latest and not self._is_same(self._log(key), position):
                self._report_lost_log(
                    key, position, "the topic was deleted, or made anew, before this batch was read again"
                )
                continue
            if self._options.where.matches_partition(*key):
                found[key] = self._options.where.offset.clip(begin, position.offset)
        return found

    # ---- finding logs

    def _find_logs(self, *, missing_ok: bool = True) -> dict[PartitionKey, PartitionLog]:
        now = self._clock()
        if self._searched_at is None or now - self._searched_at >= _SEARCH_SECONDS:
            data = open_data(self._options.location)
            found = self._selection.find_logs(data, missing_ok=missing_ok)
            known = self._logs
            self._logs = {key: known.get(key) or PartitionLog(data, key, path) for key, path in found.items()}
            self._searched_at = now
        return self._logs

    def _is_selected(self, key: PartitionKey) -> bool:
        """Return whether the stream still selects this topic. If it does not, its position is kept, and it does not
        count as lost."""
        return self._selection.selects(TopicName.parse(key[0]))

    def _log(self, key: PartitionKey) -> PartitionLog | None:
        """Return the log of a partition; None if there is none.

        Topics that are no longer selected are found, too: a repeated batch has to read them as it did the first time.
        """
        found = self._find_logs().get(key)
        if found is not None or self._is_selected(key):
            return found
        data = open_data(self._options.location)
        path = TopicSelection((TopicName.parse(key[0]),)).find_logs(data, missing_ok=True).get(key)
        return None if path is None else PartitionLog(data, key, path)

    def _log_ranges(self) -> dict[PartitionKey, OffsetSpan]:
        """Return the first and the next offset of every log. After `freeze`, no end is behind the recorded one."""
        found = {key: log.offset_range() for key, log in self._find_logs().items()}
        if self._target is None:
            return found
        target = self._target
        return {key: (first, min(end, target[key])) for key, (first, end) in found.items() if key in target}

    def _clamped_start(self, key: PartitionKey, offset: int, first: int, following: int) -> int:
        if offset > following:
            topic, partition = key
            raise InvalidRequest(
                f"startingOffsets has {offset} for {topic} partition {partition}: the log holds [{first}, {following})",
                option="startingOffsets",
            )
        if offset < first:
            self._report_loss(LostRange(*key, offset, first, f"the log begins with offset {first} now"))
        return max(offset, first)

    # ---- comparing logs

    def _resume_position(self, key: PartitionKey, position: StreamPosition, edges: OffsetSpan | None) -> StreamPosition:
        """Return the position from which to read on, for a partition that was read up to `position`.

        `edges` are the first and the next offset of its log now; None if the log is not there. The result is `position`
        itself, or the beginning of the log if that is another one now. Raises `DataLoss` if the log is gone, is another
        one, or does not hold the position any more, unless `failOnDataLoss` is false.
        """
        if edges is None:
            if key not in self._reported_lost and self._is_selected(key):
                self._report_lost_log(key, position, "its directory is not there any more: was the topic deleted?")
            return position
        self._reported_lost.discard(key)
        first, following = edges
        log = self._logs[key]
        if following < position.offset or (following > position.offset and not self._is_same(log, position)):
            self._report_lost_log(
                key, position, f"it holds [{first}, {following}) of another log: was the topic made anew?"
            )
            return StreamPosition(first, since=first, life=position.life + 1)
        if first > position.offset and self._options.fail_on_data_loss:
            raise_loss(LostRange(*key, position.offset, first, f"the log begins with offset {first} now"))
        return position

    def _is_same(self, log: PartitionLog | None, position: StreamPosition) -> bool:
        """Return whether a log is the one that was read up to `position`: the record before it has the id that was
        noted.

        True if no id was noted, or if that record cannot be read any more. False without a log.
        """
        if log is None:
            return False
        return position.after is None or log.id_at(position.offset - 1) in (None, position.after)

    def _report_lost_log(self, key: PartitionKey, position: StreamPosition, what: str) -> None:
        topic, partition = key
        said = f"{topic} partition {partition} was read up to offset {position.offset}, and cannot be read on: {what}"
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{said}. To begin with what is there, {READ_ON}, or use a new checkpoint",
                topic=topic,
                partition=partition,
                offset=position.offset,
            )
        self._reported_lost.add(key)
        _LOG.warning("%s (failOnDataLoss is false)", said)

    def _report_loss(self, loss: LostRange) -> None:
        if self._options.fail_on_data_loss:
            raise_loss(loss)
        _LOG.warning("%s (failOnDataLoss is false)", loss)

    # ---- admission

    def _batch_ends(
        self, there: Mapping[PartitionKey, OffsetSpan], rows_max: int | None, bytes_max: int | None
    ) -> dict[PartitionKey, int]:
        """Return the offset at which the batch ends in each partition; partitions without a share of the limit are left
        out.

        `there` has the offsets that can be read, none of them empty. None stands for no limit.
        """
        turn = sum(start for start, _ in there.values())
        if rows_max is not None:
            shares = split_fairly({key: stop - start for key, (start, stop) in there.items()}, rows_max, turn=turn)
            there = _not_empty({key: (start, start + shares[key]) for key, (start, _) in there.items()})
        if bytes_max is not None:
            return self._batch_ends_by_bytes(there, bytes_max, turn)
        return {key: stop for key, (_, stop) in there.items()}

    def _batch_ends_by_bytes(
        self, there: Mapping[PartitionKey, OffsetSpan], bytes_max: int, turn: int
    ) -> dict[PartitionKey, int]:
        """Return the ends for a limit on bytes. A partition with a share gets at least one message, so the sum may
        exceed it."""
        data = open_data(self._options.location)
        rulers = {key: ByteRuler(data.disk, view_within(data, *key, *span)) for key, span in there.items()}
        begins = {key: rulers[key].position(start) for key, (start, _) in there.items()}
        sizes = {key: max(0, rulers[key].position(stop) - begins[key]) for key, (_, stop) in there.items()}
        shares = split_fairly(sizes, bytes_max, turn=turn)
        ends = {}
        for key, (start, stop) in there.items():
            if shares[key] >= sizes[key]:
                ends[key] = stop
            elif shares[key]:
                place, near = begins[key] + shares[key], shares[key] // _TOLERANCE
                ends[key] = rulers[key].offset_at(place, start, stop, tolerance=near)
        return ends

    def _position_at(self, key: PartitionKey, position: StreamPosition, end: int | None) -> StreamPosition:
        if end is None or end <= position.offset:
            return position
        return StreamPosition(end, self._logs[key].id_at(end - 1), position.since, position.life)


def _batch_start(before: StreamPosition | None, position: StreamPosition) -> int:
    """Return the offset at which the batch that ends with `position` begins, in one partition.

    That is the offset of `before`, the position at the batch's start, if it is of the same log: then it has the same
    `since` and `life`. Otherwise the batch begins where the stream began with the log.
    """
    if before is None or (before.since, before.life) != (position.since, position.life):
        return position.since
    return before.offset


def _not_empty(ranges: Mapping[PartitionKey, OffsetSpan]) -> dict[PartitionKey, OffsetSpan]:
    return {key: (start, stop) for key, (start, stop) in ranges.items() if start < stop}
