"""As much of PromQL as our rules and panels are written in: read strictly, so that a slip is found before an alarm is
not raised. https://prometheus.io/docs/prometheus/latest/querying/basics/
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|[smhdw])?|(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)"
    r'|(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>=~|!~|!=|==|<=|>=|[-+*/%<>=(){}\[\],]))'
)
_FUNCTIONS = {
    "rate": "range",
    "increase": "range",
    "changes": "range",
    "predict_linear": "range,number",
    "histogram_quantile": "number,vector",
}
_AGGREGATIONS = frozenset({"sum", "min", "max", "avg", "count"})
_RANKS = ({"or"}, {"and", "unless"}, {"==", "!=", "<", ">", "<=", ">="}, {"+", "-"}, {"*", "/", "%"})


class Wrong(ValueError):
    """Not an expression."""


@dataclass
class Parsed:
    """The metrics that an expression asks for, and the labels it names of each."""

    metrics: dict[str, set[str]] = field(default_factory=dict)
    grouped: set[str] = field(default_factory=set)


def parse(text: str) -> Parsed:
    """Raises `Wrong`."""
    reader = _Reader(_tokens(text))
    kind = reader.expression(0)
    if reader.rest:
        raise Wrong(f"{text!r}: {reader.rest[0]!r} is too much")
    if kind == "range":
        raise Wrong(f"{text!r} is a range, and no value")
    return reader.found


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise Wrong(f"{text!r}: {text[place:]!r} is nothing")
        kind = "span" if match["unit"] else next(name for name, value in match.groupdict().items() if value is not None)
        tokens.append((kind, match.group().strip()))
        place = match.end()
    return tokens


class _Reader:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.rest = tokens
        self.found = Parsed()

    def _next(self, *wanted: str) -> str:
        if not self.rest or (wanted and self.rest[0][1] not in wanted):
            raise Wrong(f"{wanted or 'something'} is missing before {self.rest[:1]}")
        return self.rest.pop(0)[1]

    def _is(self, *signs: str) -> bool:
        return bool(self.rest) and self.rest[0][1] in signs

    def _kind(self, kind: str) -> str:
        if not self.rest or self.rest[0][0] != kind:
            raise Wrong(f"{kind} is missing before {self.rest[:1]}")
        return self.rest.pop(0)[1]

    def expression(self, rank: int) -> str:
        if rank == len(_RANKS):
            return self._operand()
        kind = self.expression(rank + 1)
        while self._is(*_RANKS[rank]):
            self._next()
            other = self.expression(rank + 1)
            if "range" in (kind, other):
                raise Wrong("a range is compared")
            kind = "number" if kind == other == "number" else "vector"
        return kind

    def _operand(self) -> str:
        if self._is("("):
            self._next()
            kind = self.expression(0)
            self._next(")")
            return kind
        if self.rest and self.rest[0][0] == "number":
            self._next()
            return "number"
        name = self._kind("name")
        if name in _AGGREGATIONS:
            return self._aggregation()
        if name in _FUNCTIONS:
            return self._call(name)
        return self._selector(name)

    def _aggregation(self) -> str:
        if self._is("by", "without"):
            self._next()
            self.found.grouped |= set(self._labels("(", ")"))
        self._next("(")
        if self.expression(0) != "vector":
            raise Wrong("only vectors are aggregated")
        self._next(")")
        return "vector"

    def _call(self, name: str) -> str:
        self._next("(")
        for place, wanted in enumerate(_FUNCTIONS[name].split(",")):
            if place:
                self._next(",")
            if self.expression(0) != wanted:
                raise Wrong(f"{name} takes {_FUNCTIONS[name]}")
        self._next(")")
        return "vector"

    def _selector(self, name: str) -> str:
        named = self.found.metrics.setdefault(name, set())
        if self._is("{"):
            self._next()
            while not self._is("}"):
                named.add(self._kind("name"))
                self._next("=", "!=", "=~", "!~")
                self._kind("text")
                if not self._is("}"):
                    self._next(",")
            self._next("}")
        if not self._is("["):
            return "vector"
        self._next()
        self._kind("span")
        self._next("]")
        return "range"

    def _labels(self, begin: str, end: str) -> list[str]:
        self._next(begin)
        labels = [self._kind("name")]
        while self._is(","):
            self._next()
            labels.append(self._kind("name"))
        self._next(end)
        return labels
