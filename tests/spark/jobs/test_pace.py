"""The order of a replay at a pace, on a log whose clock was set back. Without Spark: only the sort columns matter."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from tests.spark.sink.kit import stored

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.spark.jobs.transfer.replay import PACED_ORDER
from penstock.spark.sink.numbers import check_rising
from penstock.storage.store import Store
from penstock.testing import ManualClock

ORDERS = TopicName.parse("orders")


def test_messages_come_in_the_order_they_were_published_in_although_the_clock_was_set_back(tmp_path: Path) -> None:
    clock = ManualClock()
    with Store.open(tmp_path, create=True, clock=clock) as store:
        store.create_topic(ORDERS, partitions=2)
        for turn in range(20):
            store.append(ORDERS, Draft.of_payloads([b"%d" % turn]), partition=turn % 2)
            clock.advance_ms(-60_000 if turn % 3 else 1_000)
    rows = ordered(tmp_path)
    for partition in ("0", "1"):
        numbers = rows.filter(pc.equal(rows["producer_name"], partition))["request_id"].to_numpy()
        assert check_rising(numbers, 0) == 10
    assert len(set(rows["timestamp"].to_pylist())) == 2  # it stands until the clock has caught up, and tells nothing
    assert rows["value"].to_pylist() == [b"%d" % turn for turn in range(20)]


def ordered(root: Path) -> pa.Table:
    """Return the messages that a replay would publish, sorted as it sorts."""
    found, seen = [], dict.fromkeys(("0", "1"), -1)
    for record in stored(root, "orders"):
        partition = str(int(record.message.payload) % 2)
        assert record.offset == seen[partition] + 1
        seen[partition] = int(record.offset)
        found.append(
            {
                "value": record.message.payload,
                "id": record.id,
                "timestamp": record.publish_time_ms,
                "producer_name": partition,
                "request_id": int(record.offset) + 1,
            }
        )
    return pa.Table.from_pylist(found).sort_by([(name, "ascending") for name in PACED_ORDER])
