"""From text to JSON values, whatever the text is: bounded in size, number and depth, and nothing in it is ambiguous."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from penstock.core.schemas import SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX
from penstock.schema.avro.model import Place, refuse
from penstock.schema.problems import fragment

CHARS_MAX: Final = 4 * SCHEMA_BYTES_MAX
"""Of a schema and all that it refers to: they are in memory together."""

VALUES_MAX: Final = 100_000
"""Of a schema and all that it refers to: one for every ten bytes of the largest text, which takes half a second."""

JSON_DEPTH_MAX: Final = 4 * SCHEMA_DEPTH_MAX
"""A record within a record is three levels of JSON; a default or a property at the bottom has some of its own."""

_TOO_DEEP: Final = f"its JSON is nested more than {JSON_DEPTH_MAX} deep"


class _Unreadable(Exception):
    """Found where it is not known which text this is."""


def check_volume(texts: Iterable[str]) -> None:
    """Raises `InvalidSchema` for more than can be read together, before anything is."""
    chars = values = 0
    for text in texts:
        chars += len(text)
        if chars > CHARS_MAX:
            refuse(f"a schema and all it refers to have at most {CHARS_MAX} characters", Place())
        # Never fewer than there are: every value but the first has one of these before it.
        values += 1 + sum(map(text.count, ",[{"))
    if values > VALUES_MAX:
        refuse(f"a schema and all it refers to have at most {VALUES_MAX} values", Place())


def read(text: str, root: Place) -> Any:
    """Raises `InvalidSchema` for text that is too large or too deep, not JSON, or says one thing twice."""
    try:
        _check_size(text)
        value = _decoded(text)
        _check_depth(value)
        _check_characters(text, value)
    except _Unreadable as reason:
        refuse(str(reason), root)
    return value


def _check_size(text: str) -> None:
    try:
        size = len(text) if len(text) > SCHEMA_BYTES_MAX else len(text.encode())
    except UnicodeEncodeError:
        raise _Unreadable("its text holds half a surrogate pair, which is no character") from None
    if size > SCHEMA_BYTES_MAX:
        raise _Unreadable(f"a schema has at most {SCHEMA_BYTES_MAX} bytes")


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_float=_number, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise _Unreadable(f"it is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except ValueError:
        raise _Unreadable("it has a number with thousands of digits") from None
    except RecursionError:
        raise _Unreadable(_TOO_DEEP) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise _Unreadable(f'the key "{fragment(twice)}" occurs twice in one object')
    return made


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Unreadable(f"no floating-point number is as large as {fragment(text)}")
    return number


def _constant(name: str) -> NoReturn:
    raise _Unreadable(f"it is not JSON: {name} is not a number there")


def _check_depth(value: Any) -> None:
    """Level by level: it is recursion that depth would hurt."""
    level = [value]
    for _ in range(JSON_DEPTH_MAX + 1):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise _Unreadable(_TOO_DEEP)


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
        raise _Unreadable("a string in it holds half a surrogate pair, which is no character") from None
