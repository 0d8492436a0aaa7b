"""JSON payloads as rows: decoded by msgspec into types with just the fields that target and writer share.

All payloads of a batch are decoded at once where they are plain objects, which is the common case and the fast one. If
one of them is bad, each is read by itself, by the same types; so the result does not depend on a payload's neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Union

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.decode.columns.builder import pair_fields
from penstock.spark.decode.columns.leaves import change
from penstock.spark.decode.columns.shapes import (
    SHAPES_MAX,
    Entries,
    Field,
    Items,
    Leaf,
    Record,
    Shape,
    Values,
    is_bare_value,
)
from penstock.spark.decode.languages.rows import PayloadRows, one_by_one

_FAST_REFUSALS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, pa.ArrowInvalid)

_NUMBER: Final = int | float
_OPENING, _CLOSING = b"{}"
_SLOT: Final = re.compile(r"f[0-9]+")


class JsonReader:
    def __init__(self, target: Record, written: Record) -> None:
        exact, lenient = _Types(int), _Types(_NUMBER)
        self._objects = not is_bare_value(written)
        self._decoder = msgspec.json.Decoder(exact.rows(target, written))
        self._decode = self._decoder.decode
        self._decode_leniently = msgspec.json.Decoder(lenient.rows(target, written)).decode

    def read(self, payloads: pa.Array) -> PayloadRows:
        rows = self._decode_together(payloads) if self._objects else None
        return one_by_one(payloads, self._decode_one) if rows is None else PayloadRows(rows, range(len(rows)))

    def _decode_together(self, payloads: pa.Array) -> list[Any] | None:
        """Return all rows, decoded at once; None if that is impossible, and each payload has to be decoded by itself.

        The payloads are joined with newlines and decoded as a sequence of JSON values. Every payload begins with `{`
        and ends with `}`, and a JSON value can neither go on from `}` to `{` nor have a newline within a string. So no
        value reaches from one payload into the next, and if there are as many values as payloads, each payload is
        exactly one value.
        """
        if not _all_braced(payloads):
            return None
        try:
            payloads.cast(
                pa.string()
            )  # raises for invalid UTF-8, which the decoder does not check in values that it skips
            rows = self._decoder.decode_lines(_joined(payloads))
        except _FAST_REFUSALS:
            return None
        return rows if len(rows) == len(payloads) else None

    def _decode_one(self, payload: bytes) -> Any:
        """Decode one payload. Raises `ValueError` or an error of msgspec if it does not fit.

        An integer may be written `1.0`: the lenient types accept that. If they fail, too, the error of the exact types
        is raised.
        """
        if not payload:
            raise ValueError("it is empty, which is no JSON")
        str(payload, "utf-8")
        try:
            return self._decode(payload)
        except msgspec.ValidationError as error:
            return self._decode_lenient(payload, error)

    def _decode_lenient(self, payload: bytes, error: Exception) -> Any:
        try:
            return self._decode_leniently(payload)
        except msgspec.ValidationError:
            raise error from None


def _all_braced(payloads: pa.Array) -> bool:
    """Return whether each payload begins with `{` and ends with `}`; a null or empty one does not."""
    _, offsets, data = payloads.buffers()
    if data is None:
        return False
    ends = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    texts = np.frombuffer(data, np.uint8)
    if payloads.null_count or bool((ends[1:] <= ends[:-1]).any()):
        return False
    return bool((texts[ends[:-1]] == _OPENING).all() and (texts[ends[1:] - 1] == _CLOSING).all())


def _joined(payloads: pa.Array) -> memoryview:
    lists = pa.ListArray.from_arrays(pa.array([0, len(payloads)], pa.int32()), payloads)
    return memoryview(pc.binary_join(lists, b"\n")[0].as_buffer())


def raw_texts(values: Values, kind: pa.DataType) -> pa.Array:
    """Return JSON texts as they were written; null is null."""
    texts = [None if value is None else bytes(value) for value in values]
    return pa.array([None if text == b"null" else text for text in texts], pa.binary()).cast(kind)


@lru_cache(SHAPES_MAX)
def picker(slot: str) -> Callable[[Values], Values]:
    """Return a function that takes the attribute `slot` of each row in a list. Raises `ValueError` for another name
    than `f0`, `f1` and so on.

    The function is made by `eval`, with the name written into a comprehension: that takes half the time of an
    `attrgetter`, and taking attributes is most of the work that Python does for a column.
    """
    if _SLOT.fullmatch(slot) is None:
        raise ValueError(f"{slot!r} is no slot")
    made: Callable[[Values], Values] = eval(f"lambda rows: [row.{slot} for row in rows]")  # noqa: S307 - see above
    return made


def type_of(target: Shape, written: Shape) -> Any:
    """Return the type that msgspec decodes into."""
    return _Types(int).of(target, written)


class _Types:
    def __init__(self, integer: Any) -> None:
        self._integer = integer

    def rows(self, target: Record, written: Record) -> Any:
        """Return the type of whole payloads."""
        if not is_bare_value(written):
            return self._struct(target, written)
        found = next((field for field, source in pair_fields(target, written) if source is not None), None)
        return msgspec.Raw if found is None else _or_null(self.of(found.shape, written.fields[0].shape))

    def of(self, target: Shape, written: Shape) -> Any:
        """Return the type for msgspec to decode a value into. It is `Raw`, unparsed JSON, if the target takes the value
        as text or cannot take it."""
        match target, written:
            case (Leaf(is_text=False), Leaf(is_text=False)) if change(target, written) is not None:
                return self._leaf(written)
            case (Record(), Record()) if not target.is_choice:
                return self._struct(target, written)
            case (Items(), Items()):
                return list[_or_null(self.of(target.item, written.item))]  # type: ignore[misc]
            case (Entries(), Entries()) if target.key.type == written.key.type:
                return dict[str, _or_null(self.of(target.value, written.value))]  # type: ignore[misc]
        return msgspec.Raw

    def _leaf(self, written: Leaf) -> Any:
        kind = written.type
        if kind == pa.int64():
            return self._integer
        return {pa.float64(): float, pa.bool_(): bool}.get(kind, str)

    def _struct(self, target: Record, written: Record) -> Any:
        pairs = [(field, source) for field, source in pair_fields(target, written) if source is not None]
        return msgspec.defstruct(
            "Payload",
            [self._field(*pair) for pair in pairs],
            rename={source.slot: source.keys[0] for _, source in pairs},
            kw_only=True,
            gc=False,
        )

    def _field(self, target: Field, written: Field) -> tuple[str, Any] | tuple[str, Any, Any]:
        """Return a field of a msgspec struct. A field that is not required may be missing or null, with the same
        meaning."""
        kind = self.of(target.shape, written.shape)
        if written.is_required:
            return written.slot, kind
        return written.slot, _or_null(kind), None


def _or_null(kind: Any) -> Any:
    """Return the type extended by null. `Raw`, unparsed JSON, is returned unchanged: it may be null anyway."""
    return kind if kind is msgspec.Raw else Union[kind, None]  # noqa: UP007 - made at run time
