"""Who has written what: the last request of every producer, so that a retried one is recognised after a restart.

The catalog keeps a checkpoint now and then; everything after it is read from the log itself.
"""

from __future__ import annotations

import numpy as np

from penstock.core.offsets import Offset
from penstock.record import layout as at
from penstock.record.block import Block
from penstock.storage.log import Log
from penstock.storage.topics import ProducerCheckpoint, ProducerMark


def derive(log: Log, checkpoint: ProducerCheckpoint | None = None) -> ProducerCheckpoint:
    """The last request of every producer up to the end of the log, starting from what `checkpoint` knows.

    A checkpoint that speaks of offsets the log no longer or not yet has is left aside.
    """
    marks: dict[int, ProducerMark] = {}
    offset = int(log.first_offset)
    if checkpoint is not None and log.first_offset <= checkpoint.next_offset <= log.next_offset:
        marks.update(checkpoint.last)
        offset = int(checkpoint.next_offset)
    while offset < log.next_offset:
        chunk = log.read(offset)
        marks.update(_marks(chunk.block))
        if chunk.next_offset == offset:
            break
        offset = int(chunk.next_offset)
    return ProducerCheckpoint(next_offset=Offset(offset), last=marks)


def _marks(block: Block) -> dict[int, ProducerMark]:
    """The last row of every producer that has a number. Records of producer 0 are nobody's."""
    newest_first = block.columns[::-1]
    producers, rows = np.unique(newest_first[:, at.PRODUCER_ID], return_index=True)
    return {
        int(producer): ProducerMark(
            request_id=int(newest_first[row, at.REQUEST_ID]), offset=int(newest_first[row, at.OFFSET])
        )
        for producer, row in zip(producers, rows, strict=True)
        if producer > 0
    }
