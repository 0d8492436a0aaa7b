"""Sizes and spans of time, as people write them and as they must not."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequest
from penstock.core.limits import GIB, KIB, MIB
from penstock.core.units import parse_duration_ms, parse_size

SIZES = {
    "0": 0,
    "512": 512,
    "512B": 512,
    "64KiB": 64 * KIB,
    "64kib": 64 * KIB,
    "3MiB": 3 * MIB,
    "2GiB": 2 * GIB,
    "10KB": 10_000,
    "10MB": 10_000_000,
    "1gb": 1_000_000_000,
    "007": 7,
}
SPANS_MS = {"500ms": 500, "30s": 30_000, "5m": 300_000, "2h": 7_200_000, "7d": 604_800_000, "1D": 86_400_000}

# `int()` takes most of these; a size does not.
NO_NUMBERS = ["", " ", "-1", "+1", "1_000", "1 KiB", " 1", "1 ", "1.5GiB", "1e3", "0x10", "٣", "1²", "\n1", "1\n"]


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_a_size_is_a_number_and_a_unit_in_any_case(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "span"), SPANS_MS.items())
def test_a_span_of_time_is_a_number_and_a_unit(text: str, span: int) -> None:
    assert parse_duration_ms(text) == span


@pytest.mark.parametrize("text", [*NO_NUMBERS, "KiB", "1TiB", "1K", "1d", "1" * 16])
def test_what_is_not_a_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match="64KiB") as caught:
        parse_size(text)
    assert caught.value.details == {"given": text}


@pytest.mark.parametrize("text", [*NO_NUMBERS, "7", "d", "7y", "7 d", "1KiB"])
def test_what_is_not_a_span_of_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match="7d"):
        parse_duration_ms(text)


@given(st.text())
def test_any_text_is_a_size_or_a_refusal_and_nothing_else(text: str) -> None:
    for parse in (parse_size, parse_duration_ms):
        with contextlib.suppress(InvalidRequest):
            assert parse(text) >= 0


@given(st.integers(0, 10**15 - 1))
def test_a_number_without_a_unit_is_bytes(number: int) -> None:
    assert parse_size(str(number)) == number
