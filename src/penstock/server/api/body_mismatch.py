"""Mismatches of a JSON body with its type: which field is wrong, and which values it may have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

from penstock.core.limits import QUOTED_CHARS_MAX

_PLACE: Final = re.compile(r" - at `\$(.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[]+)|(\[)(?:\d+|\.\.\.)\]")
_NAMED: Final = re.compile(r"field `(.*?)`(?: - at `\$.*`)?$", re.DOTALL)
_WHOLE: Final = "body"


def mismatch(error: msgspec.ValidationError, kind: Any) -> tuple[str, str]:
    """Return the sentence, with the allowed values of an enumeration, and the field, such as `retention.age_ms`."""
    sentence = str(error)
    found = _PLACE.search(sentence)
    place = found[1] if found else ""
    words = _words(kind, [name or bracket for name, bracket in _STEP.findall(place)])
    named = _NAMED.search(sentence)
    field = f"{place}.{named[1]}" if named else place
    said = f"{sentence}; it is one of {', '.join(words)}" if words else sentence
    return said, field.removeprefix(".")[:QUOTED_CHARS_MAX] or _WHOLE


def _words(kind: Any, steps: Sequence[str]) -> list[str]:
    found = _reached(inspect.type_info(kind), steps)
    return [str(word) for each in found if isinstance(each, inspect.LiteralType) for word in each.values]


def _reached(kind: inspect.Type, steps: Sequence[str]) -> Iterator[inspect.Type]:
    """Yield the types that a position in the body may have."""
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _reached(each, steps)
    elif not steps:
        yield kind
    else:
        for inner in _inside(kind, steps[0]):
            yield from _reached(inner, steps[1:])


def _inside(kind: inspect.Type, step: str) -> list[inspect.Type]:
    match kind:
        case inspect.StructType(fields=fields):
            return [each.type for each in fields if each.encode_name == step]
        case inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner):
            return [inner]
        case _:
            return []
