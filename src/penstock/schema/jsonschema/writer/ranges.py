"""Ranges of written values: numbers, lengths, counts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from penstock.schema.jsonschema.model.kinds import INTEGERS, NUMBERS, ValueKind
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts, is_false


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower or upper bound of numbers. `excluded`: the number itself is not allowed."""

    number: Fraction
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A range of counts: at least, and at most."""

    least: int
    most: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.most is not None and self.most < self.least


def lower(writer: WriterFacts) -> Bound | None:
    """Return the lower bound of the writer's numbers; None if there is none. If they are all integers, it is the
    smallest integer that the keywords allow."""
    bounds = _bounds(writer, "minimum", "exclusiveMinimum")
    strongest = max(bounds, key=lambda bound: (bound.number, bound.excluded), default=None)
    if strongest is None or not _only_integers(writer):
        return strongest
    number = math.floor(strongest.number) + 1 if strongest.excluded else math.ceil(strongest.number)
    return Bound(Fraction(number))


def upper(writer: WriterFacts) -> Bound | None:
    bounds = _bounds(writer, "maximum", "exclusiveMaximum")
    strongest = min(bounds, key=lambda bound: (bound.number, not bound.excluded), default=None)
    if strongest is None or not _only_integers(writer):
        return strongest
    number = math.ceil(strongest.number) - 1 if strongest.excluded else math.floor(strongest.number)
    return Bound(Fraction(number))


def excludes_all_numbers(writer: WriterFacts) -> bool:
    """Return whether the bounds exclude every number."""
    low, high = lower(writer), upper(writer)
    if low is None or high is None:
        return False
    return low.number > high.number or (low.number == high.number and (low.excluded or high.excluded))


def multiple(writer: WriterFacts) -> Fraction | None:
    """Return a number that all the writer's numbers are multiples of; None if there is none."""
    steps = [step(word) for word in writer.keyword_values("multipleOf")]
    if _only_integers(writer):
        steps.append(Fraction(1))
    return _least_common(steps)


def step(number: float) -> Fraction:
    """Return the exact value of a `multipleOf`: the decimal number as written, not the nearest double."""
    return Fraction(Decimal(repr(number)))


def characters(writer: WriterFacts) -> Span:
    return Span(
        max(writer.keyword_values("minLength"), default=0), min(writer.keyword_values("maxLength"), default=None)
    )


def items(writer: WriterFacts) -> Span:
    contained = [node.keywords.get("minContains", 1) for node in writer.conforms if "contains" in node.keywords]
    most = [*writer.keyword_values("maxItems"), *(_closed_item_count(node) for node in writer.conforms)]
    return Span(
        max([*writer.keyword_values("minItems"), *contained], default=0),
        min((limit for limit in most if limit is not None), default=None),
    )


def properties(writer: WriterFacts) -> Span:
    most = [*writer.keyword_values("maxProperties"), *(_closed_property_count(node) for node in writer.conforms)]
    return Span(
        max([*writer.keyword_values("minProperties"), len(writer.present)]),
        min((limit for limit in most if limit is not None), default=None),
    )


def _bounds(writer: WriterFacts, included: str, excluded: str) -> list[Bound]:
    return [Bound(Fraction(word)) for word in writer.keyword_values(included)] + [
        Bound(Fraction(word), excluded=True) for word in writer.keyword_values(excluded)
    ]


def _only_integers(writer: WriterFacts) -> bool:
    return bool(writer.kinds & INTEGERS) and ValueKind.FRACTION not in writer.kinds & NUMBERS


def _least_common(steps: Iterable[Fraction]) -> Fraction | None:
    common: Fraction | None = None
    for divisor in steps:
        if common is None:
            common = divisor
        else:
            numerator = math.lcm(common.numerator, divisor.numerator)
            common = Fraction(numerator, math.gcd(common.denominator, divisor.denominator))
    return common


def _closed_item_count(node: SchemaNode) -> int | None:
    """Return the maximum number of items, if a `false` schema forbids the next one; else None."""
    first = node.keywords.get("prefixItems", [])
    for index, schema in enumerate(first):
        if is_false(schema):
            return index
    return len(first) if "items" in node.keywords and is_false(node.keywords["items"]) else None


def _closed_property_count(node: SchemaNode) -> int | None:
    """Return the maximum number of properties, if no others than the named ones are allowed; else None."""
    rest = node.keywords.get("additionalProperties")
    if rest is None or not is_false(rest) or "patternProperties" in node.keywords:
        return None
    return sum(not is_false(schema) for schema in node.keywords.get("properties", {}).values())
