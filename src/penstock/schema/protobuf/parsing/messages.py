"""Messages and their contents, except fields and enums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.core.schemas import SCHEMA_BYTES_MAX
from penstock.schema.protobuf.limits import INT32_MAX, NUMBER_MAX
from penstock.schema.protobuf.names import synthetic_oneof
from penstock.schema.protobuf.parsing import options
from penstock.schema.protobuf.parsing.cursor import Cursor, Dialect
from penstock.schema.protobuf.parsing.enums import enum, names, ranges
from penstock.schema.protobuf.parsing.fields import FieldContainer, field
from penstock.schema.protobuf.parsing.tokens import TokenKind


def message(cursor: Cursor, into: Any, scope: str) -> None:
    """Parse `message Name { ... }` and add it to `into`, a list of message descriptors. `scope`: the full name of the
    message around it."""
    cursor.expect("message")
    at = cursor.token.at
    added = into.add(name=cursor.name("the name of a message"))
    cursor.count_type()
    body(cursor, added, cursor.declare(scope, added.name, at))


def body(cursor: Cursor, into: Any, path: str) -> None:
    """Parse `{ ... }` of a message or a group."""
    cursor.expect("{")
    with cursor.within():
        while not cursor.take("}"):
            _statement(cursor, into, path)
    _make_synthetic_oneofs(cursor, into, path)
    _resolve_max_ends(into)


def extend(cursor: Cursor, into: Any, nested: Any, scope: str) -> None:
    """Parse `extend Name { ... }` and add its fields to `into.extension`. Messages that they declare (bodies of groups)
    go to `nested`."""
    cursor.expect("extend")
    at = cursor.token.at
    container = FieldContainer(scope, into.extension, nested, body, extendee=cursor.qualified("the name of a message"))
    first = len(into.extension)
    cursor.expect("{")
    field(cursor, container)
    while not cursor.take("}"):
        field(cursor, container)
    for added in into.extension[first:]:
        cursor.positions[f"extend {scope}.{added.name}"] = at


def _statement(cursor: Cursor, into: Any, path: str) -> None:
    if cursor.take(";"):
        return
    known = _STATEMENTS.get(cursor.token.text)
    if known is not None:
        known(cursor, into, path)
    else:
        field(cursor, FieldContainer(path, into.field, into.nested_type, body))


def _message(cursor: Cursor, into: Any, path: str) -> None:
    message(cursor, into.nested_type, path)


def _enum(cursor: Cursor, into: Any, path: str) -> None:
    enum(cursor, into.enum_type, path)


def _extend(cursor: Cursor, into: Any, path: str) -> None:
    extend(cursor, into, into.nested_type, path)


def _oneof(cursor: Cursor, into: Any, path: str) -> None:
    cursor.expect("oneof")
    at = cursor.token.at
    container = FieldContainer(path, into.field, into.nested_type, body, oneof=len(into.oneof_decl))
    added = into.oneof_decl.add(name=cursor.name("the name of a oneof"))
    within = cursor.declare(path, added.name, at)
    cursor.expect("{")
    while True:
        if cursor.at("option"):
            options.statement(cursor, added, within)
        else:
            field(cursor, container)
        if cursor.take("}"):
            return


def _extensions(cursor: Cursor, into: Any, path: str) -> None:
    if cursor.dialect is Dialect.PROTO3:
        raise cursor.refuse("there are no extension ranges in proto3")
    cursor.expect("extensions")
    first = len(into.extension_range)
    for begin, end in ranges(cursor, cursor.integer, to_max=None):
        into.extension_range.add(start=begin, end=_exclusive(end))
    added = into.extension_range[first:]
    options.bracketed(cursor, added[0], f"{path}.extensions.{first}")
    _copy_options(cursor, added)
    cursor.expect(";")


def _copy_options(cursor: Cursor, added: Any) -> None:
    """Copy the options after the last range of a statement to all its ranges."""
    first, *others = added
    if len(others) * first.options.ByteSize() > SCHEMA_BYTES_MAX:
        raise cursor.refuse("so many options for so many ranges are too many")
    for extension_range in others if first.HasField("options") else ():
        extension_range.options.CopyFrom(first.options)


def _reserved(cursor: Cursor, into: Any, path: str) -> None:  # noqa: ARG001
    cursor.expect("reserved")
    if cursor.at_kind(TokenKind.INTEGER):
        for begin, end in ranges(cursor, cursor.integer, to_max=None):
            into.reserved_range.add(start=begin, end=_exclusive(end))
    else:
        into.reserved_name.extend(names(cursor))
    cursor.expect(";")


def _exclusive(end: int | None) -> int:
    """Return the end as descriptors store it, one past the last; -1 for `max`, which is resolved once the options are
    known."""
    return -1 if end is None else min(end + 1, INT32_MAX)


def _resolve_max_ends(into: Any) -> None:
    numbers_end = INT32_MAX if _is_message_set(into) else NUMBER_MAX + 1
    for number_range in (*into.extension_range, *into.reserved_range):
        if number_range.end == -1:
            number_range.end = numbers_end


def _is_message_set(into: Any) -> bool:
    return any(
        option.name[0].name_part == "message_set_wire_format" and option.identifier_value == "true"
        for option in into.options.uninterpreted_option
    )


def _make_synthetic_oneofs(cursor: Cursor, into: Any, path: str) -> None:
    """Add, after all other oneofs, a oneof for every `optional` of proto3."""
    taken = {element.name for element in (*into.field, *into.oneof_decl)}
    for element in into.field:
        if element.proto3_optional:
            name = synthetic_oneof(element.name, taken)
            taken.add(name)
            element.oneof_index = len(into.oneof_decl)
            into.oneof_decl.add(name=name)
            cursor.declare(path, name, cursor.positions[f"{path}.{element.name}"])


def _options(cursor: Cursor, into: Any, path: str) -> None:
    options.statement(cursor, into, path)


_STATEMENTS: Final[dict[str, Callable[[Cursor, Any, str], None]]] = {
    "message": _message,
    "enum": _enum,
    "extend": _extend,
    "oneof": _oneof,
    "extensions": _extensions,
    "reserved": _reserved,
    "option": _options,
}
