"""The summary of bad messages: however many reasons there are, few are kept, and all rows are counted."""

from __future__ import annotations

import json
from dataclasses import asdict

import pyarrow as pa

from penstock.spark.lake.archive.bad_rows import REASONS_MAX, BadRows


def batch(offsets: list[int], reasons: list[str], *, partition: int = 0) -> pa.RecordBatch:
    count = len(offsets)
    columns = {"_topic": ["/default/a"] * count, "_partition": [partition] * count, "_offset": offsets}
    return pa.RecordBatch.from_pydict(columns | {"_reason": reasons})


def test_places_and_reasons_add_up() -> None:
    one, other = BadRows(), BadRows()
    one.add_rows(batch([7, 3], ["x", "y"]))
    other.add_rows(batch([9, 10, 11], ["y", "y", "x"], partition=1))
    other.add_rows(batch([1], ["z"]))
    one.add(BadRows.of_json(json.loads(json.dumps(asdict(other)))))
    assert one.places == {"/default/a[0]": [1, 7], "/default/a[1]": [9, 11]}
    assert one.top() == [("y", 3), ("x", 2), ("z", 1)]
    assert BadRows.of_json(None) == BadRows()


def test_reasons_without_number_are_bounded_and_counted() -> None:
    found = BadRows()
    found.add_rows(batch(list(range(5000)), [f"at {number}" for number in range(5000)]))
    found.add_rows(batch([5000], ["at 0"]))
    assert len(found.reasons) == REASONS_MAX
    assert sum(found.reasons.values()) + found.others == 5001
    assert found.top()[0] == ("at 0", 2)
    assert len(found.as_dict()["reasons"]) == 3
