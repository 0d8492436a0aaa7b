"""Order by content: the same rows come out alike, in whatever order and pieces they went in."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.sink.kit import cut

from penstock.core.errors import InvalidRequest
from penstock.spark.sink import ordering

ROW = st.tuples(
    st.binary(max_size=8),
    st.none() | st.binary(max_size=4),
    st.sampled_from(["", "a", "b"]),
    # None and {} are the same message.
    st.dictionaries(st.sampled_from("xyz"), st.text(max_size=3), max_size=2),
)
SCHEMA = pa.schema(
    {"value": pa.binary(), "key": pa.binary(), "type": pa.string(), "attributes": pa.map_(pa.string(), pa.string())}
)


def batch(given: list[tuple[object, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA)


def ordered(given: list[tuple[object, ...]], size: int) -> list[dict[str, object]]:
    return [row for part in ordering.by_content(cut(batch(given), size)) for row in part.to_pylist()]


@given(st.lists(ROW, max_size=40), st.randoms(use_true_random=False), st.integers(1, 50))
def test_any_order_of_the_same_rows_gives_the_same(
    given_rows: list[tuple[object, ...]], chance: random.Random, size: int
) -> None:
    shuffled = list(given_rows)
    chance.shuffle(shuffled)
    assert ordered(given_rows, 7) == ordered(shuffled, size)
    assert sorted(map(repr, ordered(given_rows, 7))) == sorted(map(repr, batch(given_rows).to_pylist()))


def test_more_than_can_be_held_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_BYTES_MAX", 100)
    with pytest.raises(InvalidRequest, match="order=content holds the rows"):
        list(ordering.by_content([batch([(b"x" * 200, None, "", None)])]))
