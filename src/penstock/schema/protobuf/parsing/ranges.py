"""Lists of numbers and of names: `reserved 2, 9 to 11, 40 to max;`, `reserved "foo";`, `extensions 100 to 199;`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.schema.protobuf.parsing.cursor import Cursor, Dialect
from penstock.schema.protobuf.parsing.tokens import Kind


def ranges(cursor: Cursor, number: Callable[[str], int], to_max: int | None) -> Iterator[tuple[int, int | None]]:
    """Begin and end of each, both within it; the end is `to_max` where it says `max`."""
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
    """Strings, but in editions plain names."""
    while True:
        if cursor.dialect is Dialect.EDITIONS:
            yield cursor.name("a name, without quotes in editions")
        elif cursor.at_kind(Kind.STRING):
            yield cursor.words("a name")
        else:
            raise cursor.expected("a number, or a name in quotes")
        if not cursor.take(","):
            return
