"""The option `where`: conditions that are applied where the log is read, in the words of SQL.

    type = 'order.created' and timestamp >= '2026-01-31T12:00:00Z' and partition in (0, 3)

Conditions on the columns that the log can be searched by, with `and` between them; no more than that. Other conditions
are for Spark, which filters the rows it gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from penstock.core.ids import parse_id
from penstock.core.names import TopicName
from penstock.spark.scan.filters import FILTERED, NO_FILTERS, Filters, with_condition

WHERE: Final = (
    "conditions such as type = 'a' and timestamp >= '2026-01-31T12:00:00Z' and partition in (0, 3), on"
    f" {', '.join(FILTERED)}, with =, <, <=, >, >=, between, in, like 'start%' and the word and between them"
)

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<hex>[xX]'[0-9a-fA-F]*')|(?P<text>'(?:[^']|'')*')|(?P<number>-?[0-9]+)(?![A-Za-z0-9_.])"
    r"|(?P<word>[A-Za-z_]+)|(?P<sign><=|>=|==|[=<>(),]))",
    re.ASCII,
)
_KINDS: Final = {
    "=": "EqualTo",
    "==": "EqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}


def parse_where(text: str) -> Filters:
    """Parse conditions. Raises `ValueError`, with the wrong place, for a text that is no condition, and a
    `PenstockError` for a wrong topic or id in it."""
    tokens = _Tokens(text)
    filters = NO_FILTERS
    while True:
        for column, kind, value in _condition(tokens):
            less = with_condition(filters, column, kind, value)
            if less is None:
                raise ValueError(f"it is no condition that can be searched by: {column} {kind} {value!r}")
            filters = less
        if tokens.at_end:
            return filters
        tokens.expect("and")


def _condition(tokens: _Tokens) -> Iterator[tuple[str, str, Any]]:
    column = tokens.column()
    operator = tokens.take()
    if operator in _KINDS:
        yield column, _KINDS[operator], tokens.literal(column)
    elif operator == "between":
        yield column, "GreaterThanOrEqual", tokens.literal(column)
        tokens.expect("and")
        yield column, "LessThanOrEqual", tokens.literal(column)
    elif operator == "in":
        yield column, "In", tokens.literals(column)
    elif operator == "like":
        yield column, "StringStartsWith", _prefix(tokens.text())
    else:
        raise ValueError(f"it is not clear at {operator!r}")


def _prefix(pattern: str) -> str:
    """Return the text before the `%` that ends a pattern of `like`. Raises `ValueError` for any other pattern."""
    start = pattern.removesuffix("%")
    if start == pattern or re.search(r"[%_\\]", start):
        raise ValueError(f"it is no start of a text, like {pattern!r}: only 'start%' is known")
    return start


class _Tokens:
    """The words of a condition, one after the other; SQL's own in lower case."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    @property
    def at_end(self) -> bool:
        return not self._text[self._place :].strip()

    def _next(self) -> re.Match[str]:
        found = _TOKEN.match(self._text, self._place)
        if found is None:
            rest = self._text[self._place :].strip()
            raise ValueError(f"it is not clear at {rest[:20]!r}" if rest else "it is not finished")
        self._place = found.end()
        return found

    def take(self) -> str:
        return self._next()[0].strip().lower()

    def expect(self, word: str) -> None:
        found = self.take()
        if found != word:
            raise ValueError(f"it is not clear at {found!r}: {word!r} expected")

    def column(self) -> str:
        name = self.take()
        if name not in FILTERED:
            raise ValueError(f"it is no column that can be searched by: {name!r}")
        return name

    def text(self) -> str:
        found = self._next()
        if found["text"] is None:
            raise ValueError(f"it is no text in quotes: {found[0].strip()!r}")
        return _unquoted(found["text"])

    def literals(self, column: str) -> list[Any]:
        self.expect("(")
        found = [self.literal(column)]
        while (sign := self.take()) == ",":
            found.append(self.literal(column))
        if sign != ")":
            raise ValueError(f"it is not clear at {sign!r}: ')' expected")
        return found

    def literal(self, column: str) -> Any:
        found = self._next()
        if found["word"] is not None and found["word"].lower() == "timestamp" and column == "timestamp":
            found = self._next()
        if found["number"] is not None and column in ("partition", "offset"):
            return int(found["number"])
        if found["hex"] is not None and column == "id":
            return bytes.fromhex(found["hex"][2:-1])
        if found["text"] is not None and column in _OF_TEXT:
            return _OF_TEXT[column](_unquoted(found["text"]))
        raise ValueError(f"it is no value for {column}: {found[0].strip()}")


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _time(text: str) -> datetime:
    """Parse a time; UTC unless it names a zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"it is no time: {text!r}") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


_OF_TEXT: Final[dict[str, Any]] = {
    "topic": lambda text: str(TopicName.parse(text)),
    "type": str,
    "timestamp": _time,
    "id": parse_id,
}
