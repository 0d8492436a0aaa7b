"""Enums and their values, and the lists of numbers and names that enums and messages reserve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.schema.protobuf.limits import INT32_MAX
from penstock.schema.protobuf.parsing import options
from penstock.schema.protobuf.parsing.cursor import Cursor, Dialect
from penstock.schema.protobuf.parsing.tokens import TokenKind


def ranges(cursor: Cursor, number: Callable[[str], int], to_max: int | None) -> Iterator[tuple[int, int | None]]:
    """Parse ranges and yield begin and end of each, both inclusive. `number` parses a number; `to_max` is the end of a
    range that ends at `max`."""
    while True:
        begin = number("a number")
        yield begin, _end(cursor, number, begin, to_max)
        if not cursor.take(","):
            return


def _end(cursor: Cursor, number: Callable[[str], int], begin: int, to_max: int | None) -> int | None:
    if not cursor.take("to"):
        return begin
    if cursor.take("max"):
        return to_max
    at = cursor.token.at
    end = number("a number, or max")
    if end < begin:
        raise cursor.refuse(f"the range ends at {end}, before it begins at {begin}", at)
    return end


def names(cursor: Cursor) -> Iterator[str]:
    """Parse reserved names and yield them: in quotes, or in editions without quotes."""
    while True:
        if cursor.dialect is Dialect.EDITIONS:
            yield cursor.name("a name, without quotes in editions")
        elif cursor.at_kind(TokenKind.STRING):
            yield cursor.words("a name")
        else:
            raise cursor.expected("a number, or a name in quotes")
        if not cursor.take(","):
            return


def enum(cursor: Cursor, into: Any, scope: str) -> None:
    """Parse `enum Name { ... }` and add it to `into`, a list of enum descriptors. `scope`: the full name of the message
    around it."""
    cursor.expect("enum")
    at = cursor.token.at
    added = into.add(name=cursor.name("the name of an enum"))
    cursor.count_type()
    path = cursor.declare(scope, added.name, at)
    cursor.expect("{")
    while not cursor.take("}"):
        _statement(cursor, added, path, scope)


def _statement(cursor: Cursor, into: Any, path: str, scope: str) -> None:
    if cursor.take(";"):
        return
    if cursor.at("option"):
        options.statement(cursor, into, path)
    elif cursor.at("reserved"):
        _reserved(cursor, into)
    else:
        _value(cursor, into, scope)


def _value(cursor: Cursor, into: Any, scope: str) -> None:
    """Parse a value. Its name is unique in the scope that contains the enum, not in the enum."""
    at = cursor.token.at
    name = cursor.name("the name of an enum value")
    cursor.expect("=")
    added = into.value.add(name=name, number=cursor.signed("the number of an enum value"))
    options.bracketed(cursor, added, cursor.declare(scope, name, at))
    cursor.expect(";")


def _reserved(cursor: Cursor, into: Any) -> None:
    cursor.expect("reserved")
    if cursor.at_kind(TokenKind.INTEGER) or cursor.at("-"):
        for begin, end in ranges(cursor, cursor.signed, to_max=INT32_MAX):
            into.reserved_range.add(start=begin, end=end)
    else:
        into.reserved_name.extend(names(cursor))
    cursor.expect(";")
