"""Which types match, by kind and name alone: promotions, names and aliases, and the branches of unions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final

from penstock.schema.avro.model import Definition, Enum, Fixed, Named, Record

PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What is written as the one can be read as any of the others, says the specification. It says so of bytes and string
too, though bytes that are not UTF-8 cannot be read as a string: here its word counts for more than that."""


def readable_as(kind: str) -> tuple[str, ...]:
    return (kind, *PROMOTIONS.get(kind, ()))


def names_match(reader: Named, writer: Named) -> bool:
    """By the names without their namespaces, or by an alias of the reader's."""
    return reader.unqualified == writer.unqualified or writer.name in reader.aliases


class Branches:
    """The branches of a reader's union.

    The specification has the first branch that matches read a value. Among types of one unqualified name that would be
    any of them, and a schema could not read what it wrote; so one with the very name is preferred to all others, as is
    the very type to those it can be promoted to.
    """

    def __init__(self, branches: Iterable[Definition]) -> None:
        self._found: dict[Hashable, tuple[int, Definition]] = {}
        for place, branch in enumerate(branches):
            for key in _offered(branch):
                self._found.setdefault(key, (place, branch))

    def match(self, writer: Definition) -> Definition | None:
        """Which of them reads what was written so."""
        for keys in _wanted(writer):
            matching = [self._found[key] for key in keys if key in self._found]
            if matching:
                return min(matching, key=itemgetter(0))[1]
        return None


def _offered(reader: Definition) -> Iterator[Hashable]:
    """Under what a branch can be found."""
    if not isinstance(reader, Record | Enum | Fixed):
        yield reader.kind
        return
    for name in (reader.name, *reader.aliases):
        yield reader.kind, "called", name
    yield _loosely(reader)
    if isinstance(reader, Fixed):
        yield _loosely(reader), reader.size


def _wanted(writer: Definition) -> Iterator[list[Hashable]]:
    """What to look for: of the first of these that are found, the first in the union."""
    if not isinstance(writer, Record | Enum | Fixed):
        yield [writer.kind]
        yield [*PROMOTIONS.get(writer.kind, ())]
        return
    yield [(writer.kind, "called", writer.name)]
    if isinstance(writer, Fixed):
        yield [(_loosely(writer), writer.size)]
    yield [_loosely(writer)]


def _loosely(type_: Named) -> Hashable:
    return type_.kind, "unqualified", type_.unqualified
