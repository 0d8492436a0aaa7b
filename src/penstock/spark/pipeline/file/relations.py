"""Tables that an SQL text reads, found without Spark: enough to know the inputs of a step.

Not a parser: it knows strings, comments, parentheses, and the words after which a table stands. A name with dots
belongs to a catalog or is a file, and is ignored; a name that WITH defines is the query's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | `(?P<quoted>(?:[^`]|``)*)`
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<pipe>\|>)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUERY_BEGINS: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})
_FROM_ENDS: Final = frozenset(
    {"WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "WINDOW", "UNION", "INTERSECT", "EXCEPT", "MINUS"}
    | {"CLUSTER", "DISTRIBUTE", "SORT", "QUALIFY"}
)
_BEFORE_TABLE: Final = frozenset({"LATERAL", "STREAM", "ONLY"})
_NO_FUNCTION: Final = frozenset(
    {"FROM", "JOIN", "IN", "EXISTS", "AS", "ON", "AND", "OR", "NOT", "SELECT", "WHERE", "USING", "TABLE", "LATERAL"}
)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    word: str = ""
    """The word in upper case, for comparing; empty if the token is no plain word."""
    is_name: bool = False


@dataclass(slots=True)
class _Parentheses:
    """The state between two parentheses."""

    of_function: bool = False
    defines: str | None = None
    """The name that WITH gives the query in here."""
    is_query: bool = False
    in_from: bool = False
    table_next: bool = False


@dataclass(slots=True)
class _Search:
    tokens: list[_Token]
    levels: list[_Parentheses] = field(default_factory=lambda: [_Parentheses()])
    own: set[str] = field(default_factory=set)
    """Names that WITH has defined so far. A name counts as a table from outside until the query that defines it has
    ended."""
    found: dict[str, None] = field(default_factory=dict)


def relations(sql: str) -> tuple[str, ...]:
    """Return the names of the tables that a query reads, in lower case, each once, in the order in which they first
    occur."""
    search = _Search(list(_tokens(sql)))
    for place in range(len(search.tokens)):
        _step(search, place)
    return tuple(search.found)


def _tokens(sql: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(sql):
        match match.lastgroup:
            case "skip":
                continue
            case "quoted":
                yield _Token(match["quoted"].replace("``", "`"), is_name=True)
            case "word":
                yield _Token(match["word"], match["word"].upper(), is_name=True)
            case "string":
                yield _Token("''")
            case _:
                yield _Token(match[0])


def _step(search: _Search, place: int) -> None:
    token, level = search.tokens[place], search.levels[-1]
    if token.text == "(" and not token.is_name:
        _open(search, place)
    elif token.text == ")" and not token.is_name:
        _close(search)
    elif token.text == "," and not token.is_name:
        level.table_next = level.in_from
    elif token.text == "|>":
        level.in_from = level.table_next = False
    elif not token.is_name:
        level.table_next = False
    elif not _keyword(search, place) and level.table_next:
        level.table_next = False
        _record_table(search, place)


def _keyword(search: _Search, place: int) -> bool:
    """Return whether the word is a keyword after which a table stands, or no longer stands; note that in the search."""
    word, level = search.tokens[place].word, search.levels[-1]
    if word == "FROM":
        if not (_is_comparison(search, place) or (level.of_function and not level.is_query)):
            level.is_query = level.in_from = level.table_next = True
    elif word in ("JOIN", "TABLE"):
        level.table_next = True
    elif word == "SELECT":
        level.is_query, level.in_from, level.table_next = True, False, False
    elif word in _FROM_ENDS:
        level.in_from = level.table_next = False
    else:
        return word in _BEFORE_TABLE and level.table_next and _names_follow(search, place)
    return True


def _is_comparison(search: _Search, place: int) -> bool:
    """Return whether FROM belongs to IS [NOT] DISTINCT FROM."""
    before = [token.word for token in search.tokens[max(0, place - 3) : place]]
    return before[-2:] == ["IS", "DISTINCT"] or before == ["IS", "NOT", "DISTINCT"]


def _names_follow(search: _Search, place: int) -> bool:
    after = search.tokens[place + 1 : place + 2]
    return bool(after) and (after[0].is_name or after[0].text == "(")


def _open(search: _Search, place: int) -> None:
    before = search.tokens[place - 1] if place else None
    level = search.levels[-1]
    called = before is not None and before.is_name and before.word not in _NO_FUNCTION and not level.table_next
    inner = _Parentheses(of_function=called, defines=_name_with_defines(search, place), table_next=level.table_next)
    level.table_next = False
    search.levels.append(inner)


def _close(search: _Search) -> None:
    if len(search.levels) == 1:
        return  # unbalanced parentheses: Spark reports them
    closed = search.levels.pop()
    if closed.defines is not None:
        search.own.add(closed.defines)


def _name_with_defines(search: _Search, place: int) -> str | None:
    """Return the name that WITH gives to the query in the parentheses that open here; None if they are others.

    The text before is `name AS (` or `name (columns) AS (`.
    """
    tokens = search.tokens
    if place < 2 or tokens[place - 1].word != "AS":
        return None
    if not (tokens[place + 1 : place + 2] and tokens[place + 1].word in _QUERY_BEGINS):
        return None
    named = place - 2
    if tokens[named].text == ")":
        while named > 0 and tokens[named].text != "(":
            named -= 1
        named -= 1
    return tokens[named].text.lower() if named >= 0 and tokens[named].is_name else None


def _record_table(search: _Search, place: int) -> None:
    """Record the name of a table, unless it is a function's, has dots, or is the query's own."""
    after = search.tokens[place + 1 : place + 2]
    name = search.tokens[place].text.lower()
    if after and after[0].text in ("(", "."):
        return
    if name not in search.own:
        search.found[name] = None
