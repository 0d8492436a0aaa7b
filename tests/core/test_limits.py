"""Limits: the defaults hold, every field refuses what it cannot be, and the fields agree with each other."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from penstock.core import limits
from penstock.core.errors import InvalidRequest
from penstock.core.limits import (
    BLOCK_BYTES_CEILING,
    GIB,
    KEY_BYTES_MAX,
    KIB,
    MIB,
    PARTITIONS_MAX,
    SEGMENT_BYTES_CEILING,
    TOPIC_CHARS_MAX,
    TYPE_BYTES_MAX,
    Limits,
    WireLimits,
)

FIELDS = [field.name for field in fields(Limits)]
NOT_A_LIMIT: list[object] = [
    0,
    -1,
    -(2**63),
    True,
    False,
    "1",
    "",
    1.0,
    0.5,
    float("inf"),
    float("nan"),
    None,
    b"1",
    [1],
]


def make(**given: Any) -> Limits:
    return Limits(**given)


def refused_field(limits: Limits) -> object:
    with pytest.raises(InvalidRequest) as caught:
        limits.check()
    field = caught.value.details["field"]
    assert str(caught.value).startswith(str(field))
    return field


def test_the_defaults_pass_their_own_check() -> None:
    defaults = Limits()
    assert defaults.check() is defaults


def test_the_units_are_powers_of_two() -> None:
    assert (KIB, MIB, GIB) == (2**10, 2**20, 2**30)


@pytest.mark.parametrize("value", NOT_A_LIMIT, ids=repr)
@pytest.mark.parametrize("field", FIELDS)
def test_what_is_not_a_positive_whole_number_is_refused_by_the_fields_name(field: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=rf"^{field} must be a positive whole number, not ") as caught:
        make(**{field: value}).check()
    assert caught.value.details == {"field": field}
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", [name for name in FIELDS if name not in ("segment_bytes_max", "block_bytes_max")])
def test_a_limit_of_one_is_small_and_allowed(field: str) -> None:
    assert getattr(make(**{field: 1}).check(), field) == 1


def test_every_limit_may_be_one_at_once() -> None:
    make(**dict.fromkeys(FIELDS, 1)).check()


@pytest.mark.parametrize("size", [SEGMENT_BYTES_CEILING - 1, SEGMENT_BYTES_CEILING])
def test_a_segment_may_reach_its_ceiling(size: int) -> None:
    assert Limits(segment_bytes_max=size).check().segment_bytes_max == size


def test_a_segment_may_not_pass_its_ceiling() -> None:
    assert refused_field(Limits(segment_bytes_max=SEGMENT_BYTES_CEILING + 1)) == "segment_bytes_max"


@pytest.mark.parametrize("field", ["segment_bytes_first", "block_bytes_max"])
def test_a_first_segment_and_a_block_may_fill_a_whole_segment_and_no_more(field: str) -> None:
    make(segment_bytes_max=64 * MIB, **{field: 64 * MIB - 1}).check()
    make(segment_bytes_max=64 * MIB, **{field: 64 * MIB}).check()
    assert refused_field(make(segment_bytes_max=64 * MIB, **{field: 64 * MIB + 1})) == field


def test_a_block_may_not_pass_its_ceiling() -> None:
    large = {"segment_bytes_max": 128 * MIB, "block_bytes_max": BLOCK_BYTES_CEILING}
    make(**large).check()
    assert refused_field(make(**large | {"block_bytes_max": BLOCK_BYTES_CEILING + 1})) == "block_bytes_max"


def test_a_payload_may_fill_a_whole_block_and_no_more() -> None:
    make(block_bytes_max=1000, payload_bytes_max=1000).check()
    assert refused_field(make(block_bytes_max=1000, payload_bytes_max=1001)) == "payload_bytes_max"


@pytest.mark.parametrize("field", FIELDS)
def test_a_value_that_is_no_number_is_named_before_any_rule_between_fields(field: str) -> None:
    broken = {"segment_bytes_max": SEGMENT_BYTES_CEILING + 1, field: "many"}
    assert refused_field(make(**broken)) == field


def test_limits_cannot_be_changed_after_they_were_checked() -> None:
    checked = Limits().check()
    with pytest.raises(FrozenInstanceError):
        checked.block_bytes_max = 1  # type: ignore[misc]


def test_limits_are_given_by_name_only() -> None:
    with pytest.raises(TypeError):
        Limits(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("field", FIELDS)
def test_the_unit_ends_the_name(field: str) -> None:
    assert re.fullmatch(r"[a-z_]+_(bytes|ms|logs)(_max|_first)?", field)


def test_the_limits_of_the_wire_are_checked_alike() -> None:
    assert WireLimits().check() == WireLimits()
    assert WireLimits(topic_rate_max=5).check().topic_rate_max == 5
    optional = ("connection_rate_max", "topic_rate_max")
    for field in fields(WireLimits):
        for wrong in NOT_A_LIMIT:
            if wrong is None and field.name in optional:
                continue
            given: dict[str, Any] = {field.name: wrong}
            with pytest.raises(InvalidRequest, match=field.name):
                WireLimits(**given).check()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"payload_bytes_max": 9 * MIB}, "payload_bytes_max"),
        ({"payload_bytes_max": BLOCK_BYTES_CEILING + 1, "output_bytes_max": GIB}, "payload_bytes_max"),
        ({"request_timeout_ms": 2000, "request_timeout_ms_max": 1999}, "request_timeout_ms"),
        ({"request_timeout_ms_max": 3_600_001}, "request_timeout_ms_max"),
        ({"heartbeat_retry_ms": 2, "heartbeat_deregister_ms": 1}, "heartbeat_retry_ms"),
    ],
)
def test_limits_of_the_wire_that_contradict_each_other_are_refused(given: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        WireLimits(**given).check()
    assert caught.value.details["field"] == field


def test_every_limit_is_followed_by_its_reason() -> None:
    module = ast.parse(inspect.getsource(limits))
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    assert [node.name for node in classes] == ["Limits", "WireLimits"]
    for body in (module.body, *(node.body for node in classes)):
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) not in ("KIB", "MIB", "GIB"):
                reason = after.value if isinstance(after, ast.Expr) else None
                assert isinstance(reason, ast.Constant), f"{ast.unparse(node.target)} gives no reason"


def test_the_fixed_limits_fit_the_fields_that_hold_them() -> None:
    assert TYPE_BYTES_MAX < 2**8
    assert KEY_BYTES_MAX < 2**16
    # The last block may begin just below the ceiling and be as large as a segment.
    assert 2 * SEGMENT_BYTES_CEILING <= 2**32
    assert TOPIC_CHARS_MAX <= 255
    assert PARTITIONS_MAX == 1024
