"""Gaps: offsets that a log has given and does not hold any more, because files of it are gone.

A gap shows in the files, so that whoever reads them is told of it as of any other damage: the segments on its two sides
do not meet. At the ends of a log, where there is no neighbour, an empty segment stands in for one. Files that are put
back fill the gap.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from penstock.core.offsets import OffsetRange
from penstock.record.hashing import StreamHash
from penstock.storage.base.disk import Disk, opened
from penstock.storage.log import index as indexes
from penstock.storage.log.index import IndexHeader, SegmentState
from penstock.storage.log.log_view import MISSING, LogView
from penstock.storage.log.recovery import NONE_LISTED
from penstock.storage.log.segment import Damage, index_path, segment_name


def gaps_in(view: LogView) -> list[Damage]:
    """What is missing between the segments of a log, from where it begins."""
    edges = [(max(left.stop, view.start), right.base) for left, right in pairwise(view.segments)]
    return [Damage(start, OffsetRange.of(start, stop), 0, 0, MISSING) for start, stop in edges if start < stop]


def put_empty_segment(disk: Disk, folder: Path, base: int, *, sealed: bool) -> None:
    """A segment without records where a log begins or goes on. Durable on return; it takes no room."""
    path = folder / segment_name(base)
    state, digest = (SegmentState.SEALED, StreamHash().digest()) if sealed else (SegmentState.CLOSED, 0)
    indexes.rewrite_index(disk, index_path(path), IndexHeader(state=state, base=base, hash=digest), NONE_LISTED)
    with opened(disk, path, write=True, create=True) as file:
        file.sync()
    disk.sync_directory(folder)
