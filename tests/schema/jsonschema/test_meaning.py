"""The meaning of compatibility: a reader without problems takes every value that the writer's schema allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft4Validator, Draft7Validator, Draft202012Validator
from tests.schema.jsonschema.kit import (
    Schema,
    changed,
    schema,
    straightforward,
    tangled,
    understood,
    value,
    widened,
)

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema import JsonSchema
from penstock.schema.jsonschema.model.string_formats import CHECKS

randoms = st.integers(0, 2**64 - 1).map(Random)

VALUES = 60


def two(random: Random) -> tuple[Schema, Schema]:
    """Draw two schemas; often one is a changed copy of the other, so that they are related."""
    writer = schema(random, random.choice([1, 2, 3]))
    if isinstance(writer, bool) or random.random() < 0.2:
        return schema(random, 2), writer
    reader = changed(random, writer)
    return (reader, writer) if random.random() < 0.5 else (writer, reader)


def understood_or_none(made: Schema) -> JsonSchema | None:
    """Parse a schema; None for the few that refer to themselves and to nothing else."""
    try:
        return understood(made)
    except InvalidSchema:
        return None


def accepting(made: Schema, validator: Any = Draft202012Validator) -> Callable[[Any], bool]:
    """Return the values that conform, with formats enforced in every draft."""
    found: Callable[[Any], bool] = validator(made, validate_formats=True, formats=CHECKS).is_valid
    return found


def assert_takes_all(reader: Schema, writer: Schema, random: Random) -> None:
    accepts_reader, accepts_writer = accepting(reader), accepting(writer)
    for _ in range(VALUES):
        written = value(random)
        if accepts_writer(written):
            assert accepts_reader(written), json.dumps({"reader": reader, "writer": writer, "value": written})


@given(randoms)
@settings(max_examples=300)
def test_what_a_compatible_writer_wrote_is_taken(random: Random) -> None:
    reader, writer = two(random)
    reading, writing = understood_or_none(reader), understood_or_none(writer)
    if reading and writing and not reading.compatibility_problems(writing):
        assert_takes_all(reader, writer, random)


@given(randoms)
@settings(max_examples=150)
def test_nothing_is_shown_in_circles(random: Random) -> None:
    reader, writer, *others = [tangled(random) for _ in range(4)]
    writing = understood_or_none(writer)
    for each in (reader, *others):
        reading = understood_or_none(each)
        if reading and writing and not reading.compatibility_problems(writing):
            assert_takes_all(each, writer, random)


@given(randoms)
@settings(max_examples=150)
def test_a_schema_reads_what_it_wrote_itself(random: Random) -> None:
    made = schema(random, 3)
    one = understood_or_none(made)
    if one is not None:
        other = understood(made if isinstance(made, bool) else {"title": "the same", **made})
        assert one.compatibility_problems(one) == []
        assert one.compatibility_problems(other) == []


@given(randoms)
@settings(max_examples=150)
def test_a_wider_schema_reads_what_a_narrower_one_wrote(random: Random) -> None:
    made = straightforward(schema(random, 3))
    narrow = understood_or_none(made)
    if narrow is not None and isinstance(made, dict):
        assert understood(widened(random, made)).compatibility_problems(narrow) == []


def test_verdicts_are_neither_all_yes_nor_all_no() -> None:
    """Most problems found in changed schemas can be shown by a value; they are not made up."""
    random = Random(7)
    compatible = shown = unshown = 0
    for _ in range(150):
        reader, writer = two(random)
        reading, writing = understood_or_none(reader), understood_or_none(writer)
        if reading is None or writing is None:
            continue
        if not reading.compatibility_problems(writing):
            compatible += 1
        elif any(_tells_apart(reader, writer, value(random)) for _ in range(400)):
            shown += 1
        else:
            unshown += 1
    assert compatible > 50
    assert shown > 20
    assert unshown < shown / 3


def _tells_apart(reader: Schema, writer: Schema, written: Any) -> bool:
    return accepting(writer)(written) and not accepting(reader)(written)


OLDER = [
    ("http://json-schema.org/draft-07/schema#", Draft7Validator),
    ("http://json-schema.org/draft-04/schema#", Draft4Validator),
]


@pytest.mark.parametrize(("uri", "validator"), OLDER)
@given(randoms)
@settings(max_examples=60)
def test_the_same_holds_between_drafts(uri: str, validator: Any, random: Random) -> None:
    made = straightforward(schema(random, 2))
    newer = understood_or_none(made)
    if not isinstance(made, dict) or newer is None:
        return
    try:
        older = understood({**made, "$schema": uri})
    except InvalidSchema:  # its draft has other rules
        return
    accepts_newer, accepts_older = accepting(made), accepting(made, validator)
    upwards, downwards = not newer.compatibility_problems(older), not older.compatibility_problems(newer)
    for _ in range(VALUES):
        written = value(random)
        assert not upwards or not accepts_older(written) or accepts_newer(written)
        assert not downwards or not accepts_newer(written) or accepts_older(written)
