"""The model of an Avro schema: values that know their position in the text, without parsing or comparing.

A type that is defined elsewhere is a `Link` with its full name, so that the model has no cycles: `Schema.resolve` leads
to the definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, NoReturn

from penstock.schema.errors import InvalidSchema
from penstock.schema.problems import fragment

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True, eq=False)
class SchemaPath:
    """A position in a text, written as a JSON pointer; in a reference's text, the reference's name and `#` stand before
    it."""

    parent: SchemaPath | None = None
    token: str | int = ""
    """The last step of the path; at the root of a text the name of its reference, empty for the schema itself."""

    def __truediv__(self, token: str | int) -> SchemaPath:
        return SchemaPath(self, token)

    def __str__(self) -> str:
        root, *steps = self._tokens()
        return (f"{fragment(root)}#" if root else "") + pointer(steps)

    @property
    def reference(self) -> str:
        """The name of the reference whose text this is; empty in the schema's own text."""
        return self._tokens()[0]

    def _tokens(self) -> list[str]:
        """Return the tokens from the root on."""
        tokens: list[str] = []
        path: SchemaPath | None = self
        while path is not None:
            tokens.append(str(path.token))
            path = path.parent
        return tokens[::-1]


def pointer(tokens: Iterable[str]) -> str:
    """Return a JSON pointer of these tokens."""
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def refuse(message: str, path: SchemaPath) -> NoReturn:
    """Raise `InvalidSchema` with this path in its details. If the path is in a reference's text, the message names the
    reference."""
    where = f'in reference "{fragment(path.reference)}": ' if path.reference else ""
    raise InvalidSchema(where + message, path=str(path))


class Logical(NamedTuple):
    """A logical type, such as `timestamp-millis`: the meaning of a type's values. Only a decimal has precision and
    scale."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"{self.name}({self.precision}, {self.scale})" if self.name == "decimal" else self.name


class Default(NamedTuple):
    """A field's default, which may be null."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TypeNode:
    """A type with its path and the properties that the specification does not define."""

    path: SchemaPath
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Primitive(TypeNode):
    kind: str
    logical: Logical | None = None

    def __str__(self) -> str:
        return f"{self.kind} ({self.logical})" if self.logical else self.kind


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Link(TypeNode):
    """The use, by its full name, of a named type that is defined elsewhere."""

    name: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Array(TypeNode):
    kind: ClassVar[str] = "array"
    items: Type

    def __str__(self) -> str:
        return "array"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Map(TypeNode):
    kind: ClassVar[str] = "map"
    values: Type

    def __str__(self) -> str:
        return "map"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Union(TypeNode):
    kind: ClassVar[str] = "union"
    branches: tuple[Type, ...]

    def __str__(self) -> str:
        return f"union of {len(self.branches)}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Named(TypeNode):
    """A type with a full name, and its aliases as full names."""

    kind: ClassVar[str]
    name: str
    aliases: tuple[str, ...] = ()
    doc: str | None = None

    @property
    def unqualified(self) -> str:
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        return f'{self.kind} "{fragment(self.name)}"'


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Field:
    name: str
    type: Type
    path: SchemaPath
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    default: Default | None = None
    order: str = "ascending"
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Record(Named):
    kind: ClassVar[str] = "record"
    fields: tuple[Field, ...]
    keyword: str = "record"
    """The keyword: `record`, or `error`, which is written and read the same way."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Enum(Named):
    kind: ClassVar[str] = "enum"
    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fixed(Named):
    kind: ClassVar[str] = "fixed"
    size: int
    logical: Logical | None = None

    def __str__(self) -> str:
        named = f'fixed "{fragment(self.name)}"'
        return f"{named} ({self.logical})" if self.logical else named


Definition = Primitive | Array | Map | Union | Record | Enum | Fixed
Type = Definition | Link


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A schema with all the named types that it or its references define.

    `types` is in the order in which the definitions end: a type comes after the types it contains, except where types
    contain each other.
    """

    root: Type
    types: Mapping[str, Record | Enum | Fixed]
    own: frozenset[str]
    """The names that the schema's own text defines; the others come from references."""

    def resolve(self, type_: Type) -> Definition:
        return self.types[type_.name] if isinstance(type_, Link) else type_
