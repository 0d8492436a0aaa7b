"""Services and their methods. Payloads have nothing to do with them; a schema may have them all the same."""

from __future__ import annotations

from typing import Any

from penstock.schema.protobuf.parsing import options
from penstock.schema.protobuf.parsing.cursor import Cursor


def service(cursor: Cursor) -> None:
    """`service Name { ... }`."""
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
    added.input_type, client_streaming = _side(cursor)
    cursor.expect("returns")
    added.output_type, server_streaming = _side(cursor)
    if client_streaming:
        added.client_streaming = True
    if server_streaming:
        added.server_streaming = True
    _method_options(cursor, added, path)


def _side(cursor: Cursor) -> tuple[str, bool]:
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
