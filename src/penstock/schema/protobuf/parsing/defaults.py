"""Default values of fields, as texts write them and as descriptors store them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf import literals
from penstock.schema.protobuf.parsing.cursor import Cursor
from penstock.schema.protobuf.parsing.tokens import TokenKind

_Proto: Final = descriptor_pb2.FieldDescriptorProto


def default_value(cursor: Cursor, type_: int) -> str:
    """Parse the default value of a field of type `type_` and return it as a descriptor stores it. A type that is not in
    the table is taken for an enum, and its default for the name of a value."""
    return _READERS.get(type_, _enum)(cursor)


def _signed(bits: int) -> Callable[[Cursor], str]:
    def read(cursor: Cursor) -> str:
        if cursor.take("-"):
            return str(-cursor.integer("an integer", 2 ** (bits - 1)))
        return str(cursor.integer("an integer", 2 ** (bits - 1) - 1))

    return read


def _unsigned(bits: int) -> Callable[[Cursor], str]:
    def read(cursor: Cursor) -> str:
        if cursor.at("-"):
            raise cursor.expected("an integer that is not negative")
        return str(cursor.integer("an integer", 2**bits - 1))

    return read


def _float(cursor: Cursor) -> str:
    sign = -1.0 if cursor.take("-") else 1.0
    if cursor.at("inf") or cursor.at("nan"):
        return literals.shortest(sign * float(cursor.next().text))
    if cursor.token.kind not in (TokenKind.INTEGER, TokenKind.FLOAT):
        raise cursor.expected("a number")
    return literals.shortest(sign * literals.real(cursor.next().text))


def _bool(cursor: Cursor) -> str:
    if not cursor.at("true") and not cursor.at("false"):
        raise cursor.expected("true or false")
    return cursor.next().text


def _string(cursor: Cursor) -> str:
    return cursor.words("a string")


def _bytes(cursor: Cursor) -> str:
    return literals.escaped(cursor.string("a string"))


def _enum(cursor: Cursor) -> str:
    return cursor.name("the name of an enum value")


def _nothing(cursor: Cursor) -> str:
    raise cursor.refuse("a message has no default")


_READERS: Final[dict[int, Callable[[Cursor], str]]] = {
    _Proto.TYPE_INT32: _signed(32),
    _Proto.TYPE_SINT32: _signed(32),
    _Proto.TYPE_SFIXED32: _signed(32),
    _Proto.TYPE_INT64: _signed(64),
    _Proto.TYPE_SINT64: _signed(64),
    _Proto.TYPE_SFIXED64: _signed(64),
    _Proto.TYPE_UINT32: _unsigned(32),
    _Proto.TYPE_FIXED32: _unsigned(32),
    _Proto.TYPE_UINT64: _unsigned(64),
    _Proto.TYPE_FIXED64: _unsigned(64),
    _Proto.TYPE_FLOAT: _float,
    _Proto.TYPE_DOUBLE: _float,
    _Proto.TYPE_BOOL: _bool,
    _Proto.TYPE_STRING: _string,
    _Proto.TYPE_BYTES: _bytes,
    _Proto.TYPE_MESSAGE: _nothing,
    _Proto.TYPE_GROUP: _nothing,
}
