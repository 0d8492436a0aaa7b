"""The line reader: it reads messages from a stream of bytes and gathers them into groups as they arrive. The limits
bound the memory that it uses."""

from __future__ import annotations

import select
from collections.abc import Iterator
from dataclasses import dataclass
from io import UnsupportedOperation
from typing import BinaryIO, Final

from penstock.core.errors import PayloadTooLarge
from penstock.core.limits import MIB

_READ_BYTES: Final = 1 * MIB
_GROUP_BYTES: Final = 1 * MIB
"""The size up to which a group gathers lines that have arrived. Syncing a group of this size takes longer than building
it, so larger ones would gain nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLimits:
    """The largest sizes of a block and of a message."""

    block_bytes: int
    record_bytes: int
    """The size of a record without its payload. Type, key and attributes are the same for all records."""
    payload_bytes: int

    def __post_init__(self) -> None:
        if self.line_bytes < 0:
            raise PayloadTooLarge(
                f"type, key and attributes take {self.record_bytes} bytes with the rest of a record: a block of this"
                f" topic has at most {self.block_bytes}"
            )

    @property
    def line_bytes(self) -> int:
        return min(self.payload_bytes, self.block_bytes - self.record_bytes)

    def check(self, payload: bytes, what: str) -> None:
        if len(payload) > self.line_bytes:
            raise PayloadTooLarge(f"{what} is too large: a message has at most {self.line_bytes} bytes")


def whole_input(source: BinaryIO, limits: MessageLimits) -> Iterator[list[bytes]]:
    """Yield one group with one message: the whole input. Raises `PayloadTooLarge`."""
    payload = source.read(limits.line_bytes + 1)
    limits.check(payload, "the input")
    yield [payload]


def line_groups(source: BinaryIO, limits: MessageLimits, *, count_max: int) -> Iterator[list[bytes]]:
    """Yield lines in groups; each fits into a block and has at most `count_max` lines. A group ends early when no more
    input has arrived, so that a slow stream is stored as it comes. Raises `PayloadTooLarge` with the number of the
    line."""
    group: list[bytes] = []
    size, number = 0, 0
    for line in _lines(source, limits.line_bytes):
        if group and (line is None or not _fits(group, size, line, limits, count_max)):
            yield group
            group, size = [], 0
        if line is None:
            continue
        number += 1
        limits.check(line, f"line {number}")
        group.append(line)
        size += limits.record_bytes + len(line)
    if group:
        yield group


def _fits(group: list[bytes], size: int, line: bytes, limits: MessageLimits, count_max: int) -> bool:
    grown = size + limits.record_bytes + len(line)
    return len(group) < count_max and grown <= min(_GROUP_BYTES, limits.block_bytes) and len(line) <= limits.line_bytes


def _lines(source: BinaryIO, line_bytes: int) -> Iterator[bytes | None]:
    """Yield each line without its line end, and None whenever no more input has arrived yet.

    Of a line that is longer than `line_bytes` only a part is read and yielded, which is too long too.
    """
    rest = b""
    while data := source.read1(_READ_BYTES):  # type: ignore[attr-defined]  # of every buffered reader
        *complete, rest = (rest + data).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in complete)
        if len(rest) > line_bytes + 1:
            break
        if not _has_input(source):
            yield None
    if rest:
        yield rest


def _has_input(source: BinaryIO) -> bool:
    """Return True if reading would not block."""
    try:
        return bool(select.select([source], [], [], 0)[0])
    except (UnsupportedOperation, ValueError):  # a buffer in memory
        return True
