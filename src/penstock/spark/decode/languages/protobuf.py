"""Protobuf: messages as shapes, payloads by the library's own classes.

Two fields are the same if they have the same number. An enum's column has the names of its values; a value without a
name is its number, as text. A `oneof` becomes a column for each of its fields, at most one of which has a value.
Unsigned numbers of 64 bits become decimals. Timestamps, durations (microseconds) and wrappers become plain columns.
`Struct`, `Value`, `ListValue` and messages that contain themselves become JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from penstock.client.serde.protobuf import ClassCodec, message_class
from penstock.client.serde.values import ValueMismatch, json_pointer
from penstock.core.schemas import Definition
from penstock.schema.protobuf.payloads.validator import MessageValidator
from penstock.schema.protobuf.payloads.wire import WireType
from penstock.spark.decode.columns import leaves
from penstock.spark.decode.columns.json_texts import text
from penstock.spark.decode.columns.shapes import (
    Budget,
    Entries,
    Field,
    Get,
    Items,
    Leaf,
    Read,
    Record,
    Shape,
    Values,
    Wrapped,
    is_bare_value,
    root_record,
)
from penstock.spark.decode.languages.rows import Reader, one_by_one

_WIRE_TYPES: Final[Mapping[int, WireType]] = {
    FieldDescriptor.TYPE_DOUBLE: WireType.FIXED64,
    FieldDescriptor.TYPE_FIXED64: WireType.FIXED64,
    FieldDescriptor.TYPE_SFIXED64: WireType.FIXED64,
    FieldDescriptor.TYPE_FLOAT: WireType.FIXED32,
    FieldDescriptor.TYPE_FIXED32: WireType.FIXED32,
    FieldDescriptor.TYPE_SFIXED32: WireType.FIXED32,
    FieldDescriptor.TYPE_STRING: WireType.LENGTH,
    FieldDescriptor.TYPE_BYTES: WireType.LENGTH,
    FieldDescriptor.TYPE_MESSAGE: WireType.LENGTH,
    FieldDescriptor.TYPE_GROUP: WireType.START,
}
"""Wire types of field types; all other types are numbers of a variable length."""

Which = str | tuple[int, ...] | None
"""A message of a schema: its name, or its path of indexes; None for the first one."""

_KINDS: Final[Mapping[int, Leaf]] = {
    FieldDescriptor.CPPTYPE_BOOL: leaves.BOOLEAN,
    FieldDescriptor.CPPTYPE_INT32: leaves.INT,
    FieldDescriptor.CPPTYPE_UINT32: leaves.LONG,
    FieldDescriptor.CPPTYPE_INT64: leaves.LONG,
    FieldDescriptor.CPPTYPE_UINT64: leaves.UNSIGNED,
    FieldDescriptor.CPPTYPE_FLOAT: leaves.FLOAT,
    FieldDescriptor.CPPTYPE_DOUBLE: leaves.DOUBLE,
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TEXTUAL: Final = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue"))


def texts(values: Values, kind: pa.DataType) -> pa.Array:
    return pa.array([None if each is None else text(_plain(each)) for each in values], kind)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return json_format.MessageToDict(value, preserving_proto_field_name=True)
    if isinstance(value, str | bytes | int | float):
        return value
    if hasattr(value, "items"):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value]


_TEXT: Final = Leaf(pa.string(), texts, is_text=True)


class ProtobufWriterSchema:
    text: Read = staticmethod(texts)

    def __init__(self, definition: Definition, which: Which = None) -> None:
        """Prepare reading payloads of one message of this schema; `which` chooses it.

        Raises `InvalidSchema`, and `InvalidRequest` or `ValueMismatch` for a message that is not in the schema.
        """
        generated = message_class(definition, which)
        self.shape = _of_message(root_record(_Shapes().message(generated.DESCRIPTOR, 0)), generated.DESCRIPTOR.name)
        self._parse = ClassCodec(generated).decode
        self._fields = dict(generated.DESCRIPTOR.fields_by_number)
        self._validator = MessageValidator(generated.DESCRIPTOR)

    def reader(self, target: Record) -> Reader:  # noqa: ARG002 - all of a payload is read, or none
        return lambda payloads: one_by_one(payloads, self._message)

    def _message(self, payload: bytes) -> Any:
        """Decode a payload. Raises `ValueMismatch` also for bytes without any known field, and for a field with a wrong
        wire type: the library would accept both."""
        try:
            message = self._parse(payload)
        except ValueMismatch:
            self._check(payload)
            raise
        unknown = UnknownFieldSet(message)
        if len(unknown):
            self._check_unknown(unknown)
            self._check(payload)
        return message

    def _check_unknown(self, unknown: Iterable[Any]) -> None:
        """Raise `ValueMismatch` for a field that the library calls unknown because it has a wrong wire type.

        Values that an enum does not list are also called unknown, and are correct.
        """
        for each in unknown:
            field = self._fields.get(each.field_number)
            if field is not None and each.wire_type != _WIRE_TYPES.get(field.type, WireType.VARINT):
                raise ValueMismatch("it is written as another type than it has", json_pointer(field.name))

    def _check(self, payload: bytes) -> None:
        fault = self._validator.fault(payload)
        if fault is not None:
            raise ValueMismatch(fault.message, fault.path)


def _of_message(shape: Record, name: str) -> Record:
    """Return the shape with keys that contain the message's name: the same field number means another field in another
    message."""
    fields = (replace(each, keys=tuple(f"{name}{key}" for key in each.keys)) for each in shape.fields)
    return shape if is_bare_value(shape) else replace(shape, fields=tuple(fields))


class _Shapes:
    def __init__(self) -> None:
        self._budget = Budget()
        self._under_way: set[str] = set()

    def message(self, descriptor: Any, depth: int) -> Shape:
        name = descriptor.full_name
        if name in _TEXTUAL or name in self._under_way or not descriptor.fields or not self._budget.allows(depth):
            return _TEXT
        if name in _WRAPPERS:
            return Wrapped(self._scalar(descriptor.fields_by_name["value"]), attrgetter("value"))
        if name == "google.protobuf.Timestamp":
            return leaves.SINCE_EPOCH
        if name == "google.protobuf.Duration":
            return leaves.MICROSECONDS
        self._under_way.add(name)
        try:
            return Record(tuple(self._field(each, depth + 1) for each in descriptor.fields), name=name)
        finally:
            self._under_way.remove(name)

    def _field(self, field: Any, depth: int) -> Field:
        default = _default(field) if field.has_default_value else None
        return Field(field.name, self._shape(field, depth), (f"#{field.number}",), default=default, get=_getter(field))

    def _shape(self, field: Any, depth: int) -> Shape:
        if not self._budget.allows(depth):
            return _TEXT
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            return Entries(self._scalar(key), self._single(value, depth + 1))
        return Items(self._single(field, depth + 1)) if field.is_repeated else self._single(field, depth)

    def _single(self, field: Any, depth: int) -> Shape:
        return self._scalar(field) if field.message_type is None else self.message(field.message_type, depth)

    def _scalar(self, field: Any) -> Leaf:
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return Leaf(pa.string(), _names_of(field.enum_type))
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return leaves.BINARY if field.type == FieldDescriptor.TYPE_BYTES else leaves.STRING
        return _KINDS[field.cpp_type]


def _getter(field: Any) -> Get:
    name = field.name
    if not field.has_presence:
        return attrgetter(name)
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _names_of(enum: Any) -> Callable[[Values, pa.DataType], pa.Array]:
    names = {number: value.name for number, value in enum.values_by_number.items()}

    def read(values: Values, kind: pa.DataType) -> pa.Array:
        return pa.array([None if each is None else names.get(each) or str(each) for each in values], kind)

    return read


def _default(field: Any) -> Any:
    """Return the declared default of a field."""
    if field.enum_type is not None:
        return field.enum_type.values_by_number[field.default_value].name
    return field.default_value
