"""Regular expressions, run by the engine that also validates: it takes linear time for any pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, FancyRegexOptions, RegexOptions, ValidationError

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema.model.text import quoted
from penstock.schema.jsonschema.model.tree import SchemaDocument, SchemaNode

PATTERNS_MAX: Final = 500
"""Different patterns in a schema and all that it refers to."""

PATTERNS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of all compiled patterns of a schema: a quarter of what a worker may use."""

_SIZES: Final = (1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 10 << 20)
"""Size limits of a compiled pattern, tried in this order: nearly all fit the first."""

ENGINE: Final = RegexOptions(size_limit=_SIZES[-1], dfa_size_limit=1 << 17)
"""The linear-time engine: no lookaround, no backreferences."""


_STARTS: Final = re.compile(r"\^|\\A")
_ENDS: Final = re.compile(r"\$|\\z")
_OTHER_PLACES: Final = re.compile(r"\\[bB<>]")
"""Assertions about a position in a text other than its beginning and end: boundaries of words."""


def check(patterns: Mapping[str, SchemaNode]) -> None:
    """Raise `InvalidSchema` for patterns that are invalid, need backtracking, or are too large (`((.{99}){99}){99}`).

    Each pattern comes with a schema that has it.
    """
    if len(patterns) > PATTERNS_MAX:
        raise InvalidSchema(f"it has more than {PATTERNS_MAX} different patterns", limit=PATTERNS_MAX)
    left = PATTERNS_BYTES_MAX
    for pattern, node in patterns.items():
        size = _size(pattern)
        if size is None:
            raise node.refusal(f"the pattern {quoted(pattern)} {_fault(pattern)}")
        left -= size
        if left < 0:
            raise InvalidSchema("its patterns are too large together", limit=PATTERNS_BYTES_MAX)


def matches(document: SchemaDocument, pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern. Compiled patterns are cached in the document."""
    if pattern not in document.matchers:
        document.matchers[pattern] = _compiled(pattern, ENGINE)
    return document.matchers[pattern].is_valid(name)


def matches_everything(document: SchemaDocument, pattern: str) -> bool:
    """Return True if every text certainly matches. False may also mean that this is not decided.

    A pattern is searched for anywhere in a text. One that matches the empty text finds an empty match in every text:
    anywhere if it has no anchor, at the beginning or at the end if all its anchors are for that end.
    """
    if _OTHER_PLACES.search(pattern) or (_STARTS.search(pattern) and _ENDS.search(pattern)):
        return False
    return matches(document, pattern, "")


def _compiled(pattern: str, engine: Any) -> Draft202012Validator:
    return Draft202012Validator({"pattern": pattern}, pattern_options=engine, offline=True)


def _size(pattern: str) -> int | None:
    for size in _SIZES:
        try:
            _compiled(pattern, RegexOptions(size_limit=size, dfa_size_limit=1 << 17))
        except ValidationError:
            continue
        return size
    return None


def _fault(pattern: str) -> str:
    try:
        _compiled(pattern, FancyRegexOptions(size_limit=_SIZES[-1]))
    except ValidationError:
        return "is not a regular expression, or too large a one"
    return "needs backtracking: lookaround and backreferences are not allowed"
