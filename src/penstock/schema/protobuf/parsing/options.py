"""Options as they are written: names with parentheses, values of every kind. They are interpreted later, when all files
that could define them are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from penstock.core.schemas import SCHEMA_DEPTH_MAX
from penstock.schema.protobuf import literals
from penstock.schema.protobuf.parsing.cursor import Cursor
from penstock.schema.protobuf.parsing.tokens import TokenKind

_UINT64_MAX: Final = 2**64 - 1
_INT64_MIN: Final = -(2**63)
_DEEPER: Final = {"{": 1, "<": 1, "}": -1, ">": -1}

PseudoOption = Callable[[Cursor], bool]
"""A function that takes the next option if it is not one of the descriptor's options (such as `default`); returns
whether it did."""


def statement(cursor: Cursor, holder: Any, path: str) -> None:
    """Parse `option name = value;` into the `options` of `holder`."""
    cursor.expect("option")
    _option(cursor, holder.options, path)
    cursor.expect(";")


def bracketed(cursor: Cursor, holder: Any, path: str, pseudo: PseudoOption = lambda _: False) -> None:
    """Parse `[name = value, name = value]`, if it is next, into the `options` of `holder`. `pseudo` may take an option
    first."""
    if not cursor.take("["):
        return
    while True:
        if not pseudo(cursor):
            _option(cursor, holder.options, path)
        if not cursor.take(","):
            break
    cursor.expect("]")


def option_key(path: str, index: int) -> str:
    """Return the key of an option's position: the path of its element and the option's index."""
    return f"{path}[{index}]"


def _option(cursor: Cursor, options: Any, path: str) -> None:
    cursor.positions[option_key(path, len(options.uninterpreted_option))] = cursor.token.at
    option = options.uninterpreted_option.add()
    _name_part(cursor, option)
    while cursor.take("."):
        _name_part(cursor, option)
    cursor.expect("=")
    _value(cursor, option)


def _name_part(cursor: Cursor, option: Any) -> None:
    if cursor.take("("):
        option.name.add(name_part=cursor.qualified("the name of an option"), is_extension=True)
        cursor.expect(")")
    else:
        option.name.add(name_part=cursor.name("the name of an option"), is_extension=False)


def _value(cursor: Cursor, option: Any) -> None:
    negative = cursor.take("-")
    match cursor.token.kind:
        case TokenKind.INTEGER:
            _integer(option, literals.integer(cursor.token.text), literals.real(cursor.next().text), negative)
        case TokenKind.FLOAT:
            option.double_value = _signed(literals.real(cursor.next().text), negative)
        case TokenKind.NAME if negative:
            option.double_value = -_not_finite(cursor)
        case TokenKind.NAME:
            option.identifier_value = cursor.next().text
        case TokenKind.STRING if not negative:
            option.string_value = cursor.string("a string")
        case _ if cursor.at("{") and not negative:
            option.aggregate_value = _aggregate(cursor)
        case _:
            raise cursor.expected("the value of an option")


def _integer(option: Any, value: int, approximately: float, negative: bool) -> None:
    if not negative and value <= _UINT64_MAX:
        option.positive_int_value = value
    elif negative and -value >= _INT64_MIN:
        option.negative_int_value = -value
    else:
        option.double_value = _signed(approximately, negative)


def _signed(value: float, negative: bool) -> float:
    return -value if negative else value


def _not_finite(cursor: Cursor) -> float:
    values = {"inf": math.inf, "nan": math.nan}
    if cursor.token.text not in values:
        raise cursor.expected("a number, inf or nan")
    return values[cursor.next().text]


def _aggregate(cursor: Cursor) -> str:
    """Take a message in the text format and return its words joined by spaces. Only the braces are checked here."""
    cursor.expect("{")
    words: list[str] = []
    braces = depth = 1
    while True:
        if cursor.at_kind(TokenKind.END):
            raise cursor.expected("'}'")
        braces += {"{": 1, "}": -1}.get(cursor.token.text, 0)
        depth = max(depth + _DEEPER.get(cursor.token.text, 0), 0)
        if depth > SCHEMA_DEPTH_MAX:
            raise cursor.refuse(f"the value of an option is nested more than {SCHEMA_DEPTH_MAX} deep")
        word = cursor.next().text
        if not braces:
            return " ".join(words)
        if words and words[-1] == "-":
            words[-1] = f"-{word}"
        else:
            words.append(word)
