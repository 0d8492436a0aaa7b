"""Can a reader with one Avro schema read what was written with another? The specification's schema resolution."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

from penstock.schema.avro.canonical import json_of
from penstock.schema.avro.logical import DECIMAL
from penstock.schema.avro.model import (
    Array,
    Definition,
    Enum,
    Field,
    Fixed,
    Link,
    Map,
    Named,
    Place,
    Primitive,
    Record,
    Schema,
    Type,
    Union,
)
from penstock.schema.problems import FRAGMENT_CHARS_MAX, PROBLEMS_MAX, Problem, fragment

_MEMBERS_MAX: Final = FRAGMENT_CHARS_MAX // len('"x",')
"""Of a list: where there are more, the quotation ends within them."""


def quoted(piece: Type | Field) -> str:
    if isinstance(piece, Field):
        return fragment(json_of({"name": fragment(piece.name), "type": _used(piece.type)}))
    return fragment(json_of(_defined(piece)))


def _defined(type_: Type) -> Any:
    match type_:
        case Record(name=name, keyword=keyword):
            return {"name": name, "type": keyword}
        case Enum(name=name, symbols=symbols):
            return {"name": name, "symbols": symbols[:_MEMBERS_MAX], "type": "enum"}
        case Fixed(name=name, size=size):
            return {"name": name, "size": size, "type": "fixed"} | _logical(type_)
        case _:
            return _used(type_)


def _used(type_: Type) -> Any:
    match type_:
        case Primitive(kind=kind):
            return {"type": kind} | _logical(type_) if type_.logical else kind
        case Array(items=items):
            return {"items": _used(items), "type": "array"}
        case Map(values=values):
            return {"type": "map", "values": _used(values)}
        case Union(branches=branches):
            return [_used(branch) for branch in branches[:_MEMBERS_MAX]]
        case Link() | Record() | Enum() | Fixed():
            return type_.name


def _logical(type_: Primitive | Fixed) -> dict[str, Any]:
    if type_.logical is None:
        return {}
    name, precision, scale = type_.logical
    numbers = {"precision": precision, "scale": scale} if precision else {}
    return {"logicalType": name} | numbers


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


STEPS_MAX: Final = 100_000
"""Types, fields, aliases, symbols and branches looked at in one comparison: some ten times what the largest public
schemas need, and a quarter of a second."""


class Pair(NamedTuple):
    """Read as the one, written as the other."""

    reader: Type
    writer: Type


Findings = Iterator[Problem | Pair]


def problems(reader: Schema, writer: Schema) -> list[Problem]:
    """At most `PROBLEMS_MAX`, in the order of the reader's schema."""
    return Comparison(reader, writer).run()


class Comparison:
    def __init__(self, reader: Schema, writer: Schema) -> None:
        self._reader = reader
        self._writer = writer
        self._agenda = [Pair(reader.root, writer.root)]
        self._met: set[tuple[int, int]] = set()
        """Pairs of types of one kind, by identity."""
        self._branches: dict[int, Branches] = {}
        self._found: dict[Problem, None] = {}
        self._steps = 0

    def run(self) -> list[Problem]:
        while self._agenda and len(self._found) < PROBLEMS_MAX:
            if self._steps > STEPS_MAX:
                return [*self._found, _too_large()]
            self._look_at(self._agenda.pop())
        return list(self._found)

    def _look_at(self, pair: Pair) -> None:
        """The pairs within it come next, before all that were waiting."""
        self._steps += 1
        pairs: list[Pair] = []
        for finding in self._findings(pair):
            if isinstance(finding, Pair):
                pairs.append(finding)
            elif len(self._found) < PROBLEMS_MAX:
                self._found[finding] = None
            else:
                return
        self._agenda += reversed(pairs)

    def _findings(self, pair: Pair) -> Findings:
        reader, writer = self._reader.resolve(pair.reader), self._writer.resolve(pair.writer)
        if isinstance(writer, Union):
            yield from self._each_branch(pair.reader, writer)
        elif isinstance(reader, Union):
            yield self._matching_branch(reader, pair.writer) or _missing_branch(pair, writer, pair.reader.place)
        elif type(reader) is not type(writer):
            yield _type_mismatch(pair, reader, writer)
        else:
            yield from self._once(pair, reader, writer)

    def _once(self, pair: Pair, reader: Definition, writer: Definition) -> Findings:
        """What is wrong with named types is wrong where they are defined, however often they are used."""
        key = id(reader), id(writer)
        if key not in self._met:
            self._met.add(key)
            yield from self._RULES[type(reader)](self, pair, reader, writer)

    # Unions

    def _each_branch(self, reader: Type, writer: Union) -> Findings:
        """Whatever the writer may choose has to be readable."""
        self._steps += len(writer.branches)
        union = self._reader.resolve(reader)
        for branch in writer.branches:
            if not isinstance(union, Union):
                yield Pair(reader, branch)
                continue
            found = self._matching_branch(union, branch)
            yield found or _missing_branch(Pair(union, branch), self._writer.resolve(branch), branch.place)

    def _matching_branch(self, reader: Union, writer: Type) -> Pair | None:
        if id(reader) not in self._branches:
            self._steps += len(reader.branches)
            self._branches[id(reader)] = Branches(map(self._reader.resolve, reader.branches))
        found = self._branches[id(reader)].match(self._writer.resolve(writer))
        return None if found is None else Pair(found, writer)

    # Types of one kind

    def _primitives(self, pair: Pair, reader: Primitive, writer: Primitive) -> Findings:
        if reader.kind in readable_as(writer.kind):
            yield from _logical_problems(reader, writer)
        else:
            yield _type_mismatch(pair, reader, writer)

    def _arrays(self, _: Pair, reader: Array, writer: Array) -> Findings:
        yield Pair(reader.items, writer.items)

    def _maps(self, _: Pair, reader: Map, writer: Map) -> Findings:
        yield Pair(reader.values, writer.values)

    def _fixeds(self, _: Pair, reader: Fixed, writer: Fixed) -> Findings:
        yield from self._names(reader, writer)
        yield from _size_problems(reader, writer)
        yield from _logical_problems(reader, writer)

    def _enums(self, _: Pair, reader: Enum, writer: Enum) -> Findings:
        self._steps += len(reader.symbols) + len(writer.symbols)
        yield from self._names(reader, writer)
        yield from _symbol_problems(reader, writer)

    def _records(self, _: Pair, reader: Record, writer: Record) -> Findings:
        self._steps += len(writer.fields)
        yield from self._names(reader, writer)
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            self._steps += 1 + len(field.aliases)
            source = next((written[name] for name in (field.name, *field.aliases) if name in written), None)
            if source is not None:
                yield Pair(field.type, source.type)
            elif field.default is None:
                yield _missing_default(field, reader, writer)

    def _names(self, reader: Record | Enum | Fixed, writer: Record | Enum | Fixed) -> Findings:
        self._steps += len(reader.aliases)
        if not names_match(reader, writer):
            yield _name_mismatch(reader, writer)

    _RULES: Final[Mapping[type[Definition], Callable[[Comparison, Pair, Any, Any], Findings]]] = {
        Primitive: _primitives,
        Array: _arrays,
        Map: _maps,
        Fixed: _fixeds,
        Enum: _enums,
        Record: _records,
    }


# Problems


def _problem(kind: str, place: Place, pair: tuple[Type | Field, Type | Field], message: str, fix: str) -> Problem:
    reader, writer = pair
    return Problem(kind=kind, path=str(place), message=message, reader=quoted(reader), writer=quoted(writer), fix=fix)


def _type_mismatch(pair: Pair, reader: Definition, writer: Definition) -> Problem:
    suitable = readable_as(writer.kind) if isinstance(writer, Primitive) else (str(writer),)
    return _problem(
        "TYPE_MISMATCH",
        pair.reader.place,
        (reader, writer),
        f"what is written as {writer} cannot be read as {reader}",
        f"read it as {' or '.join(suitable)}, or as a union with a branch for it",
    )


def _missing_branch(pair: Pair, writer: Definition, place: Place) -> Problem:
    return _problem(
        "MISSING_UNION_BRANCH",
        place,
        pair,
        f"the writer may write {writer}, for which the reader's union has no branch",
        f"add {writer} to the reader's union",
    )


def _missing_default(field: Field, reader: Record, writer: Record) -> Problem:
    name = fragment(field.name)
    return _problem(
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        field.place,
        (field, writer),
        f'field "{name}" of {reader} is not in what the writer writes, and has no default',
        f'give field "{name}" a default, or the name that the writer has for it as an alias',
    )


def _name_mismatch(reader: Record | Enum | Fixed, writer: Record | Enum | Fixed) -> Problem:
    return _problem(
        "NAME_MISMATCH",
        reader.place / "name",
        (reader, writer),
        f"what is written as {writer} is read as {reader}, which has another name",
        f'give {reader} the alias "{fragment(writer.name)}"',
    )


def _size_problems(reader: Fixed, writer: Fixed) -> Findings:
    if reader.size != writer.size:
        yield _problem(
            "FIXED_SIZE_MISMATCH",
            reader.place / "size",
            (reader, writer),
            f"{writer} is written with {writer.size} bytes and read with {reader.size}",
            f"keep the size of {writer.size} bytes, or define a type of another name",
        )


def _symbol_problems(reader: Enum, writer: Enum) -> Findings:
    known = frozenset(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if missing and reader.default is None:
        listed = fragment(", ".join(missing))
        yield _problem(
            "MISSING_ENUM_SYMBOLS",
            reader.place / "symbols",
            (reader, writer),
            f"the writer may write {listed}, which {reader} does not have",
            f"add {listed} to the reader's symbols, or give its enum a default",
        )


def _logical_problems(reader: Primitive | Fixed, writer: Primitive | Fixed) -> Findings:
    """Where both say what they stand for, it has to be the same. One that says nothing takes and gives bare values."""
    read, written = reader.logical, writer.logical
    if read is None or written is None or read == written:
        return
    alike = read.name == written.name == DECIMAL
    yield _problem(
        "DECIMAL_MISMATCH" if alike else "LOGICAL_TYPE_MISMATCH",
        reader.place,
        (reader, writer),
        f"what is written as {written} would mean something else when it is read as {read}",
        f"keep {written}, or add a field of another name for {read}",
    )


def _too_large() -> Problem:
    return Problem(
        kind="COMPARISON_TOO_LARGE",
        path="",
        message=f"the two schemas take more than {STEPS_MAX} steps to compare, so nothing is said about the rest",
        fix="use fewer types of the same name in unions, or split the schema",
    )
