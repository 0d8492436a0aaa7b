"""The statements of a file: from text to a file descriptor. Names are left as written, see `linking`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf.parsing import options
from penstock.schema.protobuf.parsing.cursor import Cursor, Dialect
from penstock.schema.protobuf.parsing.enums import enum
from penstock.schema.protobuf.parsing.messages import extend, message
from penstock.schema.protobuf.parsing.tokens import TokenKind


def service(cursor: Cursor) -> None:
    """Parse `service Name { ... }`."""
    cursor.expect("service")
    at = cursor.token.at
    added = cursor.file.service.add(name=cursor.name("the name of a service"))
    path = cursor.declare("", added.name, at)
    cursor.expect("{")
    while not cursor.take("}"):
        if cursor.at("option"):
            options.statement(cursor, added, path)
        elif not cursor.take(";"):
            _method(cursor, added, path)


def _method(cursor: Cursor, into: Any, scope: str) -> None:
    cursor.expect("rpc")
    at = cursor.token.at
    added = into.method.add(name=cursor.name("the name of a method"))
    path = cursor.declare(scope, added.name, at)
    added.input_type, client_streaming = _method_type(cursor)
    cursor.expect("returns")
    added.output_type, server_streaming = _method_type(cursor)
    if client_streaming:
        added.client_streaming = True
    if server_streaming:
        added.server_streaming = True
    _method_options(cursor, added, path)


def _method_type(cursor: Cursor) -> tuple[str, bool]:
    cursor.expect("(")
    streaming = cursor.take("stream")
    name = cursor.qualified("the name of a message")
    cursor.expect(")")
    return name, streaming


def _method_options(cursor: Cursor, added: Any, path: str) -> None:
    if cursor.take(";"):
        return
    cursor.expect("{")
    added.options.SetInParent()
    while not cursor.take("}"):
        if not cursor.take(";"):
            options.statement(cursor, added, path)


EDITIONS: Final = {"2023": descriptor_pb2.EDITION_2023}
"""Editions whose rules are all implemented here."""


def parse_file(cursor: Cursor) -> None:
    """Parse the whole text into `cursor.file` and `cursor.positions`."""
    if cursor.at_kind(TokenKind.END):
        raise cursor.refuse("there is nothing in this schema")
    _dialect(cursor)
    while not cursor.at_kind(TokenKind.END):
        _statement(cursor)


def _dialect(cursor: Cursor) -> None:
    if not cursor.at("syntax") and not cursor.at("edition"):
        return
    keyword = cursor.next().text
    cursor.expect("=")
    at = cursor.token.at
    value = cursor.words(f"the {keyword} in quotes")
    if keyword == "syntax":
        _syntax(cursor, value, at)
    else:
        _edition(cursor, value, at)
    cursor.expect(";")


def _syntax(cursor: Cursor, value: str, at: int) -> None:
    if value not in ("proto2", "proto3"):
        raise cursor.refuse("the syntax is proto2 or proto3", at)
    cursor.dialect = Dialect(value)
    if cursor.dialect is Dialect.PROTO3:
        cursor.file.syntax = value


def _edition(cursor: Cursor, value: str, at: int) -> None:
    if value not in EDITIONS:
        raise cursor.refuse(f"of editions, {', '.join(EDITIONS)} can be read here", at)
    cursor.dialect = Dialect.EDITIONS
    cursor.file.syntax = Dialect.EDITIONS.value
    cursor.file.edition = EDITIONS[value]


def _statement(cursor: Cursor) -> None:
    if cursor.take(";"):
        return
    known = _STATEMENTS.get(cursor.token.text)
    if known is None:
        raise cursor.expected("message, enum, service, extend, import, package or option")
    known(cursor)


def _package(cursor: Cursor) -> None:
    if cursor.file.HasField("package"):
        raise cursor.refuse("the package is already given")
    cursor.expect("package")
    cursor.positions["package"] = cursor.token.at
    cursor.file.package = cursor.dotted("the name of a package")
    cursor.expect(";")


def _import(cursor: Cursor) -> None:
    cursor.expect("import")
    index = len(cursor.file.dependency)
    if cursor.take("public"):
        cursor.file.public_dependency.append(index)
    elif cursor.take("weak"):
        cursor.file.weak_dependency.append(index)
    at = cursor.token.at
    name = cursor.words("the name of a file in quotes")
    if f"import {name}" in cursor.positions:
        raise cursor.refuse(f'"{name}" is imported twice', at)
    cursor.file.dependency.append(name)
    cursor.positions[f"import {name}"] = at
    cursor.expect(";")


def _message(cursor: Cursor) -> None:
    message(cursor, cursor.file.message_type, "")


def _enum(cursor: Cursor) -> None:
    enum(cursor, cursor.file.enum_type, "")


def _extend(cursor: Cursor) -> None:
    extend(cursor, cursor.file, cursor.file.message_type, "")


def _option(cursor: Cursor) -> None:
    options.statement(cursor, cursor.file, "")


_STATEMENTS: Final[dict[str, Callable[[Cursor], None]]] = {
    "message": _message,
    "enum": _enum,
    "service": service,
    "extend": _extend,
    "import": _import,
    "package": _package,
    "option": _option,
}
