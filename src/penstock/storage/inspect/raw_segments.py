"""Raw segments: any file in the bare record format, whoever wrote it. Their messages are any bytes, and the key of
their checksums may be another than ours."""

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
"""Nothing is wrong where reading stops for one of these."""
_REACH_BYTES: Final = 4096
"""Read first behind a bad record, and then twice as much each time: others may follow it."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record, as it lies there."""

    number: int
    """In the file, damaged ones counted."""
    id: bytes
    type: bytes
    message: bytes


def raw_records(file: File, size: int, *, key: bytes | None = None) -> Iterator[RawRecord | str]:
    """The good records of a file, and in between a sentence for what is not one."""
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
    """Blocks of any file in the record format, and what stopped each. A bad record is stepped over if its length
    leads to a good one or to the end; otherwise reading ends there. `key`: of the checksums, if it is not ours."""
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
    """What holds under another key: our kernels know but one."""
    for row in range(len(block)):
        start, end = int(block.columns[row, at.START]), int(block.columns[row, at.END])
        body = end - at.CHECKSUM_BYTES
        if keyed_hash64(block.data[start:body], key) != int.from_bytes(block.data[body:end].tobytes()):
            return block.select(0, row), ScanStop(position + start, at.BAD_CHECKSUM)
    return block, stop


def _past(file: File, position: int, size: int, key: bytes | None) -> int:
    """Where the record behind a bad one begins, if its length can be believed; else the end of the file."""
    end = position + record_bytes(read_all(file, position, at.HEAD_BYTES + 255))
    if end >= size:
        return size
    block, stop = _read(file, end, size, key=key, bytes_max=_REACH_BYTES, rows_max=1)
    return end if len(block) or stop.reason == at.UNUSED else size
