"""Records as plain tuples, many at a time, and filters on types and keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from penstock.record import layout as at
from penstock.record.kernels import stream_kernels
from penstock.record.message import SchemaRef

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Longs = np.ndarray[Any, np.dtype[np.int64]]
_Bools = np.ndarray[Any, np.dtype[np.bool_]]

RecordRow = tuple[bytes, int, int, str, bytes | None, bytes, str, int, int, SchemaRef | None, Mapping[str, str] | None]
"""A record: id, offset, publish time, type, key, payload, producer name, producer id, request id, schema, attributes if
any.

The garbage collector does not track tuples of only numbers, text and bytes, and would otherwise take longer over them
than all else: so None stands for no attributes, instead of an empty mapping.
"""

NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})
"""The attributes of every record that has none."""

_NAME_AT: Final = at.HEAD_BYTES + at.NAME_LENGTH_AT + 2
"""The distance from the start of a record to its producer name, without the type."""
_PLACES: Final = (at.START, at.END, at.PAYLOAD)
"""Columns that are positions in the buffer."""


class _Texts(dict[bytes, str]):
    """A cache of decoded texts: a block has few types and producer names, and each is decoded once."""

    def __missing__(self, raw: bytes) -> str:
        text = self[raw] = raw.decode(errors="replace")
        return text


class _Schemas(dict[tuple[int, int], SchemaRef]):
    def __missing__(self, numbers: tuple[int, int]) -> SchemaRef:
        schema = self[numbers] = SchemaRef(*numbers)
        return schema


def attributes_of(row: RecordRow) -> Mapping[str, str]:
    """Return the attributes of a row; an empty mapping if it has none."""
    return row[10] or NO_ATTRIBUTES


def record_rows(data: _Bytes, columns: _Longs) -> list[RecordRow]:
    """Return the records of `columns` as plain tuples: objects of a class would take twice as long."""
    if not len(columns):
        return []
    base, end = int(columns[:, at.START].min()), int(columns[:, at.END].max())
    columns = columns.copy()
    for place in _PLACES:
        columns[:, place] -= base
    return _read(data[base:end].tobytes(), columns.T.tolist())


def record_row(data: _Bytes, column: list[int]) -> RecordRow:
    """Return one record as a plain tuple."""
    base, end = column[at.START], column[at.END]
    for place in _PLACES:
        column[place] -= base
    return _read(data[base:end].tobytes(), [[value] for value in column])[0]


def _read(whole: bytes, table: list[list[int]]) -> list[RecordRow]:
    """Return a tuple for each record. `table` has a list for each column, which costs the garbage collector less than a
    list for each record."""
    texts, schemas = _Texts(), _Schemas()
    rows: list[RecordRow] = []
    # fmt: off
    for (start, end, _, _, type_bytes, offset, producer_id, request_id, publish_time, schema_id, schema_version, flags,
         name_bytes, key_bytes, attributes, payload) in zip(*table, strict=True):
        # fmt: on
        name = start + _NAME_AT + type_bytes
        key = name + name_bytes + 2
        rows.append(
            (
                whole[start : start + at.ID_BYTES],
                offset,
                publish_time,
                texts[whole[start + at.TYPE_AT : start + at.TYPE_AT + type_bytes]],
                whole[key : key + key_bytes] if flags & at.FLAG_KEY else None,
                whole[payload : end - at.CHECKSUM_BYTES],
                texts[whole[name : name + name_bytes]],
                producer_id,
                request_id,
                schemas[schema_id, schema_version] if flags & at.FLAG_SCHEMA else None,
                _attributes(whole, key + key_bytes + 2, attributes, texts) if attributes else None,
            )
        )
    return rows


def _attributes(whole: bytes, position: int, count: int, texts: _Texts) -> dict[str, str]:
    attributes = {}
    for _ in range(count):
        value = position + 2 + int.from_bytes(whole[position : position + 2])
        name = texts[whole[position + 2 : value]]
        position = value + 4 + int.from_bytes(whole[value : value + 4])
        attributes[name] = whole[value + 4 : position].decode(errors="replace")
    return attributes


class _Answers(dict[bytes, bool]):
    """A cache of answers: `accept` is called once for each distinct text."""

    def __init__(self, accept: Callable[[str], bool]) -> None:
        super().__init__()
        self._accept = accept

    def __missing__(self, raw: bytes) -> bool:
        verdict = self[raw] = self._accept(raw.decode(errors="replace"))
        return verdict


def accepted(data: _Bytes, columns: _Longs, accept: Callable[[str], bool]) -> _Bools:
    """Return a mask of the records for whose type `accept` returns True. It is called only a few times for each
    distinct type."""
    starts = columns[:, at.START] + at.TYPE_AT
    return _judged(data, starts, columns[:, at.TYPE_BYTES], _Answers(accept))


def matching(data: _Bytes, columns: _Longs, types: Sequence[str], keys: Sequence[str]) -> _Bools:
    """Return a mask of the records whose type matches one of `types`, and whose key matches one of `keys`.

    Both are patterns with `*` and `?`; an empty sequence sets no condition. Bytes of a key that are not UTF-8 count as
    the replacement character. A record without a key matches no pattern for keys.
    """
    mask = np.ones(len(columns), dtype=np.bool_)
    starts, sizes = columns[:, at.START] + at.TYPE_AT, columns[:, at.TYPE_BYTES]
    if types:
        mask &= _match(data, starts, sizes, types)
    if keys:
        mask &= columns[:, at.FLAGS] & at.FLAG_KEY != 0
        candidates = np.flatnonzero(mask)
        key_starts = starts + sizes + (_NAME_AT - at.TYPE_AT + 2) + columns[:, at.NAME_BYTES]
        mask[candidates] = _match(data, key_starts[candidates], columns[candidates, at.KEY_BYTES], keys)
    return mask


def _match(data: _Bytes, starts: _Longs, sizes: _Longs, globs: Sequence[str]) -> _Bools:
    return _judged(data, starts, sizes, _Answers(lambda text: any(fnmatchcase(text, glob) for glob in globs)))


def _judged(data: _Bytes, starts: _Longs, sizes: _Longs, answers: _Answers) -> _Bools:
    """Return an answer for each text; the kernel finds the distinct texts, and Python asks for each of those once."""
    sizes = np.ascontiguousarray(sizes)
    numbers, firsts = np.empty_like(starts), np.empty_like(starts)
    count = stream_kernels.alike(data, starts, sizes, numbers, firsts)
    first_starts = starts[firsts[:count]]
    spans = zip(first_starts.tolist(), (first_starts + sizes[firsts[:count]]).tolist(), strict=True)
    memory = data.data
    answered = [answers[memory[start:end].tobytes()] for start, end in spans]
    return np.array(answered, dtype=np.bool_)[numbers]
