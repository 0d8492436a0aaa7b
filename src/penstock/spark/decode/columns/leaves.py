"""Leaves: functions that turn lists of values into arrays, and arrays of one type into arrays of another.

None is null everywhere. A value that does not fit raises `ValueError`, `OverflowError` or `TypeError` for the whole
list; the caller finds its row by trying again with parts of the list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock.client.serde.values import ValueMismatch
from penstock.schema.times import microseconds
from penstock.spark.decode.columns.shapes import DECIMAL_DIGITS_MAX, TIMESTAMP, Leaf, Values

_DECIMAL_BYTES: Final = 16
_US_PER_SECOND: Final = 1_000_000
_SHOWN_CHARS: Final = 60


def plain(values: Values, kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


def whole(values: Values, kind: pa.DataType) -> pa.Array:
    """Return integers. `1.0` counts as an integer, as in JSON; `1.5` raises `ValueMismatch`, as does a number out of
    range.

    Arrow first has to guess the type: if it were told that these are integers, it would turn 1.5 into 1.
    """
    try:
        found = pa.array(values)
        if found.type == kind:
            return found
        return pa.array([_integer(value) if isinstance(value, float) else value for value in values], kind)
    except (OverflowError, pa.ArrowInvalid):
        raise ValueMismatch(f"it is beyond the range of {kind}") from None


def _integer(value: float) -> int:
    if not value.is_integer():
        raise ValueMismatch(f"{value} is no integer")
    return int(value)


# ---- times


def scaled(factor: int) -> Callable[[Values, pa.DataType], pa.Array]:
    """Return a reader of integers of a coarser unit than the column's: it multiplies them by `factor`."""

    def read(values: Values, kind: pa.DataType) -> pa.Array:
        try:
            return pc.multiply_checked(pa.array(values, pa.int64()), factor).cast(kind)
        except pa.ArrowInvalid:
            raise ValueMismatch(f"it is beyond the range of {kind}") from None

    return read


def counted(values: Values, kind: pa.DataType) -> pa.Array:
    """Return integers of the column's own unit: microseconds, or days."""
    return pa.array(values, pa.int32() if types.is_date32(kind) else pa.int64()).cast(kind)


def from_nanoseconds(values: Values, kind: pa.DataType) -> pa.Array:
    """Return nanoseconds as microseconds, rounded down."""
    return pa.array([None if value is None else value // 1000 for value in values], pa.int64()).cast(kind)


def date_times(values: Values, kind: pa.DataType) -> pa.Array:
    """Return RFC 3339 times; a time without a zone is UTC, and digits beyond microseconds are cut off."""
    try:
        return pa.array(values, pa.string()).cast(kind)
    except pa.ArrowInvalid:
        return pa.array([None if value is None else _microseconds(value) for value in values], pa.int64()).cast(kind)


def _microseconds(text: str) -> int:
    try:
        return microseconds(text)
    except ValueError:
        raise ValueMismatch(f"{text[:_SHOWN_CHARS]!r} is no date and time such as 2026-01-31T12:00:00Z") from None


def dates(values: Values, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, pa.string()).cast(kind)
    except pa.ArrowInvalid:
        shown = next((value for value in values if value is not None), "")
        raise ValueMismatch(f"{shown[:_SHOWN_CHARS]!r} is no date such as 2026-01-31") from None


def seconds_and_nanos(values: Values, kind: pa.DataType) -> pa.Array:
    """Return Protobuf's Timestamp and Duration as microseconds."""
    found = (None if each is None else each.seconds * _US_PER_SECOND + each.nanos // 1000 for each in values)
    return whole(list(found), pa.int64()).cast(kind)


# ---- values encoded as bytes


def decimals(values: Values, kind: pa.DataType) -> pa.Array:
    """Return decimals from their digits without the point, as signed big-endian bytes. Raises `ValueMismatch` for too
    many."""
    bound = 10**kind.precision
    return _decimal_array([None if each is None else _unscaled(each, bound) for each in values], kind)


def _unscaled(data: bytes, bound: int) -> int:
    number = int.from_bytes(data, signed=True)
    if not -bound < number < bound:
        raise ValueMismatch("it has more digits than its type")
    return number


def _decimal_array(numbers: list[int | None], kind: pa.DataType) -> pa.Array:
    """Return decimals from unscaled numbers that fit."""
    data = b"".join((number or 0).to_bytes(_DECIMAL_BYTES, "little", signed=True) for number in numbers)
    missing = pa.array([number is not None for number in numbers], pa.bool_())
    return pa.Array.from_buffers(kind, len(numbers), [missing.buffers()[1], pa.py_buffer(data)])


def unsigned(values: Values, kind: pa.DataType) -> pa.Array:
    """Return unsigned numbers of 64 bits as decimals."""
    return _decimal_array(list(values), kind)


def long_decimals(precision: int, scale: int) -> Callable[[Values, pa.DataType], pa.Array]:
    """Return a reader of decimals that have more digits than Spark's decimals: it returns them as text."""
    bound = 10**precision

    def read(values: Values, kind: pa.DataType) -> pa.Array:
        return pa.array([None if each is None else _decimal_text(each, bound, scale) for each in values], kind)

    return read


def _decimal_text(data: bytes, bound: int, scale: int) -> str:
    number = _unscaled(data, bound)
    return format(Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)), "f")


def uuids(values: Values, kind: pa.DataType) -> pa.Array:
    return pa.array([None if each is None else str(UUID(bytes=each)) for each in values], kind)


# ---- conversions between types

Change = Callable[[pa.Array], pa.Array]


def change(reader: Leaf, writer: Leaf) -> Change | None:
    """Return the conversion from the writer's type to the reader's; None if there is none."""
    to, of = reader.type, writer.type
    if to == of:
        return _unchanged
    if _is_number(to) and _is_number(of):
        return _number_change(to, of)
    if {to, of} == {pa.string(), pa.binary()} or {types.is_decimal(to), types.is_decimal(of)} == {True}:
        return lambda array: array.cast(to)
    if types.is_decimal(to) and types.is_integer(of):
        return lambda array: array.cast(to)
    return _time_change(to, of)


def _time_change(to: pa.DataType, of: pa.DataType) -> Change | None:
    """Return the conversion between times and text; None if there is none.

    In JSON a time is text: a schema that begins to declare a text to be a time changes no payload.
    """
    if of == pa.string() and to in _TEXTS:
        return lambda array: _TEXTS[to](array.to_pylist(), to)
    if to == pa.string() and of in _TEXTS:
        return lambda array: pc.strftime(array, "%Y-%m-%dT%H:%M:%SZ" if of == TIMESTAMP else "%Y-%m-%d")
    return None


def _number_change(to: pa.DataType, of: pa.DataType) -> Change | None:
    """Return a conversion of numbers; None from fractions to integers, which are never converted.

    An integer that becomes a fraction may lose its last digits, which Avro allows. A number that is too large for a
    smaller integer raises.
    """
    if types.is_integer(to) and not types.is_integer(of):
        return None
    return lambda array: array.cast(to, safe=types.is_integer(to))


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind))


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def wider(first: Leaf, second: Leaf) -> Leaf | None:
    """Return a leaf whose type holds the values of both; None if only JSON text could hold them."""
    if first.type == second.type:
        return first
    kinds = first.type, second.type
    if set(kinds) == {pa.string(), pa.binary()}:
        return Leaf(pa.binary())
    if pa.string() in kinds and any(kind in _TEXTS for kind in kinds):
        return Leaf(pa.string())
    if all(map(types.is_integer, kinds)):
        return Leaf(pa.int64())
    if all(map(_is_number, kinds)):
        return Leaf(pa.float64())
    if all(types.is_decimal(kind) or types.is_integer(kind) for kind in kinds):
        return _wider_decimal(*kinds)
    return None


def _wider_decimal(first: pa.DataType, second: pa.DataType) -> Leaf | None:
    digits, scales = zip(*map(_digits, (first, second)), strict=True)
    precision = max(digits) + max(scales)
    return Leaf(pa.decimal128(precision, max(scales))) if precision <= DECIMAL_DIGITS_MAX else None


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Return the digits before the point and behind it."""
    if types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return (10 if kind == pa.int32() else 19), 0


_TEXTS: Final = {TIMESTAMP: date_times, pa.date32(): dates}
"""Times that are texts in JSON, with their readers."""


def untimed(written: Leaf) -> Leaf:
    """Return a leaf that reads a written time as its text, unchanged; any other leaf is returned as it is."""
    return replace(written, type=pa.string(), read=plain) if written.read in _TEXTS.values() else written


STRING: Final = Leaf(pa.string(), plain)
BINARY: Final = Leaf(pa.binary(), plain)
BOOLEAN: Final = Leaf(pa.bool_(), plain)
INT: Final = Leaf(pa.int32(), plain)
LONG: Final = Leaf(pa.int64(), plain)
FLOAT: Final = Leaf(pa.float32(), plain)
DOUBLE: Final = Leaf(pa.float64(), plain)
UNSIGNED: Final = Leaf(pa.decimal128(20, 0), unsigned)
WHOLE: Final = Leaf(pa.int64(), whole)
DATE_TIME: Final = Leaf(TIMESTAMP, date_times)
DATE: Final = Leaf(pa.date32(), dates)
SINCE_EPOCH: Final = Leaf(TIMESTAMP, seconds_and_nanos)
MICROSECONDS: Final = Leaf(pa.int64(), seconds_and_nanos)
