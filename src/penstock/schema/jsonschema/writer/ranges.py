"""How large a written value can be: numbers, lengths, counts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from penstock.schema.jsonschema.model.kinds import INTEGERS, NUMBERS, Kind
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer.writer_facts import Written, never


@dataclass(frozen=True, slots=True)
class Bound:
    """A number, and whether a value may be it."""

    number: Fraction
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """How many: at least, and at most."""

    least: int
    most: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.most is not None and self.most < self.least


def lower(written: Written) -> Bound | None:
    """What its numbers are not below."""
    found = _bounds(written, "minimum", "exclusiveMinimum")
    strongest = max(found, key=lambda bound: (bound.number, bound.excluded), default=None)
    if strongest is None or not _only_integers(written):
        return strongest
    number = math.floor(strongest.number) + 1 if strongest.excluded else math.ceil(strongest.number)
    return Bound(Fraction(number))


def upper(written: Written) -> Bound | None:
    found = _bounds(written, "maximum", "exclusiveMaximum")
    strongest = min(found, key=lambda bound: (bound.number, not bound.excluded), default=None)
    if strongest is None or not _only_integers(written):
        return strongest
    number = math.ceil(strongest.number) - 1 if strongest.excluded else math.floor(strongest.number)
    return Bound(Fraction(number))


def no_number(written: Written) -> bool:
    """Its bounds leave none."""
    low, high = lower(written), upper(written)
    if low is None or high is None:
        return False
    return low.number > high.number or (low.number == high.number and (low.excluded or high.excluded))


def multiple(written: Written) -> Fraction | None:
    """What all its numbers are multiples of."""
    found = [step(word) for word in written.words("multipleOf")]
    if _only_integers(written):
        found.append(Fraction(1))
    return _least_common(found)


def step(number: float) -> Fraction:
    """`multipleOf` means the decimal number that is written there, not the double nearest to it."""
    return Fraction(Decimal(repr(number)))


def characters(written: Written) -> Span:
    return Span(max(written.words("minLength"), default=0), min(written.words("maxLength"), default=None))


def items(written: Written) -> Span:
    contained = [node.keywords.get("minContains", 1) for node in written.conforms if "contains" in node.keywords]
    most = [*written.words("maxItems"), *(_closed_after(node) for node in written.conforms)]
    return Span(
        max([*written.words("minItems"), *contained], default=0),
        min((each for each in most if each is not None), default=None),
    )


def properties(written: Written) -> Span:
    most = [*written.words("maxProperties"), *(_closed_to(node) for node in written.conforms)]
    return Span(
        max([*written.words("minProperties"), len(written.present)]),
        min((each for each in most if each is not None), default=None),
    )


def _bounds(written: Written, included: str, excluded: str) -> list[Bound]:
    return [Bound(Fraction(word)) for word in written.words(included)] + [
        Bound(Fraction(word), excluded=True) for word in written.words(excluded)
    ]


def _only_integers(written: Written) -> bool:
    return bool(written.kinds & INTEGERS) and Kind.FRACTION not in written.kinds & NUMBERS


def _least_common(steps: Iterable[Fraction]) -> Fraction | None:
    common: Fraction | None = None
    for each in steps:
        if common is None:
            common = each
        else:
            numerator = math.lcm(common.numerator, each.numerator)
            common = Fraction(numerator, math.gcd(common.denominator, each.denominator))
    return common


def _closed_after(node: Node) -> int | None:
    """How many items there can be because the next one conforms to nothing."""
    first = node.keywords.get("prefixItems", [])
    for place, schema in enumerate(first):
        if never(schema):
            return place
    return len(first) if "items" in node.keywords and never(node.keywords["items"]) else None


def _closed_to(node: Node) -> int | None:
    """How many properties there can be because no others are allowed."""
    rest = node.keywords.get("additionalProperties")
    if rest is None or not never(rest) or "patternProperties" in node.keywords:
        return None
    return sum(not never(schema) for schema in node.keywords.get("properties", {}).values())
