"""Steps over a payload in Avro's binary encoding: each goes past one value, or says why there is none.

What a payload claims (a count of 2^62, a string of a gigabyte) is held against the bytes that are there before anything
is done about it, and nothing is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.schema.problems import fragment

PAYLOAD_DEPTH_MAX: Final = 512
"""Records and unions within each other, one for each, and arrays and maps, two for each: calls within calls, of which
Python has a thousand. Readers recurse as well, and some take their process down."""

_BLOCK_DEPTH: Final = 2

WEIGHTLESS_ITEMS_MAX: Final = 65_536
"""Items of one payload's arrays that take no bytes (nulls, empty records). Nobody means a million, and five bytes can
say so; a reader would make them all."""

_TOO_SHORT: Final = "it ends before the value does"


class Refused(Exception):
    """It is not a value of its type."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.trail: list[str] = []
        """The steps from the root to where it was found, last first."""


class Walk:
    """One payload, and what its walk has to remember."""

    __slots__ = ("data", "size", "weightless")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.weightless = 0


Step = Callable[[Walk, int, int], int]
"""Past one value that begins at this place, this deep: where it ends. Raises `Refused`."""


def number(walk: Walk, at: int, bits: int) -> tuple[int, int]:
    """A zig-zag number of at most so many bits, and where it ends."""
    raw = shift = 0
    for byte in walk.data[at : at + (bits + 6) // 7]:
        raw |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            if raw >> bits:
                raise Refused(f"the number has more than {bits} bits")
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise Refused(_TOO_SHORT if at == walk.size else f"the number has more than {bits} bits")


def whole(bits: int) -> Step:
    def step(walk: Walk, at: int, _: int) -> int:
        return number(walk, at, bits)[1]

    return step


def boolean(walk: Walk, at: int, _: int) -> int:
    if at >= walk.size:
        raise Refused(_TOO_SHORT)
    if walk.data[at] > 1:
        raise Refused(f"a boolean is 0 or 1, not {walk.data[at]}")
    return at + 1


def taking(size: int) -> Step:
    """Any bytes, this many."""

    def step(walk: Walk, at: int, _: int) -> int:
        if size > walk.size - at:
            raise Refused(_TOO_SHORT)
        return at + size

    return step


def binary(walk: Walk, at: int, _: int) -> int:
    return _counted(walk, at)[1]


def string(walk: Walk, at: int, _: int) -> int:
    start, end = _counted(walk, at)
    _text(walk, start, end)
    return end


def _counted(walk: Walk, at: int) -> tuple[int, int]:
    """Where bytes begin and end that have their number before them."""
    count, at = number(walk, at, 64)
    if count < 0:
        raise Refused(f"the length is {count}")
    if count > walk.size - at:
        raise Refused(f"the length is {count}, and {walk.size - at} bytes are left")
    return at, at + count


def _text(walk: Walk, start: int, end: int) -> str:
    try:
        return walk.data[start:end].decode()
    except UnicodeDecodeError:
        raise Refused("it is not text in UTF-8") from None


def chosen(walk: Walk, at: int, choices: int, what: str) -> tuple[int, int]:
    """The index of a symbol or a branch, and where it ends."""
    index, at = number(walk, at, 32)
    if not 0 <= index < choices:
        raise Refused(f"there is no {what} {index}: there are {choices}")
    return index, at


def enum(symbols: int) -> Step:
    def step(walk: Walk, at: int, _: int) -> int:
        return chosen(walk, at, symbols, "symbol")[1]

    return step


def union(branches: Sequence[Step | None]) -> Step:
    """A branch that is None takes no bytes."""

    def step(walk: Walk, at: int, depth: int) -> int:
        _check_depth(depth)
        index, at = chosen(walk, at, len(branches), "branch")
        branch = branches[index]
        return at if branch is None else branch(walk, at, depth + 1)

    return step


def record(fields: Sequence[tuple[str, Step]]) -> Step:
    """`fields` may still grow: a record can contain itself."""

    def step(walk: Walk, at: int, depth: int) -> int:
        _check_depth(depth)
        for name, field in fields:
            try:
                at = field(walk, at, depth + 1)
            except Refused as refused:
                refused.trail.append(name)
                raise
        return at

    return step


def array(item: Step | None) -> Step:
    """Items that are None take no bytes: they are counted, not visited."""

    def step(walk: Walk, at: int, depth: int) -> int:
        _check_depth(depth)
        first = 0
        while True:
            count, end, at = _block(walk, at)
            if not count:
                return at
            if item is None:
                _count_weightless(walk, count)
            else:
                at = _items(walk, at, depth, range(first, first + count), item)
            _check_end(at, end)
            first += count

    return step


def _items(walk: Walk, at: int, depth: int, indices: range, item: Step) -> int:
    for index in _affordable(walk, at, indices):
        try:
            at = item(walk, at, depth + _BLOCK_DEPTH)
        except Refused as refused:
            refused.trail.append(str(index))
            raise
    return at


def map_(value: Step | None) -> Step:
    def step(walk: Walk, at: int, depth: int) -> int:
        _check_depth(depth)
        while True:
            count, end, at = _block(walk, at)
            if not count:
                return at
            for _ in _affordable(walk, at, range(count)):
                at = _entry(walk, at, depth, value)
            _check_end(at, end)

    return step


def _entry(walk: Walk, at: int, depth: int, value: Step | None) -> int:
    start, at = _counted(walk, at)
    key = _text(walk, start, at)
    if value is None:
        return at
    try:
        return value(walk, at, depth + _BLOCK_DEPTH)
    except Refused as refused:
        refused.trail.append(fragment(key))
        raise


def _block(walk: Walk, at: int) -> tuple[int, int | None, int]:
    """How many items a block has (none: it was the last), where it says it ends, and where its items begin."""
    count, at = number(walk, at, 64)
    if count >= 0:
        return count, None, at
    size, at = number(walk, at, 64)
    if not 0 <= size <= walk.size - at:
        raise Refused(f"a block says it has {size} bytes, and {walk.size - at} are left")
    return -count, at + size, at


def _check_end(at: int, end: int | None) -> None:
    if end is not None and at != end:
        raise Refused(f"a block ends {abs(end - at)} bytes {'before' if at < end else 'after'} it says it does")


def _affordable(walk: Walk, at: int, indices: range) -> range:
    """Every item takes a byte at least."""
    if len(indices) > walk.size - at:
        raise Refused(f"a block has {len(indices)} items, and {walk.size - at} bytes are left")
    return indices


def _count_weightless(walk: Walk, count: int) -> None:
    walk.weightless += count
    if walk.weightless > WEIGHTLESS_ITEMS_MAX:
        raise Refused(f"it has more than {WEIGHTLESS_ITEMS_MAX} items that take no bytes")


def _check_depth(depth: int) -> None:
    if depth >= PAYLOAD_DEPTH_MAX:
        raise Refused(f"values are nested more than {PAYLOAD_DEPTH_MAX} deep")
