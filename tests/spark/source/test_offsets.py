"""Offsets in a checkpoint: a format, read back exactly, and always the same text for the same places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import StorageFailed, VersionNotSupported
from penstock.spark.source.offsets import Offsets, StreamPosition

GOLDEN = Path(__file__).parent / "golden"
NUMBERS = st.integers(0, 2**63 - 1)
MARKS = st.builds(
    StreamPosition, NUMBERS, st.none() | st.binary(min_size=16, max_size=16).map(bytes.hex), NUMBERS, NUMBERS
)
KEYS = st.tuples(st.sampled_from(("/default/a", "/default/b.c", "/shop/a")), st.integers(0, 12))


@given(st.dictionaries(KEYS, MARKS))
def test_offsets_are_read_back_as_they_were_written(marks: dict[tuple[str, int], StreamPosition]) -> None:
    text = json.dumps(Offsets(marks).as_json())
    assert Offsets.of_json(json.loads(text)) == Offsets(marks)


@given(st.dictionaries(KEYS, MARKS), st.randoms())
def test_the_same_places_are_the_same_text(marks: dict[tuple[str, int], StreamPosition], chance: Any) -> None:
    shuffled = list(marks.items())
    chance.shuffle(shuffled)
    assert json.dumps(Offsets(marks).as_json()) == json.dumps(Offsets(dict(shuffled)).as_json())
    assert json.dumps(Offsets.of_json(Offsets(marks).as_json()).as_json()) == json.dumps(Offsets(marks).as_json())


def test_partitions_stand_in_the_order_of_their_numbers() -> None:
    said = Offsets({("/default/a", 10): StreamPosition(1), ("/default/a", 9): StreamPosition(2)}).as_json()
    assert list(said["topics"]["/default/a"]) == ["9", "10"]


def test_the_text_is_the_documented_one() -> None:
    marks = {
        ("/default/orders", 0): StreamPosition(5, "1f0c2a4e7b1d6c009a3f0123456789ab"),
        ("/shop/carts", 1): StreamPosition(7, None, since=3, life=1),
    }
    assert json.dumps(Offsets(marks).as_json()) == (
        '{"version": 1, "topics": {"/default/orders": {"0": {"offset": 5, "after":'
        ' "1f0c2a4e7b1d6c009a3f0123456789ab"}}, "/shop/carts": {"1": {"offset": 7, "since": 3, "life": 1}}}}'
    )


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {},
        {"topics": {}},
        {"version": 0, "topics": {}},
        {"version": "1", "topics": {}},
        {"version": 1},
        {"version": 1, "topics": []},
        {"version": 1, "topics": {"no topic": {"0": {"offset": 1}}}},
        {"version": 1, "topics": {"a": {"zero": {"offset": 1}}}},
        {"version": 1, "topics": {"a": {"0": {}}}},
        {"version": 1, "topics": {"a": {"0": {"offset": -1}}}},
        {"version": 1, "topics": {"a": {"0": {"offset": 1.5}}}},
        {"version": 1, "topics": {"a": {"0": {"offset": 1, "after": "xyz"}}}},
        {"version": 1, "topics": {"a": {"0": {"offset": 1, "other": 2}}}},
        {"version": 1, "topics": {"a": {"0": 5}}},
        {"orders": {"0": 5}},
    ],
)
def test_what_is_no_checkpoint_of_ours_is_refused(said: Any) -> None:
    with pytest.raises(StorageFailed, match="the checkpoint's offsets cannot be read"):
        Offsets.of_json(said)


def test_a_newer_format_is_refused_as_such() -> None:
    with pytest.raises(VersionNotSupported, match="format 2, and this Penstock reads format 1"):
        Offsets.of_json({"version": 2})
