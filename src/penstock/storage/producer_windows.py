"""Producer windows: the last requests of every producer, so that a retry is recognised after a restart.

The catalog keeps a checkpoint of them. It is saved from time to time, and before retention drops records that it does
not cover. Later requests are read from the log itself. In memory they are tables of runs: one row for each run of
consecutive requests, in the order of offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from penstock.core.offsets import Offset
from penstock.record import layout as at
from penstock.record.block import Block, Longs
from penstock.storage.catalog.topics import ProducerCheckpoint, RequestRun
from penstock.storage.log.log import Log

WINDOW: Final = 10_000
"""Messages remembered of one producer. Clients learn this number, and never have more messages without an answer."""

PRODUCERS_MAX: Final = 10_000
"""Producers remembered of one partition: those that wrote last. A forgotten producer that returns is remembered
again."""

RUNS_MAX: Final = 1_000_000
"""Runs remembered of one partition, the newest ones: a checkpoint of some 25 MB. There are more only where a hundred
producers or more take turns message by message."""

_ROWS_GATHERED: Final = 1 << 16
"""Runs that may wait before they are merged into one table; a few MB."""

_PRODUCER, _REQUEST, _OFFSET, _COUNT = range(4)


def derive_checkpoint(
    log: Log, checkpoint: ProducerCheckpoint | None = None, *, stop: int | None = None
) -> ProducerCheckpoint:
    """Return the last requests of every producer, up to the end of the log or to the offset `stop`, and starting from
    `checkpoint`.

    Requests stay remembered after retention has dropped their messages. A checkpoint that is ahead of the log is
    ignored. Raises `OffsetOutOfRange` if the log is truncated past the offset being read.
    """
    offset = int(log.first_offset)
    tables = [_table([])]
    if checkpoint is not None and checkpoint.next_offset <= log.next_offset:
        offset = max(offset, int(checkpoint.next_offset))
        tables = [_known(checkpoint)]
    while offset < (end := int(log.next_offset) if stop is None else min(stop, int(log.next_offset))):
        chunk = log.read(offset)
        tables = _gathered([*tables, _written(_before(chunk.block, end))])
        if chunk.next_offset == offset:
            break
        offset = min(end, int(chunk.next_offset))
    return ProducerCheckpoint(next_offset=Offset(offset), runs=_by_producer(_recent(tables)))


def _before(block: Block, end: int) -> Block:
    return block.select(0, min(len(block), max(0, end - int(block.offsets.start)))) if len(block) else block


def _table(rows: Iterable[tuple[int, int, int, int]]) -> Longs:
    return np.array(list(rows), dtype=np.int64).reshape(-1, 4)


def _known(checkpoint: ProducerCheckpoint) -> Longs:
    table = _table((producer, *run) for producer, runs in checkpoint.runs.items() for run in runs)
    return table[np.argsort(table[:, _OFFSET])]


def _written(block: Block) -> Longs:
    """Return the runs of a block. Records without a producer id or a request id are left out."""
    table = np.ones((len(block), 4), dtype=np.int64)
    table[:, :_COUNT] = block.columns[:, [at.PRODUCER_ID, at.REQUEST_ID, at.OFFSET]]
    return _joined(table[(table[:, _PRODUCER] > 0) & (table[:, _REQUEST] > 0)])


def _joined(table: Longs) -> Longs:
    """Merge each row with the row before it if it continues that run."""
    before, after = table[:-1], table[1:]
    goes_on = (
        (after[:, _PRODUCER] == before[:, _PRODUCER])
        & (after[:, _REQUEST] == before[:, _REQUEST] + before[:, _COUNT])
        & (after[:, _OFFSET] == before[:, _OFFSET] + before[:, _COUNT])
    )
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(table)), dtype=bool), ~goes_on]))
    joined = table[starts]
    if len(joined):
        joined[:, _COUNT] = np.add.reduceat(table[:, _COUNT], starts)
    return joined


def _gathered(tables: list[Longs]) -> list[Longs]:
    """Merge the tables into one once the new ones hold more rows than the first. Merging seldom keeps the cost for each
    row low."""
    waiting = sum(map(len, tables[1:]))
    return [_recent(tables)] if waiting > max(len(tables[0]), _ROWS_GATHERED) else tables


def _recent(tables: list[Longs]) -> Longs:
    """Return the rows of all tables that are to be remembered, in the order of offsets."""
    table = _joined(np.concatenate(tables))
    table = table[np.argsort(table[:, _PRODUCER], kind="stable")]
    first, sizes = _groups(table)
    table = _within_window(table, first, sizes)
    if len(first) > PRODUCERS_MAX:
        last_written = table[first + sizes - 1, _OFFSET]
        oldest = np.partition(last_written, -PRODUCERS_MAX)[-PRODUCERS_MAX]
        table = table[np.repeat(last_written >= oldest, sizes)]
    table = table[table[:, _COUNT] > 0]
    return table[np.argsort(table[:, _OFFSET])][-RUNS_MAX:]


def _groups(table: Longs) -> tuple[Longs, Longs]:
    """Return, for a table sorted by producer, where the rows of each producer begin, and how many rows each has."""
    _, first, sizes = np.unique(table[:, _PRODUCER], return_index=True, return_counts=True)
    return first, sizes


def _within_window(table: Longs, first: Longs, sizes: Longs) -> Longs:
    """Cut each producer's runs to its last `WINDOW` messages; runs that are too old become empty."""
    counts = table[:, _COUNT]
    written = np.cumsum(counts)
    newer = np.repeat(written[first + sizes - 1], sizes) - written
    cut = np.clip(newer + counts - WINDOW, 0, counts)
    moved: Longs = table + np.stack([np.zeros_like(cut), cut, cut, -cut], axis=1)
    return moved


def _by_producer(table: Longs) -> dict[int, tuple[RequestRun, ...]]:
    table = table[np.argsort(table[:, _PRODUCER], kind="stable")]
    first, sizes = _groups(table)
    runs = [RequestRun(*row) for row in table[:, _REQUEST:].tolist()]
    starts = zip(table[first, _PRODUCER].tolist(), first.tolist(), sizes.tolist(), strict=True)
    return {producer: tuple(runs[start : start + size]) for producer, start, size in starts}
