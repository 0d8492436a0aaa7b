"""Avro: schemas as shapes, payloads by fastavro.

fastavro reads without logical types, so that times and decimals come as plain numbers and bytes and become columns many
at a time; and with the names of union branches, so that the branch of a value is known. Everything else, evolution
included, is decided between the two shapes.

A union of null and one other type is that type; others become a struct with a field for each branch, `member0`,
`member1`, as in Spark's own Avro. A record within itself is JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from penstock.client.serde.avro import AvroCodec
from penstock.core.schemas import Definition
from penstock.schema.avro import parse
from penstock.schema.avro.model import Array, Enum, Fixed, Link, Logical, Map, Primitive, Schema, Type, Union
from penstock.schema.avro.model import Field as AvroField
from penstock.schema.avro.model import Record as AvroRecord
from penstock.spark.decode.columns import leaves
from penstock.spark.decode.columns.builder import VALUE_ERRORS, column
from penstock.spark.decode.columns.json_texts import texts
from penstock.spark.decode.columns.shapes import (
    DECIMAL_DIGITS_MAX,
    LOCAL_TIMESTAMP,
    TIMESTAMP,
    Budget,
    Entries,
    Field,
    Get,
    Items,
    Leaf,
    Read,
    Record,
    Shape,
    Wrapped,
    root_record,
    without_readers,
)
from penstock.spark.decode.languages.rows import Reader, one_by_one

_TEXT: Final = Leaf(pa.string(), texts, is_text=True)
_PRIMITIVES: Final[Mapping[str, Leaf]] = {
    "null": _TEXT,
    "boolean": leaves.BOOLEAN,
    "int": leaves.INT,
    "long": leaves.LONG,
    "float": leaves.FLOAT,
    "double": leaves.DOUBLE,
    "bytes": leaves.BINARY,
    "string": leaves.STRING,
}
_LOGICAL: Final[Mapping[str, Leaf]] = {
    "date": Leaf(pa.date32(), leaves.counted),
    "time-millis": Leaf(pa.int64(), leaves.scaled(1000)),
    "time-micros": leaves.LONG,
    "timestamp-millis": Leaf(TIMESTAMP, leaves.scaled(1000)),
    "timestamp-micros": Leaf(TIMESTAMP, leaves.counted),
    "timestamp-nanos": Leaf(TIMESTAMP, leaves.from_nanoseconds),
    "local-timestamp-millis": Leaf(LOCAL_TIMESTAMP, leaves.scaled(1000)),
    "local-timestamp-micros": Leaf(LOCAL_TIMESTAMP, leaves.counted),
    "local-timestamp-nanos": Leaf(LOCAL_TIMESTAMP, leaves.from_nanoseconds),
}
"""Leaves of logical types. Times of day are microseconds since midnight; other logical types are their underlying
type."""
_LONG_DIGITS_MAX: Final = 4000
"""Digits of the longest decimal as text: Python writes no longer numbers. A longer decimal stays bytes."""
_WIDER: Final = {"int": "long", "float": "double"}
_PYTHON: Final[Mapping[str, type]] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}


class AvroWriterSchema:
    text: Read = staticmethod(texts)

    def __init__(self, definition: Definition) -> None:
        """Prepare reading payloads of this schema. Raises `InvalidSchema`, or `InvalidRequest` for a schema that
        fastavro rejects."""
        schema = parse(definition.text, dict(definition.references)).schema
        self.shape = root_record(_Shapes(schema).of(schema.root, 0))
        self._decode = AvroCodec(_without_logical_types(definition), branches=True).decode

    def reader(self, target: Record) -> Reader:  # noqa: ARG002 - all of a payload is read, or none
        return lambda payloads: one_by_one(payloads, self._decode)


def _without_logical_types(definition: Definition) -> Definition:
    references = tuple((name, _bare_text(text)) for name, text in definition.references)
    return replace(definition, text=_bare_text(definition.text), references=references)


def _bare_text(text: str) -> str:
    return json.dumps(_strip_logical_types(json.loads(text)))


def _strip_logical_types(value_json: Any) -> Any:
    """Return the JSON of a schema without `logicalType`. Defaults stay as they are, since they may contain that
    word."""
    if isinstance(value_json, list):
        return [_strip_logical_types(each) for each in value_json]
    if not isinstance(value_json, dict):
        return value_json
    return {
        name: each if name == "default" else _strip_logical_types(each)
        for name, each in value_json.items()
        if name != "logicalType"
    }


class _Shapes:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._budget = Budget()
        self._under_way: set[str] = set()

    def of(self, type_: Type, depth: int) -> Shape:
        if not self._budget.allows(depth):
            return _TEXT
        match self._schema.resolve(type_):
            case Primitive(kind=kind, logical=logical):
                return _logical(logical) or _PRIMITIVES[kind]
            case Fixed(logical=logical):
                return _uuid(logical) or _logical(logical) or leaves.BINARY
            case Enum():
                return leaves.STRING
            case Array(items=items):
                return Items(self.of(items, depth + 1))
            case Map(values=values):
                return Entries(leaves.STRING, self.of(values, depth + 1))
            case Union(branches=branches):
                return self._union(branches, depth)
            case AvroRecord() as record:
                return self._record(record, depth)

    def _record(self, record: AvroRecord, depth: int) -> Shape:
        if record.name in self._under_way or not record.fields:
            return _TEXT
        self._under_way.add(record.name)
        try:
            return Record(tuple(self._field(each, depth) for each in record.fields), name=record.unqualified)
        finally:
            self._under_way.remove(record.name)

    def _field(self, field: AvroField, depth: int) -> Field:
        shape = self.of(field.type, depth + 1)
        default = None if field.default is None else self._default(field, shape)
        keys = (field.name, *field.aliases)
        return Field(field.name, shape, keys, default=default, get=itemgetter(field.name))

    # ---- unions

    def _union(self, branches: Sequence[Type], depth: int) -> Shape:
        members = [each for each in map(self._schema.resolve, branches) if each.kind != "null"]
        kinds = {member.kind for member in members}
        members = [each for each in members if _WIDER.get(each.kind) not in kinds]
        if not members:
            return _TEXT
        if len(members) == 1:
            shape = self.of(members[0], depth)
            return Wrapped(shape, itemgetter(1)) if _is_named(members[0]) else shape
        fields = (self._member(place, each, depth) for place, each in enumerate(members))
        return Record(tuple(fields), is_choice=True)

    def _member(self, place: int, type_: Type, depth: int) -> Field:
        name = f"member{place}"
        return Field(name, self.of(type_, depth + 1), (name,), get=_branch(type_))

    # ---- defaults

    def _default(self, field: AvroField, shape: Shape) -> Any:
        if field.default is None or field.default.value is None:
            return None
        try:
            value = _Defaults(self._schema).value(field.type, field.default.value)
            return column(without_readers(shape), shape, texts)([value])[0].as_py()
        except VALUE_ERRORS:
            return None


def _logical(logical: Logical | None) -> Leaf | None:
    if logical is None:
        return None
    if logical.name != "decimal":
        return _LOGICAL.get(logical.name)
    if logical.precision > _LONG_DIGITS_MAX:
        return leaves.BINARY
    if logical.precision > DECIMAL_DIGITS_MAX:
        return Leaf(pa.string(), leaves.long_decimals(logical.precision, logical.scale))
    return Leaf(pa.decimal128(logical.precision, logical.scale), leaves.decimals)


def _uuid(logical: Logical | None) -> Leaf | None:
    """Return the leaf for a `fixed` that is a UUID; None if it is not. A UUID in a string stays a plain string."""
    return Leaf(pa.string(), leaves.uuids) if logical is not None and logical.name == "uuid" else None


def _is_named(type_: Type) -> bool:
    return isinstance(type_, AvroRecord | Enum | Fixed)


def _branch(type_: Type) -> Get:
    """Return a getter for one branch of a union: it returns the value if it is of this branch, else None.

    fastavro gives the value of a record, an enum or a fixed as a pair of the type's name and the value.
    """
    if isinstance(type_, AvroRecord | Enum | Fixed):
        name = type_.name
        return lambda value: value[1] if type(value) is tuple and value[0] == name else None
    python = _PYTHON[type_.kind] if not isinstance(type_, Link) else object
    return lambda value: value if type(value) is python else None


class _Defaults:
    """Defaults as the values that fastavro would give. The registry has checked them."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def value(self, type_: Type, value_json: Any) -> Any:
        match self._schema.resolve(type_):
            case Primitive(kind="bytes") | Fixed():
                return value_json.encode("latin-1")
            case Primitive(kind="float" | "double"):
                return float(value_json)
            case Array(items=items):
                return [self.value(items, each) for each in value_json]
            case Map(values=values):
                return {name: self.value(values, each) for name, each in value_json.items()}
            case AvroRecord() as record:
                return dict(self._fields(record, value_json))
            case Union(branches=branches):
                return self._of_branch(branches, value_json)
        return value_json

    def _fields(self, record: AvroRecord, value_json: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for field in record.fields:
            default = None if field.default is None else field.default.value
            yield field.name, self.value(field.type, value_json.get(field.name, default))

    def _of_branch(self, branches: Sequence[Type], value_json: Any) -> Any:
        """Return the default of a union as a value of the first branch that it fits; None if it fits none.

        Until Avro 1.12 a default had to be of the union's first branch.
        """
        for branch in map(self._schema.resolve, branches):
            if _JSON_TYPES[branch.kind](value_json):
                value = self.value(branch, value_json)
                return (branch.name, value) if isinstance(branch, AvroRecord | Enum | Fixed) else value
        return None


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value_json: type(value_json) in kinds


_JSON_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": _is(type(None)),
    "boolean": _is(bool),
    **dict.fromkeys(("int", "long"), _is(int)),
    **dict.fromkeys(("float", "double"), _is(int, float)),
    **dict.fromkeys(("bytes", "string", "fixed", "enum"), _is(str)),
    "array": _is(list),
    **dict.fromkeys(("map", "record"), _is(dict)),
}
