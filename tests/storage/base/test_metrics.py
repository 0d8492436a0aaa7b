"""Syncs and groups are measured where they happen."""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.base.metrics import Histogram, MeteredDisk, StorageMeter
from penstock.storage.store import Store

ORDERS = TopicName.parse("orders")


@given(st.lists(st.floats(0, 10)))
def test_a_histogram_counts_what_lies_below_each_bound(values: list[float]) -> None:
    bounds = (0.5, 1.0, 5.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.add(value)
    seen = histogram.snapshot()
    assert seen.counts == (*(sum(value <= bound for value in values) for bound in bounds), len(values))
    assert seen.total == pytest.approx(sum(values))


def test_a_quantile_is_the_bound_below_which_so_many_lie() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    assert histogram.snapshot().quantile(0.5) is None
    for value in (0.5, 1.5, 1.6, 3.0, 99.0):
        histogram.add(value)
    assert [histogram.snapshot().quantile(share) for share in (0.1, 0.5, 0.8, 1.0)] == [1.0, 2.0, 4.0, 4.0]


def test_several_threads_lose_no_count() -> None:
    histogram = Histogram((1.0,))
    threads = [threading.Thread(target=lambda: deque(map(histogram.add, [0.5] * 2000), 0)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert histogram.snapshot().counts == (8000, 8000)


def test_a_sync_that_fails_is_counted_and_raised(tmp_path: Path) -> None:
    meter = StorageMeter()
    file = MeteredDisk(meter).open(tmp_path / "file", write=True, create=True)
    file.sync()
    os.close(file._descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.sync()
    assert (meter.syncs.snapshot().count, meter.sync_failures) == (1, 1)


def test_a_store_measures_its_syncs_and_groups(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(ORDERS)
        before = store.meter.syncs.snapshot().count
        store.append(ORDERS, Draft.of([Message(payload=b"a"), Message(payload=b"b")]))
        store.writer.run(lambda: None)  # wait: a group is measured after its outcomes are set
        shown = store.meter.totals()
    assert store.meter.syncs.snapshot().count > before
    assert (shown["storage.group.count"], shown["storage.group.messages"]) == (1, 2)
    assert store.meter.group_bytes > 2
