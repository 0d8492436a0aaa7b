"""From JSON values to types: names and namespaces, what each kind of type must have, what may not be twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from penstock.core.schemas import SCHEMA_DEPTH_MAX
from penstock.schema.avro import defaults, document
from penstock.schema.avro.attributes import Tree, given, optional, required, rest, strings
from penstock.schema.avro.logical import logical
from penstock.schema.avro.model import (
    PRIMITIVES,
    Array,
    Default,
    Enum,
    Field,
    Fixed,
    Link,
    Map,
    Place,
    Primitive,
    Record,
    Schema,
    Type,
    Union,
    refuse,
)
from penstock.schema.problems import fragment

FIXED_BYTES_MAX: Final = 2**31 - 1
"""What implementations with 32-bit lengths can hold."""

ORDERS: Final = ("ascending", "descending", "ignore")

_PART: Final = "[A-Za-z_][A-Za-z0-9_]*"
_SIMPLE_NAME: Final = re.compile(_PART, re.ASCII)
_FULL_NAME: Final = re.compile(rf"{_PART}(?:\.{_PART})*", re.ASCII)


def parse(text: str, references: Mapping[str, str]) -> Schema:
    """Raises `InvalidSchema` with the place, as in `Place`."""
    document.check_volume((text, *references.values()))
    parser = Parser()
    # One text may define several of the names that are referred to.
    for source, name in {source: name for name, source in references.items()}.items():
        parser.read(source, Place(None, name))
    foreign = frozenset(parser.types)
    root = parser.read(text, Place())
    defaults.check(parser.types)
    return Schema(root, parser.types, frozenset(parser.types) - foreign)


class Scope(NamedTuple):
    """What the types around say about those within."""

    namespace: str = ""
    depth: int = 0

    def within(self, namespace: str | None = None) -> Scope:
        return Scope(self.namespace if namespace is None else namespace, self.depth + 1)


class Parser:
    """Reads texts one after another; each knows the types of those before it."""

    def __init__(self) -> None:
        self.types: dict[str, Record | Enum | Fixed] = {}
        self._open: set[str] = set()
        """Records whose fields are being read: they may contain themselves."""
        self._taken: set[str] = set()
        """Names and aliases of types."""

    def read(self, text: str, root: Place) -> Type:
        return self._type(document.read(text, root), root, Scope())

    def _type(self, tree: Any, place: Place, scope: Scope) -> Type:
        if scope.depth > SCHEMA_DEPTH_MAX:
            refuse(f"types are nested more than {SCHEMA_DEPTH_MAX} deep", place)
        if isinstance(tree, dict):
            return self._object(tree, place, scope)
        if isinstance(tree, list):
            return self._union(tree, place, scope)
        if not isinstance(tree, str):
            refuse("a schema is a string, an object or an array", place)
        return self._mentioned(tree, {}, place, scope)

    def _object(self, tree: Tree, place: Place, scope: Scope) -> Type:
        kind = required(tree, "type", str, place)
        build = self._KINDS.get(kind)
        if build is not None:
            return build(self, tree, place, scope)
        return self._mentioned(kind, rest(tree, "type"), place, scope)

    def _mentioned(self, name: str, properties: Tree, place: Place, scope: Scope) -> Type:
        """A type that needs no definition here: a primitive one, or one that was defined before."""
        if name in PRIMITIVES:
            return Primitive(kind=name, logical=logical(name, properties), place=place, properties=properties)
        full = _qualified(name, scope.namespace)
        if full not in self.types and full not in self._open:
            refuse(f'type "{fragment(full)}" is not defined before it is used, nor by a reference', place)
        return Link(name=full, place=place, properties=properties)

    def _union(self, trees: list[Any], place: Place, scope: Scope) -> Union:
        branches = tuple(self._type(tree, place / index, scope.within()) for index, tree in enumerate(trees))
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, Union):
                refuse("a union may not directly contain a union", branch.place)
            key = branch.name if isinstance(branch, Link | Record | Enum | Fixed) else branch.kind
            if key in seen:
                refuse(f'a union may contain "{fragment(key)}" only once', branch.place)
            seen.add(key)
        return Union(branches=branches, place=place)

    def _array(self, tree: Tree, place: Place, scope: Scope) -> Array:
        items = self._type(given(tree, "items", place), place / "items", scope.within())
        return Array(items=items, place=place, properties=rest(tree, "type", "items"))

    def _map(self, tree: Tree, place: Place, scope: Scope) -> Map:
        values = self._type(given(tree, "values", place), place / "values", scope.within())
        return Map(values=values, place=place, properties=rest(tree, "type", "values"))

    def _record(self, tree: Tree, place: Place, scope: Scope) -> Record:
        name, aliases, doc = self._naming(tree, place, scope)
        self._open.add(name)
        inner = scope.within(name.rpartition(".")[0])
        trees = enumerate(required(tree, "fields", list, place))
        fields = tuple(self._field(each, place / "fields" / index, inner) for index, each in trees)
        _check_field_names(fields)
        self._open.remove(name)
        made = Record(
            name=name,
            aliases=aliases,
            doc=doc,
            fields=fields,
            keyword=tree["type"],
            place=place,
            properties=rest(tree, *_NAMING, "fields"),
        )
        self.types[name] = made
        return made

    def _field(self, tree: Any, place: Place, scope: Scope) -> Field:
        if not isinstance(tree, dict):
            refuse("a field is an object", place)
        order = optional(tree, "order", str, place) or ORDERS[0]
        if order not in ORDERS:
            refuse(f"the order of a field is one of {', '.join(ORDERS)}", place / "order")
        return Field(
            name=_simple_name(required(tree, "name", str, place), "field", place / "name"),
            type=self._type(given(tree, "type", place), place / "type", scope),
            aliases=strings(tree, "aliases", place),
            doc=optional(tree, "doc", str, place),
            default=Default(tree["default"]) if "default" in tree else None,
            order=order,
            place=place,
            properties=rest(tree, "name", "type", "aliases", "doc", "default", "order"),
        )

    def _enum(self, tree: Tree, place: Place, scope: Scope) -> Enum:
        name, aliases, doc = self._naming(tree, place, scope)
        required(tree, "symbols", list, place)
        symbols = strings(tree, "symbols", place)
        for index, symbol in enumerate(symbols):
            _simple_name(symbol, "symbol", place / "symbols" / index)
        _check_once(symbols, "symbol", place / "symbols")
        default = optional(tree, "default", str, place)
        if default is not None and default not in symbols:
            refuse(f'the default "{fragment(default)}" is not among the symbols', place / "default")
        made = Enum(
            name=name,
            aliases=aliases,
            doc=doc,
            symbols=symbols,
            default=default,
            place=place,
            properties=rest(tree, *_NAMING, "symbols", "default"),
        )
        self.types[name] = made
        return made

    def _fixed(self, tree: Tree, place: Place, scope: Scope) -> Fixed:
        name, aliases, doc = self._naming(tree, place, scope)
        size = required(tree, "size", int, place)
        if not 0 <= size <= FIXED_BYTES_MAX:
            refuse(f"the size of a fixed is 0 to {FIXED_BYTES_MAX} bytes", place / "size")
        properties = rest(tree, *_NAMING, "size")
        made = Fixed(
            name=name,
            aliases=aliases,
            doc=doc,
            size=size,
            logical=logical("fixed", properties, size),
            place=place,
            properties=properties,
        )
        self.types[name] = made
        return made

    def _naming(self, tree: Tree, place: Place, scope: Scope) -> tuple[str, tuple[str, ...], str | None]:
        """Full name, full aliases and documentation of a type that is defined here. Its names are taken from now on."""
        name = _full_name(tree, place, scope)
        namespace = name.rpartition(".")[0]
        aliases = tuple(_qualified(alias, namespace) for alias in strings(tree, "aliases", place))
        if name in self._taken:
            refuse(f'"{fragment(name)}" is defined already, or an alias of another type', place / "name")
        for taken in self._taken.intersection(aliases):
            refuse(f'the alias "{fragment(taken)}" is the name or an alias of another type', place / "aliases")
        self._taken.update((name, *aliases))
        return name, aliases, optional(tree, "doc", str, place)

    _KINDS: ClassVar[Mapping[str, Callable[[Parser, Tree, Place, Scope], Type]]] = {
        "record": _record,
        "error": _record,
        "enum": _enum,
        "fixed": _fixed,
        "array": _array,
        "map": _map,
    }


_NAMING: Final = ("type", "name", "namespace", "aliases", "doc")


def _qualified(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _full_name(tree: Tree, place: Place, scope: Scope) -> str:
    name = required(tree, "name", str, place)
    own = optional(tree, "namespace", str, place)
    if "." not in name and own and not _FULL_NAME.fullmatch(own):
        refuse(f'"{fragment(own)}" is not a namespace: names with dots between them', place / "namespace")
    full = _qualified(name, scope.namespace if own is None else own)
    if not _FULL_NAME.fullmatch(full):
        refuse(f'"{fragment(name)}" is not a name: {_NAMES}, or several with dots between them', place / "name")
    if full.rpartition(".")[2] in PRIMITIVES:
        refuse(f'"{fragment(name)}" is the name of a primitive type', place / "name")
    return full


_NAMES: Final = "letters, digits and _, no digit first"


def _simple_name(name: str, what: str, place: Place) -> str:
    if not _SIMPLE_NAME.fullmatch(name):
        refuse(f'"{fragment(name)}" is not a name for a {what}: {_NAMES}', place)
    return name


def _check_field_names(fields: Iterable[Field]) -> None:
    """Aliases are names too: it would not be known whose data is meant."""
    owners: dict[str, Field] = {}
    for field in fields:
        if field.name in owners:
            refuse(f'the record has two fields "{fragment(field.name)}"', field.place / "name")
        owners[field.name] = field
    for field in fields:
        for alias in field.aliases:
            if owners.setdefault(alias, field) is not field:
                refuse(
                    f'the alias "{fragment(alias)}" is the name or an alias of another field', field.place / "aliases"
                )


def _check_once(names: Iterable[str], what: str, place: Place) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            refuse(f'the {what} "{fragment(name)}" occurs twice', place / index)
        seen.add(name)
