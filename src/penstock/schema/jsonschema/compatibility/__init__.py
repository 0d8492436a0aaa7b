"""Reading: can a reader with one JSON Schema take whatever was written by another? A module per family of keywords."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from penstock.schema.jsonschema.compatibility import (
    arrays,
    combinators,
    needs,
    numbers,
    objects,
    sizes,
    strings,
    values,
)
from penstock.schema.jsonschema.compatibility.comparison import LEVELS_MAX, Comparison, Exhausted, Row
from penstock.schema.jsonschema.compatibility.problem_text import exhausted
from penstock.schema.jsonschema.model.linked import Linked
from penstock.schema.jsonschema.model.tree import Document, Node
from penstock.schema.jsonschema.writer.writer_facts import known
from penstock.schema.problems import Problem

ROWS: Final[Mapping[str, Row]] = {
    **values.ROWS,
    **numbers.ROWS,
    **sizes.ROWS,
    **strings.ROWS,
    **arrays.ROWS,
    **objects.ROWS,
    **needs.ROWS,
    **combinators.ROWS,
}
"""By keyword of the reader."""


_FRAMES_MAX: Final = 40 * LEVELS_MAX
"""Of Python's stack, while schemas are compared: a question leads to the next one through some ten of them."""


def compatibility_problems(
    reader: Node, writer: Node, linked: Mapping[Document, Linked], *, lenient: bool = False
) -> list[Problem]:
    """Why `reader` could not take all that `writer` allows; at most `PROBLEMS_MAX`."""
    with _deep_stack():
        try:
            found = Comparison(ROWS, linked, lenient=lenient).problems(reader, known(writer))
        except Exhausted:
            found = (exhausted(),)
    return list(found)


@contextmanager
def _deep_stack() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES_MAX))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
