"""What an Avro schema is made of. Values only: a type knows where it stands, and nothing of how it is read or compared.

A type that is defined elsewhere is a `Link` with its full name, so that nothing here is circular: `Schema.resolve`
leads to the definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, NoReturn

from penstock.schema.errors import InvalidSchema
from penstock.schema.problems import fragment

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where in a text something stands. Written as a JSON pointer; in another text than the schema's own, the name of
    that reference and `#` stand before it."""

    parent: Place | None = None
    token: str | int = ""
    """The last step to here; at the root of a text the name of its reference, empty for the schema itself."""

    def __truediv__(self, token: str | int) -> Place:
        return Place(self, token)

    def __str__(self) -> str:
        root, *steps = self._tokens()
        return (f"{fragment(root)}#" if root else "") + pointer(steps)

    @property
    def reference(self) -> str:
        """The name of the reference in whose text this is; empty in the schema's own."""
        return self._tokens()[0]

    def _tokens(self) -> list[str]:
        """From the root on."""
        tokens: list[str] = []
        place: Place | None = self
        while place is not None:
            tokens.append(str(place.token))
            place = place.parent
        return tokens[::-1]


def pointer(tokens: Iterable[str]) -> str:
    """A JSON pointer of these steps."""
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def refuse(message: str, place: Place) -> NoReturn:
    """Raises `InvalidSchema` with a sentence, and where that is."""
    where = f'in reference "{fragment(place.reference)}": ' if place.reference else ""
    raise InvalidSchema(where + message, path=str(place))


class Logical(NamedTuple):
    """What the values of a type stand for."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"{self.name}({self.precision}, {self.scale})" if self.name == "decimal" else self.name


class Default(NamedTuple):
    """There is one, be it null."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node:
    """Every type stands somewhere, and may have properties that the specification does not know."""

    place: Place
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Primitive(Node):
    kind: str
    logical: Logical | None = None

    def __str__(self) -> str:
        return f"{self.kind} ({self.logical})" if self.logical else self.kind


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Link(Node):
    """The use of a type that is defined elsewhere."""

    name: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Array(Node):
    kind: ClassVar[str] = "array"
    items: Type

    def __str__(self) -> str:
        return "array"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Map(Node):
    kind: ClassVar[str] = "map"
    values: Type

    def __str__(self) -> str:
        return "map"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Union(Node):
    kind: ClassVar[str] = "union"
    branches: tuple[Type, ...]

    def __str__(self) -> str:
        return f"union of {len(self.branches)}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Named(Node):
    """A type with a full name, and the full names it is known by besides."""

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
    place: Place
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
    """Or `error`, which is written the same and read the same."""


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
    """A schema, with all the named types that it or its references define.

    `types` is in the order in which their definitions end: what a type contains comes before it, but for the types that
    contain it.
    """

    root: Type
    types: Mapping[str, Record | Enum | Fixed]
    own: frozenset[str]
    """The names that its own text defines; the others come from references."""

    def resolve(self, type_: Type) -> Definition:
        return self.types[type_.name] if isinstance(type_, Link) else type_
