"""Logical types: the types that they may annotate, and invalid ones, which are ignored."""

from __future__ import annotations

from typing import Any

import pytest
from tests.schema.avro.kit import fixed, logical, parsed

from penstock.schema.avro.logical import UNDERLYING
from penstock.schema.avro.model import Logical

TYPES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def meaning(tree: Any) -> Logical | None:
    found: Logical | None = parsed(tree).schema.root.logical  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("name", [name for name in UNDERLYING if name not in ("decimal", "duration")])
def test_a_logical_type_stands_on_its_own_type_and_on_no_other(name: str) -> None:
    for kind in TYPES:
        expected = Logical(name) if kind in UNDERLYING[name] else None
        assert meaning(logical(kind, name)) == expected


@pytest.mark.parametrize("name", ["", "ours", "Date", "decimal(4,2)", None, 1, ["date"]])
def test_a_name_that_nobody_knows_is_no_logical_type(name: Any) -> None:
    assert meaning({"type": "int", "logicalType": name}) is None


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"precision": 4, "scale": 2}, Logical("decimal", 4, 2)),
        ({"precision": 4}, Logical("decimal", 4, 0)),
        ({"precision": 4, "scale": 4}, Logical("decimal", 4, 4)),
        ({}, None),
        ({"scale": 0}, None),
        ({"precision": 0}, None),
        ({"precision": -1}, None),
        ({"precision": 4, "scale": 5}, None),
        ({"precision": 4, "scale": -1}, None),
        ({"precision": "4"}, None),
        ({"precision": 4.0}, None),
        ({"precision": True}, None),
        ({"precision": 4, "scale": None}, None),
    ],
)
def test_a_decimal_has_a_precision_and_a_scale_within_it(numbers: Any, expected: Logical | None) -> None:
    assert meaning(logical("bytes", "decimal", **numbers)) == expected


@pytest.mark.parametrize(("size", "digits"), [(1, 2), (2, 4), (4, 9), (8, 18), (16, 38)])
def test_a_fixed_holds_as_many_digits_as_all_its_numbers_have(size: int, digits: int) -> None:
    assert len(str(2 ** (8 * size - 1) - 1)) - 1 == digits
    assert meaning(fixed("F", size, logicalType="decimal", precision=digits)) == Logical("decimal", digits)
    assert meaning(fixed("F", size, logicalType="decimal", precision=digits + 1)) is None


def test_a_fixed_of_no_bytes_holds_no_number() -> None:
    assert meaning(fixed("F", 0, logicalType="decimal", precision=1)) is None


@pytest.mark.parametrize(("name", "size"), [("duration", 12), ("uuid", 16)])
def test_a_fixed_has_the_size_that_its_meaning_needs(name: str, size: int) -> None:
    assert meaning(fixed("F", size, logicalType=name)) == Logical(name)
    assert meaning(fixed("F", size + 1, logicalType=name)) is None
