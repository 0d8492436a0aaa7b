"""The option `where`: what it means is what Spark's own filters mean."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from penstock.core.errors import PenstockError
from penstock.spark.scan.filters import translate
from penstock.spark.scan.where import parse_where

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ID = bytes.fromhex("1f0c2a4e7b1d6c009a3f0123456789ab")


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("type = 'a'", [spark.EqualTo(("type",), "a")]),
        ("TYPE=='it''s' And offset>=5", [spark.EqualTo(("type",), "it's"), spark.GreaterThanOrEqual(("offset",), 5)]),
        ("offset between 3 and 9", [spark.GreaterThanOrEqual(("offset",), 3), spark.LessThanOrEqual(("offset",), 9)]),
        ("partition in (0, 3) and offset < 7", [spark.In(("partition",), (0, 3)), spark.LessThan(("offset",), 7)]),
        ("type like 'order.%'", [spark.StringStartsWith(("type",), "order.")]),
        ("topic in ('Orders', '/shop/x')", [spark.In(("topic",), ("/default/orders", "/shop/x"))]),
        ("timestamp > '2026-01-31T12:00:00Z'", [spark.GreaterThan(("timestamp",), NOON)]),
        ("timestamp <= timestamp '2026-01-31 12:00:00'", [spark.LessThanOrEqual(("timestamp",), NOON)]),
        ("id = '1f0c2a4e-7b1d-6c00-9a3f-0123456789ab'", [spark.EqualTo(("id",), ID)]),
        ("id < x'1f0c'", [spark.LessThan(("id",), b"\x1f\x0c")]),
        ("offset > -1", [spark.GreaterThan(("offset",), -1)]),
    ],
)
def test_conditions_are_those_of_spark(text: str, filters: list[Any]) -> None:
    assert parse_where(text) == translate(filters)[0]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not finished"),
        ("type", "not finished"),
        ("type =", "not finished"),
        ("type = 'a' and", "not finished"),
        ("type = 'a", 'not clear at "\'a"'),
        ("type = a", "no value for type: a"),
        ("type = 5", "no value for type: 5"),
        ("offset = 'x'", "no value for offset"),
        ("offset = 1.5", "not clear at '1.5'"),
        ("offset != 3", "not clear at '!= 3'"),
        ("value = 'x'", "no column that can be searched by: 'value'"),
        ("type = 'a' or type = 'b'", "not clear at 'or': 'and' expected"),
        ("partition in (1, 2", "not finished"),
        ("partition in (1 2)", "not clear at '2': '[)]' expected"),
        ("type like '%x'", "no start of a text"),
        ("type like 'a_c%'", "no start of a text"),
        ("offset like 'x%'", "no condition that can be searched by"),
        ("type < 'a'", "no condition that can be searched by"),
        ("timestamp > 'noon'", "no time: 'noon'"),
        ("topic = 'no topic'", "must be a letter"),
        ("id = 'abc'", "not a message id"),
    ],
)
def test_what_is_wrong_is_named(text: str, what: str) -> None:
    with pytest.raises((ValueError, PenstockError), match=what):
        parse_where(text)


@given(st.text(max_size=30))
def test_any_text_is_a_condition_or_a_plain_error(text: str) -> None:
    with contextlib.suppress(ValueError, PenstockError):
        parse_where(text)
