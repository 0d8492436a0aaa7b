"""Numbers and strings, as they are written and as they are stored."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schema.protobuf.literals import escaped, integer, quoted, real, shortest, unquoted


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("7", 7), ("007", 7), ("0x1F", 31), ("0X1f", 31), ("18446744073709551615", 2**64 - 1)]
)
def test_integers_have_three_bases(text: str, value: int) -> None:
    assert integer(text) == value


def test_a_number_with_a_million_digits_is_too_large_and_costs_nothing() -> None:
    assert integer("9" * 1_000_000) == 2**64
    assert integer("0" * 1_000_000 + "7") == 7
    assert real("0x" + "f" * 1_000_000) == 2.0**64
    assert real("9" * 1_000_000) == math.inf


@pytest.mark.parametrize(
    ("text", "value"), [("1.", 1.0), (".5", 0.5), ("1e3", 1000.0), ("010", 8.0), ("0", 0.0), ("0.5", 0.5)]
)
def test_reals_may_be_integers(text: str, value: float) -> None:
    assert real(text) == value


@given(st.binary())
def test_escaped_bytes_are_the_bytes_again(value: bytes) -> None:
    assert unquoted(f'"{escaped(value)}"') == value
    assert escaped(value).isascii()
    assert escaped(value).isprintable()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quoted_text_is_the_text_again(value: str) -> None:
    assert unquoted(quoted(value)).decode() == value
    assert "\n" not in quoted(value)


@given(st.floats())
def test_the_shortest_form_of_a_real_is_the_real_again(value: float) -> None:
    again = float(shortest(value))
    assert again == value or (math.isnan(again) and math.isnan(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\a\b\f\n\r\t\v\\\?\'\""', b"\a\b\f\n\r\t\v\\?'\""),
        (r'"\0\12\123\777"', b"\x00\x0aS\xff"),
        (r'"\x4\x41\XFF"', b"\x04A\xff"),
        (r'"\u00e9\U0001F600"', "é😀".encode()),
        (r'"\ud83d\ude00"', "😀".encode()),
        (r'"\ud83d"', b"\xed\xa0\xbd"),
        ("'\"é'", '"é'.encode()),
    ],
)
def test_escapes_stand_for_bytes(text: str, value: bytes) -> None:
    assert unquoted(text) == value


@pytest.mark.parametrize("text", [r'"\z"', r'"\x"', r'"\xg"', r'"\u123"', r'"\U00110000"', r'"\8"', '"\\é"'])
def test_what_is_no_escape_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="not an escape sequence"):
        unquoted(text)
