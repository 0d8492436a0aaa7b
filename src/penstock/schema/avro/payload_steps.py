"""Steps over a payload in Avro's binary encoding: each skips one value, or raises the reason why there is none.

Claims of a payload (a count of 2^62, a string of a gigabyte) are checked against the bytes that exist before anything
else happens, and no value is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.schema.problems import fragment

PAYLOAD_DEPTH_MAX: Final = 512
"""Depth of nesting: one for each record and union, two for each array and map, because these are nested calls, of which
Python allows a thousand. Readers recurse as well, and some take their process down."""

_BLOCK_DEPTH: Final = 2

WEIGHTLESS_ITEMS_MAX: Final = 65_536
"""Array items of one payload that take no bytes (nulls, empty records). Five bytes can claim a million of them, which
no real payload has, and a reader would build them all."""

_TOO_SHORT: Final = "it ends before the value does"


class InvalidValue(Exception):
    """The bytes are not a value of the type."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.trail: list[str] = []
        """The path from the root to the fault, last step first."""


class Walk:
    """A payload, and the count of items without bytes that were met in it."""

    __slots__ = ("data", "size", "weightless")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.weightless = 0


ValueStep = Callable[[Walk, int, int], int]
"""A step over one value: called with the walk, the offset and the depth, it returns the end offset. Raises
`InvalidValue`."""


def read_number(walk: Walk, at: int, bits: int) -> tuple[int, int]:
    """Read the zig-zag number at the offset `at`; return it and the offset after it. Raises `InvalidValue` if it has
    more than `bits` bits or the payload ends before it does."""
    raw = shift = 0
    for byte in walk.data[at : at + (bits + 6) // 7]:
        raw |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            if raw >> bits:
                raise InvalidValue(f"the number has more than {bits} bits")
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise InvalidValue(_TOO_SHORT if at == walk.size else f"the number has more than {bits} bits")


def integer(bits: int) -> ValueStep:
    def step(walk: Walk, at: int, _: int) -> int:
        return read_number(walk, at, bits)[1]

    return step


def boolean(walk: Walk, at: int, _: int) -> int:
    if at >= walk.size:
        raise InvalidValue(_TOO_SHORT)
    if walk.data[at] > 1:
        raise InvalidValue(f"a boolean is 0 or 1, not {walk.data[at]}")
    return at + 1


def fixed_size(size: int) -> ValueStep:
    """Return a step over `size` bytes of any content."""

    def step(walk: Walk, at: int, _: int) -> int:
        if size > walk.size - at:
            raise InvalidValue(_TOO_SHORT)
        return at + size

    return step


def binary(walk: Walk, at: int, _: int) -> int:
    return _read_length(walk, at)[1]


def string(walk: Walk, at: int, _: int) -> int:
    start, end = _read_length(walk, at)
    _text(walk, start, end)
    return end


def _read_length(walk: Walk, at: int) -> tuple[int, int]:
    """Read the length at the offset `at`; return the begin and end offsets of the bytes that it announces. Raises
    `InvalidValue` if the payload has fewer bytes left."""
    count, at = read_number(walk, at, 64)
    if count < 0:
        raise InvalidValue(f"the length is {count}")
    if count > walk.size - at:
        raise InvalidValue(f"the length is {count}, and {walk.size - at} bytes are left")
    return at, at + count


def _text(walk: Walk, start: int, end: int) -> str:
    try:
        return walk.data[start:end].decode()
    except UnicodeDecodeError:
        raise InvalidValue("it is not text in UTF-8") from None


def read_index(walk: Walk, at: int, choices: int, what: str) -> tuple[int, int]:
    """Read the index of a symbol or a branch; return it and the offset after it. Raises `InvalidValue` unless it is
    less than `choices`. `what`: the word for it in the message."""
    index, at = read_number(walk, at, 32)
    if not 0 <= index < choices:
        raise InvalidValue(f"there is no {what} {index}: there are {choices}")
    return index, at


def enum(symbols: int) -> ValueStep:
    def step(walk: Walk, at: int, _: int) -> int:
        return read_index(walk, at, symbols, "symbol")[1]

    return step


def union(branches: Sequence[ValueStep | None]) -> ValueStep:
    """Return a step over a union; a branch that is None takes no bytes."""

    def step(walk: Walk, at: int, depth: int) -> int:
        _check_depth(depth)
        index, at = read_index(walk, at, len(branches), "branch")
        branch = branches[index]
        return at if branch is None else branch(walk, at, depth + 1)

    return step


def record(fields: Sequence[tuple[str, ValueStep]]) -> ValueStep:
    """Return a step over a record. `fields` may still grow: a record can contain itself."""

    def step(walk: Walk, at: int, depth: int) -> int:
        _check_depth(depth)
        for name, field in fields:
            try:
                at = field(walk, at, depth + 1)
            except InvalidValue as invalid:
                invalid.trail.append(name)
                raise
        return at

    return step


def array(item: ValueStep | None) -> ValueStep:
    """Return a step over an array. If `item` is None, the items take no bytes: they are counted but not visited."""

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


def _items(walk: Walk, at: int, depth: int, indices: range, item: ValueStep) -> int:
    for index in _check_count(walk, at, indices):
        try:
            at = item(walk, at, depth + _BLOCK_DEPTH)
        except InvalidValue as invalid:
            invalid.trail.append(str(index))
            raise
    return at


def map_(value: ValueStep | None) -> ValueStep:
    def step(walk: Walk, at: int, depth: int) -> int:
        _check_depth(depth)
        while True:
            count, end, at = _block(walk, at)
            if not count:
                return at
            for _ in _check_count(walk, at, range(count)):
                at = _entry(walk, at, depth, value)
            _check_end(at, end)

    return step


def _entry(walk: Walk, at: int, depth: int, value: ValueStep | None) -> int:
    start, at = _read_length(walk, at)
    key = _text(walk, start, at)
    if value is None:
        return at
    try:
        return value(walk, at, depth + _BLOCK_DEPTH)
    except InvalidValue as invalid:
        invalid.trail.append(fragment(key))
        raise


def _block(walk: Walk, at: int) -> tuple[int, int | None, int]:
    """Read the head of a block of an array or a map. Return its number of items, which is 0 after the last block; the
    end offset that it states, or None if it states none; and the offset of its first item."""
    count, at = read_number(walk, at, 64)
    if count >= 0:
        return count, None, at
    size, at = read_number(walk, at, 64)
    if not 0 <= size <= walk.size - at:
        raise InvalidValue(f"a block says it has {size} bytes, and {walk.size - at} are left")
    return -count, at + size, at


def _check_end(at: int, end: int | None) -> None:
    if end is not None and at != end:
        raise InvalidValue(f"a block ends {abs(end - at)} bytes {'before' if at < end else 'after'} it says it does")


def _check_count(walk: Walk, at: int, indices: range) -> range:
    """Return `indices`, the items of a block. Raises `InvalidValue` if there are more items than bytes left: each takes
    at least one byte."""
    if len(indices) > walk.size - at:
        raise InvalidValue(f"a block has {len(indices)} items, and {walk.size - at} bytes are left")
    return indices


def _count_weightless(walk: Walk, count: int) -> None:
    walk.weightless += count
    if walk.weightless > WEIGHTLESS_ITEMS_MAX:
        raise InvalidValue(f"it has more than {WEIGHTLESS_ITEMS_MAX} items that take no bytes")


def _check_depth(depth: int) -> None:
    if depth >= PAYLOAD_DEPTH_MAX:
        raise InvalidValue(f"values are nested more than {PAYLOAD_DEPTH_MAX} deep")
