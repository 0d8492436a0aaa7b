"""The JSON text of a schema: parsed with limits on size, number and depth, and without ambiguities."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from penstock.core.schemas import SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX
from penstock.schema.avro.model import SchemaPath, refuse
from penstock.schema.problems import fragment

CHARS_MAX: Final = 4 * SCHEMA_BYTES_MAX
"""Characters of a schema and all that it refers to: they are in memory together."""

VALUES_MAX: Final = 100_000
"""JSON values of a schema and all that it refers to: one for every ten bytes of the largest text; half a second."""

JSON_DEPTH_MAX: Final = 4 * SCHEMA_DEPTH_MAX
"""Depth of the JSON: a record within a record is three levels, and a default or a property at the bottom adds its
own."""

_TOO_DEEP: Final = f"its JSON is nested more than {JSON_DEPTH_MAX} deep"


class _InvalidDocument(Exception):
    """A fault of a JSON text. `parse_json` turns it into `InvalidSchema` with the path of the text."""


def check_volume(texts: Iterable[str]) -> None:
    """Raise `InvalidSchema` for texts that are too large together, before any is parsed."""
    chars = values = 0
    for text in texts:
        chars += len(text)
        if chars > CHARS_MAX:
            refuse(f"a schema and all it refers to have at most {CHARS_MAX} characters", SchemaPath())
        # An upper bound: every value but the first has one of these characters before it.
        values += 1 + sum(map(text.count, ",[{"))
    if values > VALUES_MAX:
        refuse(f"a schema and all it refers to have at most {VALUES_MAX} values", SchemaPath())


def parse_json(text: str, root: SchemaPath) -> Any:
    """Parse a text. Raises `InvalidSchema`, with the path `root`, for a text that is not JSON, is too large or too
    deep, or has a duplicate key, half of a surrogate pair or a number out of range."""
    try:
        _check_size(text)
        value = _decoded(text)
        _check_depth(value)
        _check_characters(text, value)
    except _InvalidDocument as reason:
        refuse(str(reason), root)
    return value


def _check_size(text: str) -> None:
    try:
        size = len(text) if len(text) > SCHEMA_BYTES_MAX else len(text.encode())
    except UnicodeEncodeError:
        raise _InvalidDocument("its text holds half a surrogate pair, which is no character") from None
    if size > SCHEMA_BYTES_MAX:
        raise _InvalidDocument(f"a schema has at most {SCHEMA_BYTES_MAX} bytes")


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_float=_number, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise _InvalidDocument(f"it is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except ValueError:
        raise _InvalidDocument("it has a number with thousands of digits") from None
    except RecursionError:
        raise _InvalidDocument(_TOO_DEEP) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise _InvalidDocument(f'the key "{fragment(twice)}" occurs twice in one object')
    return members


def _number(text: str) -> float:
    read_number = float(text)
    if math.isinf(read_number):
        raise _InvalidDocument(f"no floating-point number is as large as {fragment(text)}")
    return read_number


def _constant(name: str) -> NoReturn:
    raise _InvalidDocument(f"it is not JSON: {name} is not a number there")


def _check_depth(value: Any) -> None:
    """Raise `_InvalidDocument` for a value that is nested too deep. The check goes level by level, because recursion
    could itself exceed Python's stack."""
    level = [value]
    for _ in range(JSON_DEPTH_MAX + 1):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise _InvalidDocument(_TOO_DEEP)


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_characters(text: str, value: Any) -> None:
    if "\\u" not in text:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _InvalidDocument("a string in it holds half a surrogate pair, which is no character") from None
