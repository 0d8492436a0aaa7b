"""Compatibility: can a reader with one JSON Schema take every value that another allows? A module per family of
keywords."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from penstock.schema.jsonschema.compatibility import (
    arrays,
    combinators,
    numbers,
    objects,
    required_properties,
    sizes,
    strings,
    values,
)
from penstock.schema.jsonschema.compatibility.comparison import LEVELS_MAX, Comparison, KeywordRule, StepsExhausted
from penstock.schema.jsonschema.compatibility.problem_text import steps_exhausted
from penstock.schema.jsonschema.model.exact_validators import ExactValidators
from penstock.schema.jsonschema.model.tree import SchemaDocument, SchemaNode
from penstock.schema.jsonschema.writer.writer_facts import facts_of
from penstock.schema.problems import Problem

RULES: Final[Mapping[str, KeywordRule]] = {
    **values.RULES,
    **numbers.RULES,
    **sizes.RULES,
    **strings.RULES,
    **arrays.RULES,
    **objects.RULES,
    **required_properties.RULES,
    **combinators.RULES,
}
"""The compatibility rule for each keyword that a reader's schema may have."""


_FRAMES_MAX: Final = 40 * LEVELS_MAX
"""Frames of Python's stack during a comparison: one question leads to the next through some ten frames."""


def compatibility_problems(
    reader: SchemaNode,
    writer: SchemaNode,
    exact_validators: Mapping[SchemaDocument, ExactValidators],
    *,
    lenient: bool = False,
) -> list[Problem]:
    """Return the reasons why `reader` could not take all that `writer` allows, at most `PROBLEMS_MAX`. An empty list
    means that it can take all."""
    with _deep_stack():
        try:
            problems = Comparison(RULES, exact_validators, lenient=lenient).problems(reader, facts_of(writer))
        except StepsExhausted:
            problems = (steps_exhausted(),)
    return list(problems)


@contextmanager
def _deep_stack() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES_MAX))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
