"""Tags: a property that every branch of a choice requires, each with a value of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.schema.jsonschema.model.kinds import OBJECTS
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts, property_of

Values = Callable[[WriterFacts], list[Any] | None]
"""A function that returns all values that the facts allow, or None if they cannot be listed."""


class Tag(NamedTuple):
    name: str
    values: list[str]
    """The tag's values in the order of the branches."""


def tag_of(branches: Sequence[WriterFacts], values: Values) -> Tag | None:
    """Return the tag that distinguishes the branches; None if there is none. `values` lists the values that a property
    can have."""
    if len(branches) < 2 or any(branch.kinds != OBJECTS for branch in branches):
        return None
    for name in sorted(frozenset.intersection(*(branch.present for branch in branches))):
        own = [_only_string(values(property_of(branch, name))) for branch in branches]
        values_by_branch = [value for value in own if value is not None]
        if len(set(values_by_branch)) == len(branches):
            return Tag(name, values_by_branch)
    return None


def _only_string(values: list[Any] | None) -> str | None:
    return values[0] if values is not None and len(values) == 1 and isinstance(values[0], str) else None
