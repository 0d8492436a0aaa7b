"""Values that can be named: a writer that lists them, or has no others, can be asked about each."""

from __future__ import annotations

from typing import Any, Final

from penstock.schema.jsonschema.model.kinds import FEW
from penstock.schema.jsonschema.writer.writer_facts import Written

_VALUES_MAX: Final = 1_000
"""That are looked at one by one: each is searched for in lists as long."""


def candidates(written: Written) -> list[Any] | None:
    """All that it may be, and perhaps some more; None if they cannot be named."""
    lists = written.words("enum") + [[value] for value in written.words("const")]
    shortest = min(lists, key=len, default=None)
    if shortest is not None and len(shortest) <= _VALUES_MAX:
        return [spelled for value in shortest for spelled in _spellings(value)]
    return [None, False, True] if written.kinds <= FEW else None


def _spellings(value: Any) -> list[Any]:
    """1 may be written as 1.0, and a reader of draft 4 notices."""
    other = _with_fractions(value)
    return [value] if repr(other) == repr(value) else [value, other]


def _with_fractions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_fractions(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_fractions(each) for each in value]
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_integer and int(float(value)) == value else value
