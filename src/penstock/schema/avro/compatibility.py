"""Compatibility of a reader's and a writer's Avro schema: the specification's schema resolution."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

from penstock.schema.avro.canonical import to_json
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
    Primitive,
    Record,
    Schema,
    SchemaPath,
    Type,
    Union,
)
from penstock.schema.problems import FRAGMENT_CHARS_MAX, PROBLEMS_MAX, Problem, fragment

_MEMBERS_MAX: Final = FRAGMENT_CHARS_MAX // len('"x",')
"""Members of a list that a problem quotes. A longer list would exceed `FRAGMENT_CHARS_MAX` and be cut off anyway."""


def quoted(piece: Type | Field) -> str:
    if isinstance(piece, Field):
        return fragment(to_json({"name": fragment(piece.name), "type": _used(piece.type)}))
    return fragment(to_json(_defined(piece)))


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
"""The specification's promotions: data written as the key can be read as any of the values. Bytes can be read as a
string because the specification says so, although reading fails for bytes that are not UTF-8."""


def readable_as(kind: str) -> tuple[str, ...]:
    return (kind, *PROMOTIONS.get(kind, ()))


def names_match(reader: Named, writer: Named) -> bool:
    """Return whether the names of two types match: they are equal without namespaces, or the writer's full name is an
    alias of the reader's type."""
    return reader.unqualified == writer.unqualified or writer.name in reader.aliases


class UnionBranches:
    """The branches of a reader's union, indexed for matching.

    By the specification, the first branch that matches reads a value. Types with the same name in different namespaces
    all match, so that a schema could fail to read data that it wrote. Therefore a branch with the same full name is
    preferred to all others, a fixed of the same size to one of another size, and the same type to those it can be
    promoted to.
    """

    def __init__(self, branches: Iterable[Definition]) -> None:
        self._found: dict[Hashable, tuple[int, Definition]] = {}
        for index, branch in enumerate(branches):
            for key in _branch_keys(branch):
                self._found.setdefault(key, (index, branch))

    def match(self, writer: Definition) -> Definition | None:
        """Return the branch that reads values of the writer's type; None if no branch does."""
        for keys in _lookup_keys(writer):
            matching = [self._found[key] for key in keys if key in self._found]
            if matching:
                return min(matching, key=itemgetter(0))[1]
        return None


def _branch_keys(reader: Definition) -> Iterator[Hashable]:
    """Yield the keys under which a branch is indexed."""
    if not isinstance(reader, Record | Enum | Fixed):
        yield reader.kind
        return
    for name in (reader.name, *reader.aliases):
        yield reader.kind, "called", name
    yield _unqualified_key(reader)
    if isinstance(reader, Fixed):
        yield _unqualified_key(reader), reader.size


def _lookup_keys(writer: Definition) -> Iterator[list[Hashable]]:
    """Yield groups of keys to look up, the best matches first. The first group with a match decides, and in it the
    branch that comes first in the union."""
    if not isinstance(writer, Record | Enum | Fixed):
        yield [writer.kind]
        yield [*PROMOTIONS.get(writer.kind, ())]
        return
    yield [(writer.kind, "called", writer.name)]
    if isinstance(writer, Fixed):
        yield [(_unqualified_key(writer), writer.size)]
    yield [_unqualified_key(writer)]


def _unqualified_key(type_: Named) -> Hashable:
    return type_.kind, "unqualified", type_.unqualified


STEPS_MAX: Final = 100_000
"""Types, fields, aliases, symbols and branches visited in one comparison: some ten times as many as the largest public
schemas need, and a quarter of a second."""


class TypePair(NamedTuple):
    """A type that data is read as, and the type that it was written as."""

    reader: Type
    writer: Type


ProblemsAndPairs = Iterator[Problem | TypePair]


def problems(reader: Schema, writer: Schema) -> list[Problem]:
    """Return the reasons why `reader` cannot read data written with `writer`, in the order of the reader's schema, at
    most `PROBLEMS_MAX`. An empty list means that it can."""
    return Comparison(reader, writer).run()


class Comparison:
    def __init__(self, reader: Schema, writer: Schema) -> None:
        self._reader = reader
        self._writer = writer
        self._agenda = [TypePair(reader.root, writer.root)]
        self._met: set[tuple[int, int]] = set()
        """Pairs of a reader's and a writer's type that were compared already, as the `id`s of both."""
        self._branches: dict[int, UnionBranches] = {}
        self._found: dict[Problem, None] = {}
        self._steps = 0

    def run(self) -> list[Problem]:
        while self._agenda and len(self._found) < PROBLEMS_MAX:
            if self._steps > STEPS_MAX:
                return [*self._found, _too_large()]
            self._compare(self._agenda.pop())
        return list(self._found)

    def _compare(self, pair: TypePair) -> None:
        """Compare a pair and record its problems. The pairs of types within it are put at the end of the agenda, so
        that they are compared next."""
        self._steps += 1
        pairs: list[TypePair] = []
        for outcome in self._problems_and_pairs(pair):
            if isinstance(outcome, TypePair):
                pairs.append(outcome)
            elif len(self._found) < PROBLEMS_MAX:
                self._found[outcome] = None
            else:
                return
        self._agenda += reversed(pairs)

    def _problems_and_pairs(self, pair: TypePair) -> ProblemsAndPairs:
        reader, writer = self._reader.resolve(pair.reader), self._writer.resolve(pair.writer)
        if isinstance(writer, Union):
            yield from self._compare_branches(pair.reader, writer)
        elif isinstance(reader, Union):
            yield self._matching_branch(reader, pair.writer) or _missing_branch(pair, writer, pair.reader.path)
        elif type(reader) is not type(writer):
            yield _type_mismatch(pair, reader, writer)
        else:
            yield from self._compare_once(pair, reader, writer)

    def _compare_once(self, pair: TypePair, reader: Definition, writer: Definition) -> ProblemsAndPairs:
        """Yield the problems of two types of the same kind, unless the two were compared before. So the problems of a
        named type are reported once, at its definition, however often the type is used."""
        key = id(reader), id(writer)
        if key not in self._met:
            self._met.add(key)
            yield from self._RULES[type(reader)](self, pair, reader, writer)

    # Unions

    def _compare_branches(self, reader: Type, writer: Union) -> ProblemsAndPairs:
        """Require that the reader can read every branch of the writer's union."""
        self._steps += len(writer.branches)
        union = self._reader.resolve(reader)
        for branch in writer.branches:
            if not isinstance(union, Union):
                yield TypePair(reader, branch)
                continue
            matched = self._matching_branch(union, branch)
            yield matched or _missing_branch(TypePair(union, branch), self._writer.resolve(branch), branch.path)

    def _matching_branch(self, reader: Union, writer: Type) -> TypePair | None:
        if id(reader) not in self._branches:
            self._steps += len(reader.branches)
            self._branches[id(reader)] = UnionBranches(map(self._reader.resolve, reader.branches))
        branch = self._branches[id(reader)].match(self._writer.resolve(writer))
        return None if branch is None else TypePair(branch, writer)

    # Types of one kind

    def _primitives(self, pair: TypePair, reader: Primitive, writer: Primitive) -> ProblemsAndPairs:
        if reader.kind in readable_as(writer.kind):
            yield from _logical_problems(reader, writer)
        else:
            yield _type_mismatch(pair, reader, writer)

    def _arrays(self, _: TypePair, reader: Array, writer: Array) -> ProblemsAndPairs:
        yield TypePair(reader.items, writer.items)

    def _maps(self, _: TypePair, reader: Map, writer: Map) -> ProblemsAndPairs:
        yield TypePair(reader.values, writer.values)

    def _fixeds(self, _: TypePair, reader: Fixed, writer: Fixed) -> ProblemsAndPairs:
        yield from self._names(reader, writer)
        yield from _size_problems(reader, writer)
        yield from _logical_problems(reader, writer)

    def _enums(self, _: TypePair, reader: Enum, writer: Enum) -> ProblemsAndPairs:
        self._steps += len(reader.symbols) + len(writer.symbols)
        yield from self._names(reader, writer)
        yield from _symbol_problems(reader, writer)

    def _records(self, _: TypePair, reader: Record, writer: Record) -> ProblemsAndPairs:
        self._steps += len(writer.fields)
        yield from self._names(reader, writer)
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            self._steps += 1 + len(field.aliases)
            source = next((written[name] for name in (field.name, *field.aliases) if name in written), None)
            if source is not None:
                yield TypePair(field.type, source.type)
            elif field.default is None:
                yield _missing_default(field, reader, writer)

    def _names(self, reader: Record | Enum | Fixed, writer: Record | Enum | Fixed) -> ProblemsAndPairs:
        self._steps += len(reader.aliases)
        if not names_match(reader, writer):
            yield _name_mismatch(reader, writer)

    _RULES: Final[Mapping[type[Definition], Callable[[Comparison, TypePair, Any, Any], ProblemsAndPairs]]] = {
        Primitive: _primitives,
        Array: _arrays,
        Map: _maps,
        Fixed: _fixeds,
        Enum: _enums,
        Record: _records,
    }


# Problems


def _problem(kind: str, path: SchemaPath, pair: tuple[Type | Field, Type | Field], message: str, fix: str) -> Problem:
    reader, writer = pair
    return Problem(kind=kind, path=str(path), message=message, reader=quoted(reader), writer=quoted(writer), fix=fix)


def _type_mismatch(pair: TypePair, reader: Definition, writer: Definition) -> Problem:
    suitable = readable_as(writer.kind) if isinstance(writer, Primitive) else (str(writer),)
    return _problem(
        "TYPE_MISMATCH",
        pair.reader.path,
        (reader, writer),
        f"what is written as {writer} cannot be read as {reader}",
        f"read it as {' or '.join(suitable)}, or as a union with a branch for it",
    )


def _missing_branch(pair: TypePair, writer: Definition, path: SchemaPath) -> Problem:
    return _problem(
        "MISSING_UNION_BRANCH",
        path,
        pair,
        f"the writer may write {writer}, for which the reader's union has no branch",
        f"add {writer} to the reader's union",
    )


def _missing_default(field: Field, reader: Record, writer: Record) -> Problem:
    name = fragment(field.name)
    return _problem(
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        field.path,
        (field, writer),
        f'field "{name}" of {reader} is not in what the writer writes, and has no default',
        f'give field "{name}" a default, or the name that the writer has for it as an alias',
    )


def _name_mismatch(reader: Record | Enum | Fixed, writer: Record | Enum | Fixed) -> Problem:
    return _problem(
        "NAME_MISMATCH",
        reader.path / "name",
        (reader, writer),
        f"what is written as {writer} is read as {reader}, which has another name",
        f'give {reader} the alias "{fragment(writer.name)}"',
    )


def _size_problems(reader: Fixed, writer: Fixed) -> ProblemsAndPairs:
    if reader.size != writer.size:
        yield _problem(
            "FIXED_SIZE_MISMATCH",
            reader.path / "size",
            (reader, writer),
            f"{writer} is written with {writer.size} bytes and read with {reader.size}",
            f"keep the size of {writer.size} bytes, or define a type of another name",
        )


def _symbol_problems(reader: Enum, writer: Enum) -> ProblemsAndPairs:
    known = frozenset(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if missing and reader.default is None:
        listed = fragment(", ".join(missing))
        yield _problem(
            "MISSING_ENUM_SYMBOLS",
            reader.path / "symbols",
            (reader, writer),
            f"the writer may write {listed}, which {reader} does not have",
            f"add {listed} to the reader's symbols, or give its enum a default",
        )


def _logical_problems(reader: Primitive | Fixed, writer: Primitive | Fixed) -> ProblemsAndPairs:
    """Yield a problem if both sides have a logical type and the two differ. If only one side has one, the other uses
    the underlying type, which is no problem."""
    read, written = reader.logical, writer.logical
    if read is None or written is None or read == written:
        return
    alike = read.name == written.name == DECIMAL
    yield _problem(
        "DECIMAL_MISMATCH" if alike else "LOGICAL_TYPE_MISMATCH",
        reader.path,
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
