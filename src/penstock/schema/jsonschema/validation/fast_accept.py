"""The quick yes: a schema as a type that msgspec decodes into, half a microsecond for a small payload.

The type may be stricter than the schema and never laxer: whatever decodes conforms for certain, and what does not is
asked about in the ordinary way. What no type can say is therefore not taken. That includes patterns from outside:
msgspec has them, with an engine that backtracks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Union

import msgspec

from penstock.schema.jsonschema.compatibility import ROWS
from penstock.schema.jsonschema.compatibility.comparison import Budget, Comparison, Exhausted
from penstock.schema.jsonschema.model.kinds import Kind, Kinds
from penstock.schema.jsonschema.model.linked import Linked
from penstock.schema.jsonschema.model.tree import Document, Node
from penstock.schema.jsonschema.validation import fast_types
from penstock.schema.jsonschema.validation.fast_types import Label
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.ranges import Span
from penstock.schema.jsonschema.writer.tags import tag_of
from penstock.schema.jsonschema.writer.writer_facts import (
    Written,
    horizon,
    item_of,
    known,
    property_of,
    unnamed_property_of,
)

TYPES_MAX: Final = 400
"""Of one schema: what is referred to twice is written out twice, and a type takes a tenth of a millisecond to make."""

LEVELS_MAX: Final = 24
"""How deep types are nested: each level takes some frames of Python's stack."""

STEPS_MAX: Final = 20_000
"""To find out which branches exclude each other: what takes longer is better asked of the payload."""

CASES_MAX: Final = 64
"""Of choices within choices, at one place."""

_SAID: Final = frozenset(
    {
        *("$ref", "allOf", "anyOf", "oneOf", "false", "type", "enum", "const"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "format", "contentEncoding", "contentMediaType"),
        *("items", "prefixItems", "minItems", "maxItems"),
        *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    }
)
"""What types can say. Any other keyword excludes the kinds of values that it speaks of."""


class Quick(NamedTuple):
    decoder: msgspec.json.Decoder[Any]
    skips: bool
    """There are parts that it does not look into: somebody else has to see how deep they go."""


class _Untranslatable(Exception):
    """No type says this."""


def quick(root: Node, linked: Mapping[Document, Linked]) -> Quick | None:
    """None where no type can be made."""
    translation = _Translation(Comparison(ROWS, linked, budget=Budget(STEPS_MAX)))
    try:
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(translation.type_of(known(root)))
    except (_Untranslatable, Exhausted, RecursionError, TypeError, ValueError):
        return None
    return Quick(decoder, translation.skips)


class _Translation:
    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._under_way: set[Written] = set()
        self._types = 0
        self.skips = False

    def type_of(self, written: Written) -> Any:
        """Raises `_Untranslatable`."""
        self._types += 1
        if self._types > TYPES_MAX or len(self._under_way) > LEVELS_MAX or written in self._under_way:
            raise _Untranslatable
        if written.is_anything:
            self.skips = True
            return Any
        self._under_way.add(written)
        try:
            types = self._types_of(self._cases(written))
        finally:
            self._under_way.remove(written)
        if not types:
            raise _Untranslatable
        return Union[tuple(types)]  # noqa: UP007 - made at run time

    def _try(self, written: Written) -> Any | None:
        try:
            return self.type_of(written)
        except _Untranslatable:
            return None

    # Choices

    def _cases(self, written: Written) -> list[Written]:
        """What it may be, without any choice left. Cases that cannot be told from others are left out."""
        for node in written.conforms:
            for keyword in ("oneOf", "anyOf"):
                if keyword in node.keywords and (node, keyword) not in written.settled:
                    return self._branches(node, keyword, written.settling(node, keyword))
        return [written]

    def _branches(self, node: Node, keyword: str, written: Written) -> list[Written]:
        branches = node.keywords[keyword]
        if keyword == "oneOf" and self._comparison.tag(node, keyword) is None:
            branches = [each for each in branches if self._stands_alone(each, branches, written.kinds)]
        found: list[Written] = []
        for branch in branches:
            found += self._cases(written.conforming(branch))
            if len(found) > CASES_MAX:
                raise _Untranslatable
        return found

    def _stands_alone(self, branch: Node, branches: Sequence[Node], kinds: Kinds) -> bool:
        """What conforms to it conforms to none of the others; that `oneOf` demands it must not serve to show it."""
        others = (other for other in branches if other is not branch)
        return all(self._comparison.impossible(known(branch, other, kinds=kinds)) for other in others)

    # Kinds

    def _types_of(self, cases: Sequence[Written]) -> list[Any]:
        """At most one type for each kind of value: msgspec tells them apart by the first character."""
        free = [case for case in cases if self._comparison.values(case) is None]
        named = [value for case in cases for value in self._comparison.values(case) or ()]
        numbers, holders = _numbers(_first(Kind.INTEGER, free)), self._objects(free) + self._lists(free)
        strings = _strings(_first(Kind.STRING, free), alone=not holders)
        types = numbers + strings + holders
        literals = fast_types.literals(named, integers=not numbers, strings=not strings)
        if literals:
            types.append(fast_types.one_of(literals))
        if None in named or _first(Kind.NULL, free):
            types.append(None)
        if _first(Kind.BOOLEAN, free) or {True, False} == {each for each in named if isinstance(each, bool)}:
            types.append(bool)
        # A tuple stands alone: beside types with bounds, msgspec (0.22) looks for its parts in the wrong place.
        return types or self._tuples(free)

    def _lists(self, cases: Sequence[Written]) -> list[Any]:
        written = _first(Kind.ARRAY, cases)
        if written is None or horizon(written):
            return []
        span, item = ranges.items(written), item_of(written, 0)
        if not item.kinds:
            return _if_any(fast_types.sized(list[Any], Span(span.least, 0)))
        found = self._try(item)
        return [] if found is None else _if_any(fast_types.sized(list[found], span))  # type: ignore[valid-type]

    def _tuples(self, cases: Sequence[Written]) -> list[Any]:
        """Where the first items are special: arrays that have just those."""
        written = _first(Kind.ARRAY, cases)
        if written is None:
            return []
        span, count = ranges.items(written), horizon(written)
        types = [self._try(item_of(written, place)) for place in range(count)]
        fits = span.least <= count and (span.most is None or count <= span.most)
        return [tuple[tuple(types)]] if count and fits and None not in types else []  # type: ignore[misc]

    # Objects

    def _objects(self, cases: Sequence[Written]) -> list[Any]:
        possible = [case for case in cases if Kind.OBJECT in _sayable(case)]
        tag = tag_of(possible, self._comparison.values)
        if tag is None:
            found = [self._object(case) for case in possible[:1]]
        else:
            pairs = zip(possible, tag.values, strict=True)
            found = [self._object(case, Label(tag.name, value)) for case, value in pairs]
        types = [each for each in found if each is not None]
        # A type alone would take objects without its tag.
        return types if tag is None or len(types) > 1 else []

    def _object(self, written: Written, label: Label | None = None) -> Any | None:
        rest = unnamed_property_of(written)
        mentioned = dict.fromkeys(name for words in written.words("properties") for name in words)
        names = list(mentioned | dict.fromkeys(sorted(written.present)))
        try:
            return self._struct(written, names, rest, label) if names else self._mapping(written, rest)
        except _Untranslatable:
            return None

    def _mapping(self, written: Written, rest: Written) -> Any | None:
        if not rest.kinds:
            return fast_types.sized(dict[str, Any], Span(ranges.properties(written).least, 0))
        return fast_types.sized(dict[str, self.type_of(rest)], ranges.properties(written))  # type: ignore[misc]

    def _struct(self, written: Written, names: Sequence[str], rest: Written, label: Label | None) -> Any | None:
        """Properties that no type says are not taken, nor are those without names if anything is demanded of them."""
        fields: dict[str, Any] = {}
        for name in names:
            if label is not None and name == label.name:
                continue
            found = self._try(property_of(written, name))
            if found is not None:
                fields[name] = found
            elif name in written.present:
                raise _Untranslatable
        closed = not rest.is_anything or len(fields) + (label is not None) < len(names)
        if not _is_so_many(written, len(names), closed=closed):
            return None
        self.skips |= not closed
        return fast_types.struct(fields, written.present, closed=closed, label=label)


def _sayable(written: Written) -> Kinds:
    """The kinds of values of which types can say all that is demanded, where values are not named one by one."""
    if written.violates or written.words("enum") or written.words("const"):
        return frozenset()
    left = written.kinds
    for node in written.conforms:
        for keyword in node.keywords.keys() - _SAID:
            left -= ROWS[keyword].kinds if keyword in ROWS else frozenset()
    return left


def _first(kind: Kind, cases: Sequence[Written]) -> Written | None:
    return next((case for case in cases if kind in _sayable(case)), None)


def _numbers(written: Written | None) -> list[Any]:
    integers = fast_types.integer(written) if written is not None else None
    if written is None or integers is None:
        return []
    # Never fractions alone: msgspec would take integers for them, and round.
    fractions = fast_types.fraction(written) if Kind.FRACTION in written.kinds else None
    return [integers] if fractions is None else [integers, fractions]


def _strings(written: Written | None, *, alone: bool) -> list[Any]:
    return [] if written is None else _if_any(fast_types.string(written, alone=alone))


def _if_any(kind: Any | None) -> list[Any]:
    return [] if kind is None else [kind]


def _is_so_many(written: Written, names: int, *, closed: bool) -> bool:
    """The numbers of properties that are allowed follow from their names."""
    least = max(written.words("minProperties"), default=0)
    most = min(written.words("maxProperties"), default=None)
    return least <= len(written.present) and (most is None or (closed and names <= most))
