"""Types that msgspec decodes into, each at least as strict as its schema."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, NamedTuple, Union

from msgspec import UNSET, Meta, UnsetType, defstruct

from penstock.schema.jsonschema.model.kinds import INTEGERS
from penstock.schema.jsonschema.model.string_formats import CHECKS, FAST_PATTERNS
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.ranges import Bound, Span
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts


class TypeTag(NamedTuple):
    """A property whose value tells which of several types an object has."""

    name: str
    value: str


def struct(fields: Mapping[str, Any], required: Collection[str], *, closed: bool, tag: TypeTag | None) -> Any:
    """Return a struct type. `closed`: properties that are not in `fields` are refused. Raises `ValueError` for names
    that msgspec does not take."""
    renamed = {f"f{index}": name for index, name in enumerate(fields)}
    return defstruct(
        "Payload",
        [_field(field, fields[name], is_required=name in required) for field, name in renamed.items()],
        rename=renamed,
        tag_field=tag.name if tag else None,
        tag=tag.value if tag else None,
        forbid_unknown_fields=closed,
        kw_only=True,
        gc=False,
    )


def _field(name: str, kind: Any, *, is_required: bool) -> tuple[str, Any] | tuple[str, Any, Any]:
    if is_required:
        return (name, kind)
    return (name, Union[kind, UnsetType], UNSET)  # noqa: UP007 - made at run time


_INTEGER_MIN: Final = -(2**63)
_INTEGER_MAX: Final = 2**63 - 1
"""The largest number that msgspec can compare with."""

_LENGTH_MAX: Final = 2**31
"""A length that no payload reaches."""


def integer(writer: WriterFacts) -> Any | None:
    """Return a type for integers; None where no type expresses the constraints."""
    integers = writer.of(INTEGERS)
    constraints: dict[str, Any] = {}
    low, high, step = ranges.lower(integers), ranges.upper(integers), ranges.multiple(integers)
    if low is not None:
        constraints["ge"] = max(int(low.number), _INTEGER_MIN)
    if high is not None:
        constraints["le"] = min(int(high.number), _INTEGER_MAX)
    if step is not None and step != 1:
        constraints["multiple_of"] = int(step)
    if any(not _INTEGER_MIN <= limit <= _INTEGER_MAX for limit in constraints.values()):
        return None
    return Annotated[int, Meta(**constraints)] if constraints else int


def fraction(writer: WriterFacts) -> Any | None:
    """Return a type for numbers with a fraction; None with `multipleOf`, which msgspec checks inexactly."""
    if writer.keyword_values("multipleOf"):
        return None
    low, high = ranges.lower(writer), ranges.upper(writer)
    constraints: dict[str, Any] = {}
    if low is not None:
        constraints["gt" if low.excluded else "ge"] = _inside(low, math.inf)
    if high is not None:
        constraints["lt" if high.excluded else "le"] = _inside(high, -math.inf)
    return Annotated[float, Meta(**constraints)] if constraints else float


def string(writer: WriterFacts, *, alone: bool) -> Any | None:
    """Return a type for strings. None if no type expresses the constraints: for some formats, and for several formats
    at once.

    `alone`: neither a list nor an object is allowed in its place. Beside those, msgspec (0.22) corrupts memory where a
    string has a pattern.
    """
    formats = sorted({name for name in writer.keyword_values("format") if name in CHECKS})
    if not formats:
        return sized(str, ranges.characters(writer))
    if len(formats) > 1 or formats[0] not in FAST_PATTERNS or not alone:
        return None
    return sized(str, ranges.characters(writer), pattern=FAST_PATTERNS[formats[0]])


def sized(kind: Any, span: Span, **more: Any) -> Any | None:
    """Return a type for strings, lists or mappings with a length in `span`; None if no length is possible. `more` holds
    further constraints."""
    if span.is_empty or span.least > _LENGTH_MAX:
        return None
    constraints: dict[str, Any] = more | ({"min_length": span.least} if span.least else {})
    if span.most is not None:
        constraints["max_length"] = min(span.most, _LENGTH_MAX)
    return Annotated[kind, Meta(**constraints)] if constraints else kind


def literals(values: Iterable[Any], *, integers: bool, strings: bool) -> list[Any]:
    """Return those of the values that a `Literal` can hold: strings if `strings` is set, integers of 64 bits if
    `integers` is set."""
    return [
        value for value in values if (strings and isinstance(value, str)) or (integers and _is_plain_integer(value))
    ]


def one_of(values: list[Any]) -> Any:
    named: Any = Literal
    return named[tuple(dict.fromkeys(values))]


def _is_plain_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _INTEGER_MIN <= value <= _INTEGER_MAX


def _inside(bound: Bound, inwards: float) -> float:
    """Return the double nearest to a bound that does not lie outside of it: a bound may be an integer that no double
    equals. `inwards`: the infinity in the allowed direction."""
    nearest = float(bound.number)
    outside = Fraction(nearest) < bound.number if inwards > 0 else Fraction(nearest) > bound.number
    return math.nextafter(nearest, inwards) if outside else nearest
