"""Encodings of types in bytes, and which encoding can be read as which.

Taken from the page "Updating A Message Type" of the language's specification, one row for each sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor


class Encoding(Enum):
    """An encoding of values in bytes. Types with the same encoding can be read as each other: a value that does not fit
    the reader's type is cut off, as by a cast in C."""

    VARINT = "int32, int64, uint32, uint64, bool or an enum"
    ZIGZAG = "sint32 or sint64"
    FIXED32 = "fixed32 or sfixed32"
    FIXED64 = "fixed64 or sfixed64"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    MESSAGE = "a message"
    GROUP = "a group"


_Type: Final = FieldDescriptor
_ENCODINGS: Final[dict[Encoding, Iterable[int]]] = {
    Encoding.VARINT: (
        *(_Type.TYPE_INT32, _Type.TYPE_INT64, _Type.TYPE_UINT32, _Type.TYPE_UINT64),
        *(_Type.TYPE_BOOL, _Type.TYPE_ENUM),
    ),
    Encoding.ZIGZAG: (_Type.TYPE_SINT32, _Type.TYPE_SINT64),
    Encoding.FIXED32: (_Type.TYPE_FIXED32, _Type.TYPE_SFIXED32),
    Encoding.FIXED64: (_Type.TYPE_FIXED64, _Type.TYPE_SFIXED64),
    Encoding.FLOAT: (_Type.TYPE_FLOAT,),
    Encoding.DOUBLE: (_Type.TYPE_DOUBLE,),
    Encoding.STRING: (_Type.TYPE_STRING,),
    Encoding.BYTES: (_Type.TYPE_BYTES,),
    Encoding.MESSAGE: (_Type.TYPE_MESSAGE,),
    Encoding.GROUP: (_Type.TYPE_GROUP,),
}
_OF_TYPE: Final = {type_: encoding for encoding, types in _ENCODINGS.items() for type_ in types}

READABLE: Final = frozenset(
    {
        *((encoding, encoding) for encoding in Encoding),
        (Encoding.BYTES, Encoding.STRING),
        (Encoding.BYTES, Encoding.MESSAGE),
    }
)
"""Pairs (reader, writer) of encodings that can always be read. Text can be read as bytes, and so can an encoded
message."""

SOMETIMES_READABLE: Final = {
    (Encoding.STRING, Encoding.BYTES): "not all bytes are text in UTF-8",
    (Encoding.MESSAGE, Encoding.BYTES): "not all bytes are an encoded message",
}
"""Pairs (reader, writer), and the reason why they are not always readable."""

NUMERIC: Final = frozenset(Encoding) - {Encoding.STRING, Encoding.BYTES, Encoding.MESSAGE, Encoding.GROUP}
"""Numeric encodings: repeated ones are packed together, which a reader of a single one does not understand."""

SCALAR: Final = frozenset(Encoding) - {Encoding.MESSAGE, Encoding.GROUP}


def encoding(field: Any) -> Encoding:
    return _OF_TYPE[field.type]


def is_text(field: Any) -> bool:
    """Return whether the field is a string that is certainly UTF-8. A string of proto2, or with
    `features.utf8_validation = NONE`, may be any bytes."""
    if field.type != _Type.TYPE_STRING:
        return False
    features = field._GetFeatures()  # noqa: SLF001 - the library resolves them, and shows them under no other name
    return bool(features.utf8_validation == descriptor_pb2.FeatureSet.VERIFY)


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def shown(field: Any) -> str:
    """Return a field in one line, as it would be declared."""
    label = "required " if field.is_required else "repeated " if field.is_repeated and not is_map(field) else ""
    return f"{label}{type_text(field)} {field.name} = {field.number}"


def type_text(field: Any) -> str:
    if is_map(field):
        return f"map<{', '.join(type_text(entry_field) for entry_field in field.message_type.fields)}>"
    named = field.message_type or field.enum_type
    return str(named.full_name) if named is not None else _NAMES[field.type]


_NAMES: Final = {
    value: name.removeprefix("TYPE_").lower() for name, value in vars(_Type).items() if name.startswith("TYPE_")
}
