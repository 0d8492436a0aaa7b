"""Storage, the catalog's write-ahead log: does it end in a torn transaction, as after a kill, or is it damaged?

SQLite reads this log up to the first frame that does not verify and forgets the rest without a word. After a kill
that is right: the rest is the one transaction that was being written. After a flipped bit it is a loss of all that was
confirmed since. Bytes in, a number out; no files and no SQL come in here.
The format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import dropwhile
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">8I")  # magic, version, page size, sequence, two salts, two sums
_FRAME: Final = struct.Struct(">6I")  # page, pages after a commit (else 0), two salts, two sums
_MAGIC: Final = 0x377F0682  # the last bit says in which byte order the sums were made
_WORD: Final = 0xFFFF_FFFF

_Pair = tuple[int, int]


class _Frame(NamedTuple):
    salts: _Pair
    commits: bool
    verifies: bool


def commits_beyond_damage(log: bytes, *, page_bytes: int) -> int:
    """How many transactions were finished at or after the first frame that does not verify.

    One is a torn write: every commit is synced before the next begins, so a kill leaves no more than one behind.
    """
    if len(log) < _HEADER.size + _FRAME.size + page_bytes:
        return 0
    frames = list(_frames(log, page_bytes))
    header = _HEADER.unpack_from(log)
    # Frames with other salts are what the log held before it was begun anew: they are in the file by now.
    salts = (header[4], header[5]) if _verifies(log) else frames[0].salts
    beyond = dropwhile(lambda frame: frame.verifies, frames)
    return sum(frame.commits for frame in beyond if frame.salts == salts)


def _frames(log: bytes, page_bytes: int) -> Iterator[_Frame]:
    """Each frame verifies only if all before it do."""
    order = ">" if log[3:4] == b"\x83" else "<"
    sums = _sums(log[:24], order)
    intact = _verifies(log)
    for start in range(_HEADER.size, len(log) - _FRAME.size - page_bytes + 1, _FRAME.size + page_bytes):
        _, pages, salt_1, salt_2, *stored = _FRAME.unpack_from(log, start)
        intact = intact and log[start + 8 : start + 16] == log[16:24]
        if intact:  # the costly part, and of no use once the chain is broken
            sums = _sums(log[start : start + 8], order, sums)
            sums = _sums(log[start + _FRAME.size : start + _FRAME.size + page_bytes], order, sums)
            intact = sums == tuple(stored)
        yield _Frame(salts=(salt_1, salt_2), commits=pages != 0, verifies=intact)


def _verifies(log: bytes) -> bool:
    """The header is one that SQLite would accept."""
    magic, *_, sum_1, sum_2 = _HEADER.unpack_from(log)
    return magic & ~1 == _MAGIC and _sums(log[:24], ">" if magic & 1 else "<") == (sum_1, sum_2)


def _sums(data: bytes, order: str, sums: _Pair = (0, 0)) -> _Pair:
    one, two = sums
    for first, second in struct.iter_unpack(f"{order}2I", data):
        one = (one + first + two) & _WORD
        two = (two + second + one) & _WORD
    return one, two
