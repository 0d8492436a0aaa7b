"""JSON: schemas as shapes, and payloads by types that msgspec decodes into, made for the target's columns.

Only the needs of columns are checked: types, and that required fields are there. The other demands of a schema
(patterns, bounds, enumerations) are the broker's and the audit's to check. Properties without a schema are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from penstock.core.schemas import Definition
from penstock.schema.jsonschema import parse
from penstock.schema.jsonschema.model.kinds import (
    ARRAYS,
    INTEGERS,
    NUMBERS,
    OBJECTS,
    STRINGS,
    ValueKind,
    ValueKinds,
    kind_of,
)
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.spark.decode.columns import leaves
from penstock.spark.decode.columns.builder import VALUE_ERRORS, column
from penstock.spark.decode.columns.merged_shapes import merged
from penstock.spark.decode.columns.shapes import (
    Budget,
    Entries,
    Field,
    Items,
    Leaf,
    Read,
    Record,
    Shape,
    root_record,
    without_readers,
)
from penstock.spark.decode.languages.json_rows import JsonReader, picker, raw_texts, type_of
from penstock.spark.decode.languages.rows import Reader

_TEXT: Final = Leaf(pa.string(), raw_texts, is_text=True)
_FORMATS: Final = {"date-time": leaves.DATE_TIME, "date": leaves.DATE}
_READABLE: Final[Mapping[pa.DataType, Leaf]] = {
    each.type: each
    for each in (leaves.STRING, leaves.WHOLE, leaves.DOUBLE, leaves.BOOLEAN, leaves.DATE_TIME, leaves.DATE)
}
_TYPE_KEYWORDS: Final[Sequence[tuple[frozenset[str], ValueKinds]]] = (
    (frozenset({"properties", "required", "additionalProperties", "patternProperties"}), OBJECTS),
    (frozenset({"items", "prefixItems"}), ARRAYS),
    (frozenset({"pattern", "minLength", "maxLength", "format"}), STRINGS),
    (frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}), NUMBERS),
)
"""Keywords that only make sense for one type, for schemas without `type`."""


class JsonWriterSchema:
    text: Read = staticmethod(raw_texts)

    def __init__(self, definition: Definition) -> None:
        """Prepare reading payloads of this schema. Raises `InvalidSchema`."""
        schema = parse(definition.text, dict(definition.references))
        found = _Shapes().of(schema.documents[0].nodes[""], 0)
        self.shape = root_record(_readable(found.shape or _TEXT))

    def reader(self, target: Record) -> Reader:
        return JsonReader(target, self.shape).read


class _MaybeShape(NamedTuple):
    shape: Shape | None
    """The shape; None if only null is allowed."""
    nullable: bool


_ANY: Final = _MaybeShape(_TEXT, nullable=True)


class _Shapes:
    def __init__(self) -> None:
        self._budget = Budget()
        self._under_way: set[SchemaNode] = set()

    def of(self, node: SchemaNode, depth: int) -> _MaybeShape:
        """Return the shape of a schema. A schema that contains itself is JSON text at that place."""
        if node in self._under_way or not self._budget.allows(depth):
            return _ANY
        self._under_way.add(node)
        try:
            return self._all_of(node, depth)
        finally:
            self._under_way.remove(node)

    def _all_of(self, node: SchemaNode, depth: int) -> _MaybeShape:
        words = node.keywords
        demands = [self._own_shape(node, depth)]
        demands += [self.of(each, depth) for each in (*words.get("$ref", ()), *words.get("allOf", ()))]
        demands += [self._one_of(words[each], depth) for each in ("oneOf", "anyOf") if each in words]
        return reduce(_intersection, demands)

    def _one_of(self, nodes: Iterable[SchemaNode], depth: int) -> _MaybeShape:
        found = [self.of(each, depth) for each in nodes]
        shapes = [each.shape for each in found if each.shape is not None]
        return _MaybeShape(reduce(merged, shapes) if shapes else None, any(each.nullable for each in found))

    def _own_shape(self, node: SchemaNode, depth: int) -> _MaybeShape:
        kinds = _kinds(node)
        if kinds is None:
            return _ANY
        nullable, kinds = ValueKind.NULL in kinds, kinds - {ValueKind.NULL}
        return _MaybeShape(self._shape(node, kinds, depth) if kinds else None, nullable)

    def _shape(self, node: SchemaNode, kinds: ValueKinds, depth: int) -> Shape:
        if kinds <= STRINGS:
            return _FORMATS.get(node.keywords.get("format", ""), leaves.STRING)
        if kinds <= NUMBERS:
            return leaves.WHOLE if kinds <= INTEGERS else leaves.DOUBLE
        if kinds <= OBJECTS:
            return self._object(node, depth)
        if kinds <= ARRAYS:
            return self._array(node, depth)
        return leaves.BOOLEAN if kinds == {ValueKind.BOOLEAN} else _TEXT

    def _array(self, node: SchemaNode, depth: int) -> Shape:
        words = node.keywords
        if "prefixItems" in words:
            return _TEXT
        item = self.of(words["items"], depth + 1).shape if "items" in words else _TEXT
        return Items(item or _TEXT)

    def _object(self, node: SchemaNode, depth: int) -> Shape:
        words = node.keywords
        if "properties" in words:
            required = frozenset(words.get("required", ()))
            return Record(tuple(self._field(name, each, required, depth) for name, each in words["properties"].items()))
        rest = words.get("additionalProperties")
        if rest is None or not rest.keywords or rest.raw is False or "patternProperties" in words:
            return _TEXT
        return Entries(leaves.STRING, self.of(rest, depth + 1).shape or _TEXT)

    def _field(self, name: str, node: SchemaNode, required: frozenset[str], depth: int) -> Field:
        found = self.of(node, depth + 1)
        default = node.raw.get("default") if isinstance(node.raw, dict) else None
        is_required = name in required and not found.nullable
        return Field(name, found.shape or _TEXT, (name,), default=default, is_required=is_required)


def _kinds(node: SchemaNode) -> ValueKinds | None:
    """Return the types that a schema allows, by `type` or by other keywords; None if it does not limit them."""
    words = node.keywords
    if "type" in words:
        said: ValueKinds = words["type"]
        return said
    for keyword in ("enum", "const"):
        if keyword in words:
            return frozenset(map(kind_of, words["enum"] if keyword == "enum" else [words["const"]]))
    return next((kinds for keywords, kinds in _TYPE_KEYWORDS if keywords & words.keys()), None)


# ---- several schemas of one value


def _intersection(first: _MaybeShape, second: _MaybeShape) -> _MaybeShape:
    nullable = first.nullable and second.nullable
    if first.shape is None or second.shape is None:
        return _MaybeShape(None, nullable)
    return _MaybeShape(_narrower(first.shape, second.shape), nullable)


def _narrower(first: Shape, second: Shape) -> Shape:
    match first, second:
        case (Leaf(is_text=True), _):
            return second
        case (Record(), Record()):
            return Record(_all_fields(first.fields, second.fields))
        case (leaves.DOUBLE, leaves.WHOLE) | (leaves.STRING, leaves.DATE_TIME | leaves.DATE):
            return second
    return first


def _all_fields(first: tuple[Field, ...], second: tuple[Field, ...]) -> tuple[Field, ...]:
    found = {field.name: field for field in first}
    for field in second:
        known = found.setdefault(field.name, field)
        if known is not field:
            shape = _narrower(known.shape, field.shape)
            found[field.name] = replace(known, shape=shape, is_required=known.is_required or field.is_required)
    return tuple(found.values())


# ---- readers of values, once their shapes are known


def _readable(shape: Shape) -> Shape:
    match shape:
        case Leaf(is_text=True):
            return _TEXT
        case Leaf(type=kind):
            return _READABLE[kind]
        case Record(fields=fields):
            return replace(shape, fields=tuple(_slotted(place, field) for place, field in enumerate(fields)))
        case Items(item=item):
            return Items(_readable(item))
        case Entries(value=value):
            return Entries(leaves.STRING, _readable(value))
    return _TEXT


def _slotted(place: int, field: Field) -> Field:
    slot, shape = f"f{place}", _readable(field.shape)
    return replace(
        field, shape=shape, default=_default(shape, field.default), slot=slot, get=attrgetter(slot), pick=picker(slot)
    )


def _default(shape: Shape, value: Any) -> Any:
    """Return the default as a value of the column; None if it does not fit, since JSON Schema does not demand that it
    does."""
    if value is None:
        return None
    target = without_readers(shape)
    try:
        decoded = msgspec.json.decode(msgspec.json.encode(value), type=type_of(target, shape))
        return column(target, shape, raw_texts)([decoded])[0].as_py()
    except VALUE_ERRORS:
        return None
