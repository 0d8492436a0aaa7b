"""Fast acceptance: a schema as a type that msgspec decodes into, half a microsecond for a small payload.

The type may be stricter than the schema and never laxer: a payload that decodes conforms for certain, any other goes to
the exact validator. Values that no type can describe are therefore not accepted here. That includes patterns from
outside: msgspec supports them, with an engine that backtracks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Union

import msgspec

from penstock.schema.jsonschema.compatibility import RULES
from penstock.schema.jsonschema.compatibility.comparison import Comparison, StepBudget, StepsExhausted
from penstock.schema.jsonschema.model.exact_validators import ExactValidators
from penstock.schema.jsonschema.model.kinds import ValueKind, ValueKinds
from penstock.schema.jsonschema.model.tree import SchemaDocument, SchemaNode
from penstock.schema.jsonschema.validation import fast_types
from penstock.schema.jsonschema.validation.fast_types import TypeTag
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.ranges import Span
from penstock.schema.jsonschema.writer.tags import tag_of
from penstock.schema.jsonschema.writer.writer_facts import (
    WriterFacts,
    facts_of,
    item_of,
    property_of,
    uniform_from,
    unnamed_property_of,
)

TYPES_MAX: Final = 400
"""Types of one schema: a definition that is used twice is built twice, and a type takes a tenth of a millisecond to
make."""

LEVELS_MAX: Final = 24
"""Depth of nested types: each level takes some frames of Python's stack."""

STEPS_MAX: Final = 20_000
"""Steps to find out which branches exclude each other: beyond this the exact validator is cheaper."""

CASES_MAX: Final = 64
"""Cases of nested choices at one position."""

_EXPRESSIBLE: Final = frozenset(
    {
        *("$ref", "allOf", "anyOf", "oneOf", "false", "type", "enum", "const"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "format", "contentEncoding", "contentMediaType"),
        *("items", "prefixItems", "minItems", "maxItems"),
        *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    }
)
"""Keywords that types can express. Any other keyword excludes the kinds of values that it constrains."""


class FastAccept(NamedTuple):
    decoder: msgspec.json.Decoder[Any]
    skips: bool
    """True if the decoder skips parts without looking into them: their depth must be checked elsewhere."""


class _Untranslatable(Exception):
    """No type expresses this."""


def fast_accept(root: SchemaNode, exact_validators: Mapping[SchemaDocument, ExactValidators]) -> FastAccept | None:
    """Return a decoder for the schema; None where no type can be made."""
    translation = _Translation(Comparison(RULES, exact_validators, budget=StepBudget(STEPS_MAX)))
    try:
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(translation.type_of(facts_of(root)))
    except (_Untranslatable, StepsExhausted, RecursionError, TypeError, ValueError):
        return None
    return FastAccept(decoder, translation.skips)


class _Translation:
    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._under_way: set[WriterFacts] = set()
        self._types = 0
        self.skips = False

    def type_of(self, writer: WriterFacts) -> Any:
        """Return a type that accepts only values with these facts. Raises `_Untranslatable` if msgspec has no such
        type."""
        self._types += 1
        if self._types > TYPES_MAX or len(self._under_way) > LEVELS_MAX or writer in self._under_way:
            raise _Untranslatable
        if writer.is_anything:
            self.skips = True
            return Any
        self._under_way.add(writer)
        try:
            types = self._types_of(self._cases(writer))
        finally:
            self._under_way.remove(writer)
        if not types:
            raise _Untranslatable
        return Union[tuple(types)]  # noqa: UP007 - made at run time

    def _try(self, writer: WriterFacts) -> Any | None:
        try:
            return self.type_of(writer)
        except _Untranslatable:
            return None

    # Choices

    def _cases(self, writer: WriterFacts) -> list[WriterFacts]:
        """Return the facts in each case of all choices (`oneOf`, `anyOf`). A branch of a `oneOf` that may share values
        with another branch is left out."""
        for node in writer.conforms:
            for keyword in ("oneOf", "anyOf"):
                if keyword in node.keywords and (node, keyword) not in writer.decided:
                    return self._branches(node, keyword, writer.deciding(node, keyword))
        return [writer]

    def _branches(self, node: SchemaNode, keyword: str, writer: WriterFacts) -> list[WriterFacts]:
        branches = node.keywords[keyword]
        if keyword == "oneOf" and self._comparison.tag(node, keyword) is None:
            branches = [candidate for candidate in branches if self._stands_alone(candidate, branches, writer.kinds)]
        cases: list[WriterFacts] = []
        for branch in branches:
            cases += self._cases(writer.conforming(branch))
            if len(cases) > CASES_MAX:
                raise _Untranslatable
        return cases

    def _stands_alone(self, branch: SchemaNode, branches: Sequence[SchemaNode], kinds: ValueKinds) -> bool:
        """Return whether it is proved that no value of this branch conforms to another branch. Only the branches
        themselves are used for it: the `oneOf` must not serve as its own proof."""
        others = (other for other in branches if other is not branch)
        return all(self._comparison.impossible(facts_of(branch, other, kinds=kinds)) for other in others)

    # Kinds

    def _types_of(self, cases: Sequence[WriterFacts]) -> list[Any]:
        """Return the types for the cases. There is at most one for each kind of value, because msgspec tells kinds
        apart by the first character; only of objects there may be several, told apart by a tag."""
        free = [case for case in cases if self._comparison.values(case) is None]
        named = [value for case in cases for value in self._comparison.values(case) or ()]
        numbers, holders = _numbers(_first(ValueKind.INTEGER, free)), self._objects(free) + self._lists(free)
        strings = _strings(_first(ValueKind.STRING, free), alone=not holders)
        types = numbers + strings + holders
        literals = fast_types.literals(named, integers=not numbers, strings=not strings)
        if literals:
            types.append(fast_types.one_of(literals))
        if None in named or _first(ValueKind.NULL, free):
            types.append(None)
        if _first(ValueKind.BOOLEAN, free) or {True, False} == {each for each in named if isinstance(each, bool)}:
            types.append(bool)
        # A tuple stands alone: beside types with bounds, msgspec (0.22) looks for its parts in the wrong memory.
        return types or self._tuples(free)

    def _lists(self, cases: Sequence[WriterFacts]) -> list[Any]:
        writer = _first(ValueKind.ARRAY, cases)
        if writer is None or uniform_from(writer):
            return []
        span, item = ranges.items(writer), item_of(writer, 0)
        if not item.kinds:
            return _as_list(fast_types.sized(list[Any], Span(span.least, 0)))
        item_type = self._try(item)
        return [] if item_type is None else _as_list(fast_types.sized(list[item_type], span))  # type: ignore[valid-type]

    def _tuples(self, cases: Sequence[WriterFacts]) -> list[Any]:
        """Return a list with a tuple type, for arrays of exactly the items that `prefixItems` describes; an empty list
        if there is no such type."""
        writer = _first(ValueKind.ARRAY, cases)
        if writer is None:
            return []
        span, count = ranges.items(writer), uniform_from(writer)
        types = [self._try(item_of(writer, index)) for index in range(count)]
        fits = span.least <= count and (span.most is None or count <= span.most)
        return [tuple[tuple(types)]] if count and fits and None not in types else []  # type: ignore[misc]

    # Objects

    def _objects(self, cases: Sequence[WriterFacts]) -> list[Any]:
        possible = [case for case in cases if ValueKind.OBJECT in _expressible_kinds(case)]
        tag = tag_of(possible, self._comparison.values)
        if tag is None:
            candidates = [self._object(case) for case in possible[:1]]
        else:
            pairs = zip(possible, tag.values, strict=True)
            candidates = [self._object(case, TypeTag(tag.name, value)) for case, value in pairs]
        types = [object_type for object_type in candidates if object_type is not None]
        # A tagged type alone would accept objects without the tag.
        return types if tag is None or len(types) > 1 else []

    def _object(self, writer: WriterFacts, tag: TypeTag | None = None) -> Any | None:
        rest = unnamed_property_of(writer)
        mentioned = dict.fromkeys(
            name for keyword_values in writer.keyword_values("properties") for name in keyword_values
        )
        names = list(mentioned | dict.fromkeys(sorted(writer.present)))
        try:
            return self._struct(writer, names, rest, tag) if names else self._mapping(writer, rest)
        except _Untranslatable:
            return None

    def _mapping(self, writer: WriterFacts, rest: WriterFacts) -> Any | None:
        if not rest.kinds:
            return fast_types.sized(dict[str, Any], Span(ranges.properties(writer).least, 0))
        return fast_types.sized(dict[str, self.type_of(rest)], ranges.properties(writer))  # type: ignore[misc]

    def _struct(self, writer: WriterFacts, names: Sequence[str], rest: WriterFacts, tag: TypeTag | None) -> Any | None:
        """Return a struct type; None if limits on the number of properties cannot be expressed. Raises
        `_Untranslatable` if a required property has no type.

        The struct refuses optional properties that have no type, and unnamed ones if the schema constrains them.
        """
        fields: dict[str, Any] = {}
        for name in names:
            if tag is not None and name == tag.name:
                continue
            field_type = self._try(property_of(writer, name))
            if field_type is not None:
                fields[name] = field_type
            elif name in writer.present:
                raise _Untranslatable
        closed = not rest.is_anything or len(fields) + (tag is not None) < len(names)
        if not _counts_follow_from_names(writer, len(names), closed=closed):
            return None
        self.skips |= not closed
        return fast_types.struct(fields, writer.present, closed=closed, tag=tag)


def _expressible_kinds(writer: WriterFacts) -> ValueKinds:
    """Return the kinds of values whose constraints types can express completely. There are none if `enum` or `const`
    lists the values, or if the value must violate a schema (`not`)."""
    if writer.violates or writer.keyword_values("enum") or writer.keyword_values("const"):
        return frozenset()
    left = writer.kinds
    for node in writer.conforms:
        for keyword in node.keywords.keys() - _EXPRESSIBLE:
            left -= RULES[keyword].kinds if keyword in RULES else frozenset()
    return left


def _first(kind: ValueKind, cases: Sequence[WriterFacts]) -> WriterFacts | None:
    return next((case for case in cases if kind in _expressible_kinds(case)), None)


def _numbers(writer: WriterFacts | None) -> list[Any]:
    integers = fast_types.integer(writer) if writer is not None else None
    if writer is None or integers is None:
        return []
    # Never fractions alone: msgspec would accept integers for them, and round.
    fractions = fast_types.fraction(writer) if ValueKind.FRACTION in writer.kinds else None
    return [integers] if fractions is None else [integers, fractions]


def _strings(writer: WriterFacts | None, *, alone: bool) -> list[Any]:
    return [] if writer is None else _as_list(fast_types.string(writer, alone=alone))


def _as_list(kind: Any | None) -> list[Any]:
    return [] if kind is None else [kind]


def _counts_follow_from_names(writer: WriterFacts, names: int, *, closed: bool) -> bool:
    """Return whether the names of the properties alone ensure `minProperties` and `maxProperties`. `closed`: no other
    names are allowed."""
    least = max(writer.keyword_values("minProperties"), default=0)
    most = min(writer.keyword_values("maxProperties"), default=None)
    return least <= len(writer.present) and (most is None or (closed and names <= most))
