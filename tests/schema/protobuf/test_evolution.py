"""The meaning of compatibility: where no problem is found, the reader finds the data that the writer wrote."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as F
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.schema.protobuf.kit import parsed, refused
from tests.schema.protobuf.strategies import NAMES, File, evolved, files, filled, translated, written

_BITS = {
    F.TYPE_INT32: lambda value: _signed(value, 32),
    F.TYPE_INT64: lambda value: _signed(value, 64),
    F.TYPE_ENUM: lambda value: _signed(value, 32),
    F.TYPE_UINT32: lambda value: value & (2**32 - 1),
    F.TYPE_UINT64: lambda value: value & (2**64 - 1),
    F.TYPE_SINT32: lambda value: _signed(value, 32),
    F.TYPE_SINT64: lambda value: _signed(value, 64),
    F.TYPE_FIXED32: lambda value: value & (2**32 - 1),
    F.TYPE_FIXED64: lambda value: value & (2**64 - 1),
    F.TYPE_SFIXED32: lambda value: _signed(value, 32),
    F.TYPE_SFIXED64: lambda value: _signed(value, 64),
    F.TYPE_BOOL: bool,
}
"""The bits that remain of a number read as another type: the rest is cut off, as the specification says."""


def _signed(value: int, bits: int) -> int:
    value &= 2**bits - 1
    return value - 2**bits if value >= 2 ** (bits - 1) else value


@st.composite
def evolutions(draw: st.DrawFn) -> tuple[File, File]:
    older = draw(files)
    return older, draw(evolved(older) | translated(older))


@given(evolutions(), st.sampled_from(NAMES), st.data())
@settings(max_examples=60)
def test_where_nothing_stands_in_the_way_what_was_written_is_read(
    versions: tuple[File, File], name: str, data: st.DataObject
) -> None:
    older, newer = versions
    assume(refused(written(newer)) is None)
    full = f"{older.package}.{name}" if older.package else name
    schemas = parsed(written(older)), parsed(written(newer))
    for writer, reader in (schemas, schemas[::-1]):
        problems = reader.compatibility_problems(writer)
        event(f"compatible: {not problems}")
        if not problems:
            for each in (full, None):
                message = filled(data.draw, writer.message_class(each)())
                check_read(message, reader.message_class(each).FromString(message.SerializeToString()))


def check_read(written_message: Any, read: Any) -> None:
    """Require that every field that both know has the written value, except for bits lost in a smaller type."""
    known = read.DESCRIPTOR.fields_by_number
    for theirs, value in written_message.ListFields():
        if theirs.number in known:
            mine = known[theirs.number]
            _check(theirs, value, mine, getattr(read, mine.name))


def _check(theirs: Any, value: Any, mine: Any, read: Any) -> None:
    if _is_map(theirs) and _is_map(mine):
        _check_map(theirs, value, mine, read)
    elif _is_map(theirs) or _is_map(mine):
        return
    elif theirs.is_repeated and mine.is_repeated:
        assert len(read) == len(value)
        for one, other in zip(value, read, strict=True):
            _check_one(theirs, one, mine, other)
    elif mine.is_repeated:
        assert len(read) == 1
        _check_one(theirs, value, mine, read[0])
    elif not theirs.is_repeated:
        _check_one(theirs, value, mine, read)
    elif value and theirs.message_type is None:
        _check_one(theirs, value[-1], mine, read)


def _check_map(theirs: Any, value: Any, mine: Any, read: Any) -> None:
    their_key, their_value = theirs.message_type.fields
    my_key, my_value = mine.message_type.fields
    keys = {_as_read(their_key, key, my_key) for key in value}
    assert set(read) == keys
    if len(keys) == len(value):
        for key, each in value.items():
            _check_one(their_value, each, my_value, read[_as_read(their_key, key, my_key)])


def _check_one(theirs: Any, value: Any, mine: Any, read: Any) -> None:
    if mine.message_type is not None:
        check_read(value, read)
    elif theirs.message_type is not None:
        assert type(value).FromString(read) == value
    else:
        assert _packed(_as_read(theirs, value, mine)) == _packed(read)


def _as_read(theirs: Any, value: Any, mine: Any) -> Any:
    if theirs.type == mine.type:
        return value
    if isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    convert: Callable[[Any], Any] = _BITS[mine.type]
    return convert(int(value))


def _packed(value: Any) -> Any:
    return struct.pack("d", value) if isinstance(value, float) else value


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
