"""Reports of a query's batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.spark.pipeline.run.progress import ROWS_OUT, BatchReport, batch_report, lag_of
from penstock.spark.source.offsets import Offsets, StreamPosition


def offsets(**places: int) -> str:
    return json.dumps(
        Offsets({(f"/default/{topic}", 0): StreamPosition(place) for topic, place in places.items()}).as_json()
    )


TOLD: dict[str, Any] = {
    "name": "shop.show",
    "id": "an-id",
    "batchId": 7,
    "durationMs": {"triggerExecution": 250, "addBatch": 200},
    "sources": [{"numInputRows": 40, "endOffset": offsets(orders=40), "latestOffset": offsets(orders=100)}],
    "sink": {"description": "foreachBatch", "numOutputRows": -1},
    "observedMetrics": {ROWS_OUT: {"rows": 12}},
    "stateOperators": [{"numRowsTotal": 5, "numRowsDroppedByWatermark": 2}, {"numRowsTotal": 1}],
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
}


def test_a_batch_is_rows_time_and_how_far_behind_it_is() -> None:
    found = batch_report(TOLD)
    assert found == BatchReport(
        query="shop.show",
        batch=7,
        rows_in=40,
        rows_out=12,
        ms=250,
        lag=60,
        watermark="2026-01-01T00:00:00.000Z",
        late=2,
        state_rows=6,
    )
    assert found.rows_in_second == 160
    assert found.as_dict()["lag"] == 60


def test_what_is_not_told_is_not_known() -> None:
    found = batch_report({"id": "an-id", "batchId": 0, "sources": [{"numInputRows": -1}]})
    assert (found.query, found.rows_in, found.rows_out, found.lag, found.late) == ("an-id", 0, None, None, None)
    assert found.rows_in_second == 0


def test_a_sink_that_counts_is_believed_where_nobody_else_did() -> None:
    assert batch_report({**TOLD, "observedMetrics": {}, "sink": {"numOutputRows": 3}}).rows_out == 3


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        (offsets(a=5), offsets(a=5), 0),
        (offsets(a=5, b=1), offsets(a=7, b=4), 5),
        (offsets(a=5), offsets(a=7, new=3), 5),
        (offsets(a=9), offsets(a=7), 0),
        (json.loads(offsets(a=5)), json.loads(offsets(a=6)), 1),
        (None, offsets(a=5), None),
        (offsets(a=5), None, None),
        ("5", "7", None),
        ("nonsense", "nonsense", None),
    ],
)
def test_the_lag_is_what_the_topics_held_and_the_batch_did_not(end: Any, latest: Any, lag: int | None) -> None:
    assert lag_of({"endOffset": end, "latestOffset": latest}) == lag
