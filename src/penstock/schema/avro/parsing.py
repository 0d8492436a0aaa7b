"""The parser from JSON values to types: names and namespaces, required attributes, uniqueness."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from penstock.core.schemas import SCHEMA_DEPTH_MAX
from penstock.schema.avro import defaults, document
from penstock.schema.avro.attributes import Tree, attribute, optional, other_properties, required, strings
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
    Primitive,
    Record,
    Schema,
    SchemaPath,
    Type,
    Union,
    refuse,
)
from penstock.schema.problems import fragment

FIXED_BYTES_MAX: Final = 2**31 - 1
"""The largest fixed that implementations with 32-bit lengths can hold."""

ORDERS: Final = ("ascending", "descending", "ignore")

_PART: Final = "[A-Za-z_][A-Za-z0-9_]*"
_SIMPLE_NAME: Final = re.compile(_PART, re.ASCII)
_FULL_NAME: Final = re.compile(rf"{_PART}(?:\.{_PART})*", re.ASCII)


def parse(text: str, references: Mapping[str, str]) -> Schema:
    """Parse a schema. Raises `InvalidSchema` with the path, as in `SchemaPath`."""
    document.check_volume((text, *references.values()))
    parser = Parser()
    # One text may define several of the names that are referred to.
    for source, name in {source: name for name, source in references.items()}.items():
        parser.read(source, SchemaPath(None, name))
    foreign = frozenset(parser.types)
    root = parser.read(text, SchemaPath())
    defaults.check_defaults(parser.types)
    return Schema(root, parser.types, frozenset(parser.types) - foreign)


class ParseScope(NamedTuple):
    """The namespace that names without one belong to within a type, and the depth of nesting."""

    namespace: str = ""
    depth: int = 0

    def within(self, namespace: str | None = None) -> ParseScope:
        return ParseScope(self.namespace if namespace is None else namespace, self.depth + 1)


class Parser:
    """A parser of several texts in turn; each text can use the types of those before it."""

    def __init__(self) -> None:
        self.types: dict[str, Record | Enum | Fixed] = {}
        self._open: set[str] = set()
        """Records whose fields are being parsed: they may contain themselves."""
        self._taken_names: set[str] = set()
        """Names and aliases of all types so far; no type may use one of them again."""

    def read(self, text: str, root: SchemaPath) -> Type:
        return self._type(document.parse_json(text, root), root, ParseScope())

    def _type(self, tree: Any, path: SchemaPath, scope: ParseScope) -> Type:
        if scope.depth > SCHEMA_DEPTH_MAX:
            refuse(f"types are nested more than {SCHEMA_DEPTH_MAX} deep", path)
        if isinstance(tree, dict):
            return self._object(tree, path, scope)
        if isinstance(tree, list):
            return self._union(tree, path, scope)
        if not isinstance(tree, str):
            refuse("a schema is a string, an object or an array", path)
        return self._named_type(tree, {}, path, scope)

    def _object(self, tree: Tree, path: SchemaPath, scope: ParseScope) -> Type:
        kind = required(tree, "type", str, path)
        build = self._KINDS.get(kind)
        if build is not None:
            return build(self, tree, path, scope)
        return self._named_type(kind, other_properties(tree, "type"), path, scope)

    def _named_type(self, name: str, properties: Tree, path: SchemaPath, scope: ParseScope) -> Type:
        """Return the type that has this name: a primitive type, or a link to a type that is already defined or just
        being defined. Raises `InvalidSchema` for an unknown name."""
        if name in PRIMITIVES:
            return Primitive(kind=name, logical=logical(name, properties), path=path, properties=properties)
        full = _qualified(name, scope.namespace)
        if full not in self.types and full not in self._open:
            refuse(f'type "{fragment(full)}" is not defined before it is used, nor by a reference', path)
        return Link(name=full, path=path, properties=properties)

    def _union(self, trees: list[Any], path: SchemaPath, scope: ParseScope) -> Union:
        branches = tuple(self._type(tree, path / index, scope.within()) for index, tree in enumerate(trees))
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, Union):
                refuse("a union may not directly contain a union", branch.path)
            key = branch.name if isinstance(branch, Link | Record | Enum | Fixed) else branch.kind
            if key in seen:
                refuse(f'a union may contain "{fragment(key)}" only once', branch.path)
            seen.add(key)
        return Union(branches=branches, path=path)

    def _array(self, tree: Tree, path: SchemaPath, scope: ParseScope) -> Array:
        items = self._type(attribute(tree, "items", path), path / "items", scope.within())
        return Array(items=items, path=path, properties=other_properties(tree, "type", "items"))

    def _map(self, tree: Tree, path: SchemaPath, scope: ParseScope) -> Map:
        values = self._type(attribute(tree, "values", path), path / "values", scope.within())
        return Map(values=values, path=path, properties=other_properties(tree, "type", "values"))

    def _record(self, tree: Tree, path: SchemaPath, scope: ParseScope) -> Record:
        name, aliases, doc = self._naming(tree, path, scope)
        self._open.add(name)
        inner = scope.within(name.rpartition(".")[0])
        trees = enumerate(required(tree, "fields", list, path))
        fields = tuple(self._field(each, path / "fields" / index, inner) for index, each in trees)
        _check_field_names(fields)
        self._open.remove(name)
        record_type = Record(
            name=name,
            aliases=aliases,
            doc=doc,
            fields=fields,
            keyword=tree["type"],
            path=path,
            properties=other_properties(tree, *_NAMING, "fields"),
        )
        self.types[name] = record_type
        return record_type

    def _field(self, tree: Any, path: SchemaPath, scope: ParseScope) -> Field:
        if not isinstance(tree, dict):
            refuse("a field is an object", path)
        order = optional(tree, "order", str, path) or ORDERS[0]
        if order not in ORDERS:
            refuse(f"the order of a field is one of {', '.join(ORDERS)}", path / "order")
        return Field(
            name=_simple_name(required(tree, "name", str, path), "field", path / "name"),
            type=self._type(attribute(tree, "type", path), path / "type", scope),
            aliases=strings(tree, "aliases", path),
            doc=optional(tree, "doc", str, path),
            default=Default(tree["default"]) if "default" in tree else None,
            order=order,
            path=path,
            properties=other_properties(tree, "name", "type", "aliases", "doc", "default", "order"),
        )

    def _enum(self, tree: Tree, path: SchemaPath, scope: ParseScope) -> Enum:
        name, aliases, doc = self._naming(tree, path, scope)
        required(tree, "symbols", list, path)
        symbols = strings(tree, "symbols", path)
        for index, symbol in enumerate(symbols):
            _simple_name(symbol, "symbol", path / "symbols" / index)
        _check_once(symbols, "symbol", path / "symbols")
        default = optional(tree, "default", str, path)
        if default is not None and default not in symbols:
            refuse(f'the default "{fragment(default)}" is not among the symbols', path / "default")
        enum_type = Enum(
            name=name,
            aliases=aliases,
            doc=doc,
            symbols=symbols,
            default=default,
            path=path,
            properties=other_properties(tree, *_NAMING, "symbols", "default"),
        )
        self.types[name] = enum_type
        return enum_type

    def _fixed(self, tree: Tree, path: SchemaPath, scope: ParseScope) -> Fixed:
        name, aliases, doc = self._naming(tree, path, scope)
        size = required(tree, "size", int, path)
        if not 0 <= size <= FIXED_BYTES_MAX:
            refuse(f"the size of a fixed is 0 to {FIXED_BYTES_MAX} bytes", path / "size")
        properties = other_properties(tree, *_NAMING, "size")
        fixed_type = Fixed(
            name=name,
            aliases=aliases,
            doc=doc,
            size=size,
            logical=logical("fixed", properties, size),
            path=path,
            properties=properties,
        )
        self.types[name] = fixed_type
        return fixed_type

    def _naming(self, tree: Tree, path: SchemaPath, scope: ParseScope) -> tuple[str, tuple[str, ...], str | None]:
        """Return full name, full aliases and documentation of a type defined here, and reserve its names."""
        name = _full_name(tree, path, scope)
        namespace = name.rpartition(".")[0]
        aliases = tuple(_qualified(alias, namespace) for alias in strings(tree, "aliases", path))
        if name in self._taken_names:
            refuse(f'"{fragment(name)}" is defined already, or an alias of another type', path / "name")
        for taken in self._taken_names.intersection(aliases):
            refuse(f'the alias "{fragment(taken)}" is the name or an alias of another type', path / "aliases")
        self._taken_names.update((name, *aliases))
        return name, aliases, optional(tree, "doc", str, path)

    _KINDS: ClassVar[Mapping[str, Callable[[Parser, Tree, SchemaPath, ParseScope], Type]]] = {
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


def _full_name(tree: Tree, path: SchemaPath, scope: ParseScope) -> str:
    name = required(tree, "name", str, path)
    own = optional(tree, "namespace", str, path)
    if "." not in name and own and not _FULL_NAME.fullmatch(own):
        refuse(f'"{fragment(own)}" is not a namespace: names with dots between them', path / "namespace")
    full = _qualified(name, scope.namespace if own is None else own)
    if not _FULL_NAME.fullmatch(full):
        refuse(f'"{fragment(name)}" is not a name: {_NAMES}, or several with dots between them', path / "name")
    if full.rpartition(".")[2] in PRIMITIVES:
        refuse(f'"{fragment(name)}" is the name of a primitive type', path / "name")
    return full


_NAMES: Final = "letters, digits and _, no digit first"


def _simple_name(name: str, what: str, path: SchemaPath) -> str:
    if not _SIMPLE_NAME.fullmatch(name):
        refuse(f'"{fragment(name)}" is not a name for a {what}: {_NAMES}', path)
    return name


def _check_field_names(fields: Iterable[Field]) -> None:
    """Raise `InvalidSchema` unless the names and aliases of a record's fields are unique. Otherwise it would be unclear
    which field reads the data."""
    owners: dict[str, Field] = {}
    for field in fields:
        if field.name in owners:
            refuse(f'the record has two fields "{fragment(field.name)}"', field.path / "name")
        owners[field.name] = field
    for field in fields:
        for alias in field.aliases:
            if owners.setdefault(alias, field) is not field:
                refuse(
                    f'the alias "{fragment(alias)}" is the name or an alias of another field', field.path / "aliases"
                )


def _check_once(names: Iterable[str], what: str, path: SchemaPath) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            refuse(f'the {what} "{fragment(name)}" occurs twice', path / index)
        seen.add(name)
