"""Types that msgspec decodes into, each at least as strict as the schema that it stands for."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, NamedTuple, Union

from msgspec import UNSET, Meta, UnsetType, defstruct

from penstock.schema.jsonschema.model.kinds import INTEGERS
from penstock.schema.jsonschema.model.string_formats import CHECKS, QUICK
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.ranges import Bound, Span
from penstock.schema.jsonschema.writer.writer_facts import Written


class Label(NamedTuple):
    """A property that tells which of several types an object is of."""

    name: str
    value: str


def struct(fields: Mapping[str, Any], required: Collection[str], *, closed: bool, label: Label | None) -> Any:
    """Raises `ValueError` for names that msgspec does not take."""
    renamed = {f"f{place}": name for place, name in enumerate(fields)}
    return defstruct(
        "Payload",
        [_field(field, fields[name], is_required=name in required) for field, name in renamed.items()],
        rename=renamed,
        tag_field=label.name if label else None,
        tag=label.value if label else None,
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
"""What msgspec can compare with."""

_LENGTH_MAX: Final = 2**31
"""No payload has more of anything."""


def integer(written: Written) -> Any | None:
    """None where no type says it."""
    integers = written.of(INTEGERS)
    said: dict[str, Any] = {}
    low, high, step = ranges.lower(integers), ranges.upper(integers), ranges.multiple(integers)
    if low is not None:
        said["ge"] = max(int(low.number), _INTEGER_MIN)
    if high is not None:
        said["le"] = min(int(high.number), _INTEGER_MAX)
    if step is not None and step != 1:
        said["multiple_of"] = int(step)
    if any(not _INTEGER_MIN <= each <= _INTEGER_MAX for each in said.values()):
        return None
    return Annotated[int, Meta(**said)] if said else int


def fraction(written: Written) -> Any | None:
    """Of what a number is a multiple, msgspec does not know exactly."""
    if written.words("multipleOf"):
        return None
    low, high = ranges.lower(written), ranges.upper(written)
    said: dict[str, Any] = {}
    if low is not None:
        said["gt" if low.excluded else "ge"] = _inside(low, math.inf)
    if high is not None:
        said["lt" if high.excluded else "le"] = _inside(high, -math.inf)
    return Annotated[float, Meta(**said)] if said else float


def string(written: Written, *, alone: bool) -> Any | None:
    """None where no type says it: that is so for some formats, and for several at once.

    `alone`: neither a list nor an object is allowed in its place. Beside those, msgspec (0.22) loses its way in memory
    where a string has a pattern.
    """
    formats = sorted({each for each in written.words("format") if each in CHECKS})
    if not formats:
        return sized(str, ranges.characters(written))
    if len(formats) > 1 or formats[0] not in QUICK or not alone:
        return None
    return sized(str, ranges.characters(written), pattern=QUICK[formats[0]])


def sized(kind: Any, span: Span, **more: Any) -> Any | None:
    """Strings, lists or mappings of a certain length; `more` is said of them too."""
    if span.is_empty or span.least > _LENGTH_MAX:
        return None
    said: dict[str, Any] = more | ({"min_length": span.least} if span.least else {})
    if span.most is not None:
        said["max_length"] = min(span.most, _LENGTH_MAX)
    return Annotated[kind, Meta(**said)] if said else kind


def literals(values: Iterable[Any], *, integers: bool, strings: bool) -> list[Any]:
    """Those values that can be named in a type, of the wanted sorts."""
    return [each for each in values if (strings and isinstance(each, str)) or (integers and _is_plain_integer(each))]


def one_of(values: list[Any]) -> Any:
    named: Any = Literal
    return named[tuple(dict.fromkeys(values))]


def _is_plain_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _INTEGER_MIN <= value <= _INTEGER_MAX


def _inside(bound: Bound, inwards: float) -> float:
    """The nearest double on the right side of a bound: a bound may be an integer that no double is."""
    nearest = float(bound.number)
    outside = Fraction(nearest) < bound.number if inwards > 0 else Fraction(nearest) > bound.number
    return math.nextafter(nearest, inwards) if outside else nearest
