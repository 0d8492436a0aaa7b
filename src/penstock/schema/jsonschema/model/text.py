"""The JSON text of a schema. Stricter than JSON where JSON leaves a choice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from penstock.core.schemas import SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX
from penstock.schema.errors import InvalidSchema
from penstock.schema.problems import fragment

_NUMBER_CHARS_MAX: Final = 400
"""Characters of a number as written. The largest double has 309 digits."""


def parse_json(text: str) -> Any:
    """Parse a text. Numbers become `int` where they have no fraction (`1.0`, `1e3`), else `float`.

    Raises `InvalidSchema` for a text that is not JSON, is too large or too deep, has a duplicate key, or has characters
    or numbers that others could not read.
    """
    _check_size(text)
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
        )
        # Halves of surrogate pairs can enter as escapes, and UTF-8 cannot encode them.
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidSchema("it holds half of a surrogate pair, which is no character") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise InvalidSchema(f"it is not JSON: {error}") from None
    _check_depth(value)
    return value


def pointer(tokens: Iterable[str | int]) -> str:
    """Return a JSON pointer such as `/properties/a~1b`."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in tokens)


def compact(value: Any) -> str:
    """Return the same JSON text for equal values: no spaces, keys sorted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def quoted(value: Any) -> str:
    """Return a value as text, short enough for a message."""
    return fragment(compact(value))


def _check_size(text: str) -> None:
    if len(text) > SCHEMA_BYTES_MAX or len(text.encode(errors="surrogatepass")) > SCHEMA_BYTES_MAX:
        raise InvalidSchema(f"a schema has at most {SCHEMA_BYTES_MAX} bytes", limit=SCHEMA_BYTES_MAX)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise InvalidSchema(f"the key {quoted(twice)} stands twice in one object")
    return members


def _number(text: str) -> int | float:
    if len(text) > _NUMBER_CHARS_MAX or float(text) in (float("inf"), float("-inf")):
        raise InvalidSchema(f"the number {fragment(text)} is out of range")
    if not float(text):
        return _zero(text)
    exact = Decimal(text)
    return int(exact) if exact == exact.to_integral_value() else float(text)


def _zero(text: str) -> int:
    if any(digit in text.lower().partition("e")[0] for digit in "123456789"):
        raise InvalidSchema(f"the number {text} is too small to be told from zero")
    return 0


def _constant(text: str) -> None:
    raise InvalidSchema(f"{text} is not a number in JSON")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(SCHEMA_DEPTH_MAX + 1):
        level = [child for holder in level for child in _children(holder)]
        if not level:
            return
    raise _too_deep()


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep() -> InvalidSchema:
    return InvalidSchema(f"it is nested more than {SCHEMA_DEPTH_MAX} deep", limit=SCHEMA_DEPTH_MAX)
