"""The tokens of a .proto text. Every character is accounted for: it is in a token, between tokens, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from penstock.schema.errors import InvalidSchema
from penstock.schema.protobuf.limits import REFUSAL_CHARS_MAX


class TokenKind(Enum):
    NAME = "name"
    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    kind: TokenKind
    text: str
    """The text as written; a string with its quotes and escapes."""
    at: int
    """The offset in characters."""


# Possessive throughout: the regular expressions never backtrack.
_BETWEEN: Final = r"(?: [ \t\r\n\v\f]++ | //[^\n]*+ | /\*(?:[^*/]++|\*(?!/)|/(?!\*))*+\*/ )*+"
_TOKEN: Final = re.compile(
    rf"""{_BETWEEN}(?:
      (?P<name>    [A-Za-z_][A-Za-z0-9_]*+ )
    | (?P<string>  "(?:[^"\\\n]++|\\[^\n])*+" | '(?:[^'\\\n]++|\\[^\n])*+' )
    | (?P<number>  \.?[0-9](?:[eE][+-]|[A-Za-z0-9_.])*+ )
    | (?P<symbol>  (?!/\*)[!\#-&(-/:-@\[-`{{-~] )
    | (?P<end>     \Z )
    )""",
    re.VERBOSE,
)
_SKIPPED: Final = re.compile(_BETWEEN, re.VERBOSE)
_INTEGER: Final = re.compile(r"0[xX][0-9a-fA-F]++|0[0-7]*+|[1-9][0-9]*+")
_FLOAT: Final = re.compile(r"(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]*+|(?=[eE]))|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_KINDS: Final = {each.value: each for each in TokenKind}
_BYTE_ORDER_MARK: Final = "\ufeff"


def tokens(text: str, tokens_max: int, file: str = "") -> Iterator[Token]:
    """Yield all tokens, and one END. Raises `InvalidSchema` at the first character that belongs to none, and for more
    than `tokens_max` tokens."""
    at = len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0
    for _ in range(tokens_max):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _out_of_place(text, at, file)
        group = str(match.lastgroup)
        word = match[group]
        at = match.end()
        begin = at - len(word)
        kind = _KINDS.get(group) or _number(word, text, begin, file)
        yield Token(kind, word, begin)
        if kind is TokenKind.END:
            return
    raise refusal(f"more than {tokens_max} words are too many for a schema", text, at, file)


def refusal(message: str, text: str, at: int, file: str = "", **details: object) -> InvalidSchema:
    """Return an error about the text at `at`, with its line and column, both from 1."""
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    within = {"file": file} if file else {}
    where = f'"{file}", line {line}' if file else f"line {line}"
    return InvalidSchema(brief(f"{where}, column {column}: {message}"), **within, line=line, column=column, **details)


def brief(sentence: str) -> str:
    return sentence if len(sentence) <= REFUSAL_CHARS_MAX else f"{sentence[: REFUSAL_CHARS_MAX - 3]}..."


def _number(word: str, text: str, at: int, file: str) -> TokenKind:
    if _INTEGER.fullmatch(word):
        return TokenKind.INTEGER
    if _FLOAT.fullmatch(word):
        return TokenKind.FLOAT
    raise refusal(f"{_shortened(word)} is not a number", text, at, file)


def _out_of_place(text: str, at: int, file: str) -> InvalidSchema:
    skipped = _SKIPPED.match(text, at)
    begin = at if skipped is None else skipped.end()
    if text.startswith("/*", begin):
        inner = text.find("/*", begin + 2)
        if inner < 0 or 0 <= text.find("*/", begin + 2) < inner:
            return refusal("the comment that begins here has no end", text, begin, file)
        return refusal("a comment cannot be within another", text, inner, file)
    if text[begin] in "\"'":
        return refusal("the string that begins here does not end on its line", text, begin, file)
    return refusal(f"the character {text[begin]!a} has no place here", text, begin, file)


def _shortened(word: str) -> str:
    return word if len(word) <= 40 else f"{word[:37]}..."
