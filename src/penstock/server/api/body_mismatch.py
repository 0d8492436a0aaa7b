"""Mismatches of a JSON body with the type that it should have: which field is wrong, and which values it may have."""

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
    """Return the message for the client, and the name of the wrong field, such as `retention.age_ms`; `body` if the
    whole body is wrong. If the field is an enumeration, the message lists its values. `kind` is the type that the body
    should have."""
    sentence = str(error)
    located = _PLACE.search(sentence)
    path = located[1] if located else ""
    words = _words(kind, [name or bracket for name, bracket in _STEP.findall(path)])
    named = _NAMED.search(sentence)
    field = f"{path}.{named[1]}" if named else path
    full = f"{sentence}; it is one of {', '.join(words)}" if words else sentence
    return full, field.removeprefix(".")[:QUOTED_CHARS_MAX] or _WHOLE


def _words(kind: Any, steps: Sequence[str]) -> list[str]:
    types = _reached(inspect.type_info(kind), steps)
    return [str(word) for member in types if isinstance(member, inspect.LiteralType) for word in member.values]


def _reached(kind: inspect.Type, steps: Sequence[str]) -> Iterator[inspect.Type]:
    """Yield the types that the field at the path `steps` may have, in a body of type `kind`."""
    if isinstance(kind, inspect.UnionType):
        for member in kind.types:
            yield from _reached(member, steps)
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
