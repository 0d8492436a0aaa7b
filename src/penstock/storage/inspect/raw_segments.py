"""Raw segments: any file in the bare record format. Its messages are arbitrary bytes, and its checksums may have
another key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from penstock.record import layout as at
from penstock.record.block import START_OF_LOG, Block, Predecessor, ScanStop
from penstock.record.hashing import keyed_hash64
from penstock.storage.base.disk import File, read_all
from penstock.storage.log.segment import READ_BYTES, read_block, record_bytes

GOOD_STOPS: Final = (at.AT_END, at.UNUSED, at.MORE)
"""Reasons to stop reading that are no fault of the file."""
_REACH_BYTES: Final = 4096
"""The size of the first read behind a bad record. More bad records may follow, so it is small; each further read is
twice as large."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record as it lies in the file."""

    number: int
    """The number of the record in the file, from 0; damaged records are counted too."""
    id: bytes
    type: bytes
    message: bytes


def raw_records(file: File, size: int, *, key: bytes | None = None) -> Iterator[RawRecord | str]:
    """Yield the good records of a file, and a sentence for each bad one. `key` is the checksum key, if not Penstock's
    own."""
    number = 0
    for block, stop in raw_blocks(file, size, key=key):
        yield from (_record(block, row, number + row) for row in range(len(block)))
        number += len(block)
        if stop.reason not in GOOD_STOPS:
            yield f"position {stop.position}: {stop}"
            number += 1


def _record(block: Block, row: int, number: int) -> RawRecord:
    start = int(block.columns[row, at.START]) + at.TYPE_AT
    type_ = block.data[start : start + int(block.columns[row, at.TYPE_BYTES])].tobytes()
    return RawRecord(number, block.id(row), type_, bytes(block.payload(row)))


def raw_blocks(
    file: File, size: int, *, envelopes: bool = False, key: bytes | None = None
) -> Iterator[tuple[Block, ScanStop]]:
    """Yield the good records of a file in the record format, in blocks, each with the reason why it ends.

    A bad record is stepped over if a good record, unused space or the end of the file follows where its length says;
    otherwise reading ends there. With `envelopes`, each message must be a Penstock envelope. `key` is the checksum key,
    if it is not Penstock's own.
    """
    position, after, reach = 0, START_OF_LOG, READ_BYTES
    while position < size:
        block, stop = _read(file, position, size, after=after, envelopes=envelopes, key=key, bytes_max=reach)
        after = replace(block.last, next_offset=-1) if len(block) else after
        yield block, stop
        position, reach = stop.position, min(2 * reach, READ_BYTES)
        if stop.reason in (at.MORE, at.AT_END):
            continue
        position = _past(file, position, size, key) if stop.reason != at.UNUSED else size
        reach = _REACH_BYTES


def _read(
    file: File,
    position: int,
    size: int,
    *,
    after: Predecessor = START_OF_LOG,
    envelopes: bool = False,
    key: bytes | None = None,
    bytes_max: int,
    rows_max: int | None = None,
) -> tuple[Block, ScanStop]:
    block, stop = read_block(
        file,
        position,
        size,
        after=after,
        bytes_max=bytes_max,
        verify=key is None,
        envelopes=envelopes,
        rows_max=rows_max,
    )
    return (block, stop) if key is None else _checked(block, stop, position, key)


def _checked(block: Block, stop: ScanStop, position: int, key: bytes) -> tuple[Block, ScanStop]:
    """Return the block up to its first wrong checksum under `key`, and where and why it ends. The kernels only know
    Penstock's own key."""
    for row in range(len(block)):
        start, end = int(block.columns[row, at.START]), int(block.columns[row, at.END])
        body = end - at.CHECKSUM_BYTES
        if keyed_hash64(block.data[start:body], key) != int.from_bytes(block.data[body:end].tobytes()):
            return block.select(0, row), ScanStop(position + start, at.BAD_CHECKSUM)
    return block, stop


def _past(file: File, position: int, size: int, key: bytes | None) -> int:
    """Return where the record behind a bad one begins, if something good follows there; otherwise the end of the
    file."""
    end = position + record_bytes(read_all(file, position, at.HEAD_BYTES + 255))
    if end >= size:
        return size
    block, stop = _read(file, end, size, key=key, bytes_max=_REACH_BYTES, rows_max=1)
    return end if len(block) or stop.reason == at.UNUSED else size
