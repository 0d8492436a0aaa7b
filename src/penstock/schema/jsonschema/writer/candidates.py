"""The values that a writer may write, where they can be listed: each can then be checked by itself."""

from __future__ import annotations

from typing import Any, Final

from penstock.schema.jsonschema.model.kinds import FEW
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts

_VALUES_MAX: Final = 1_000
"""Values that are checked one by one. Each may be searched for in a list that is as long."""


def candidates(writer: WriterFacts) -> list[Any] | None:
    """Return all possible values, and perhaps some more; None if they cannot be listed."""
    lists = writer.keyword_values("enum") + [[value] for value in writer.keyword_values("const")]
    shortest = min(lists, key=len, default=None)
    if shortest is not None and len(shortest) <= _VALUES_MAX:
        return [spelled for value in shortest for spelled in _spellings(value)]
    return [None, False, True] if writer.kinds <= FEW else None


def _spellings(value: Any) -> list[Any]:
    """Return a value and its other spelling: 1 may be written as 1.0, and a reader of draft 4 notices."""
    other = _with_fractions(value)
    return [value] if repr(other) == repr(value) else [value, other]


def _with_fractions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_fractions(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_fractions(member) for member in value]
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_integer and int(float(value)) == value else value
