"""Slices: ranges of offsets cut by bytes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.source_kit import LIMITS, location, make_logs, plain, segments, unchanged

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.spark.scan.slices import (
    SLICE_BYTES_MAX,
    SLICE_BYTES_MIN,
    ByteRuler,
    Slice,
    best_slice_bytes,
    open_data,
    plan_slices,
    view_within,
)
from penstock.storage.store import Store

CARTS = "/shop/carts"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_logs(tmp_path_factory.mktemp("slices") / "data")


@settings(max_examples=100)
@given(data=st.data(), slice_bytes=st.integers(1, 100_000), slices_min=st.integers(0, 60))
def test_slices_cover_every_range_once_and_in_order(
    logs: Path, data: st.DataObject, slice_bytes: int, slices_min: int
) -> None:
    ranges = {}
    for key, rows in unchanged(logs).items():
        start = data.draw(st.integers(0, len(rows)))
        ranges[key] = (start, data.draw(st.integers(start, len(rows))))
    found = plan_slices(location(logs), ranges, slice_bytes=slice_bytes, slices_min=slices_min)
    for key, (start, stop) in ranges.items():
        cuts = [(part.start, part.stop) for part in found if (part.topic, part.partition) == key]
        assert [offset for cut in cuts for offset in range(*cut)] == list(range(start, stop))
        assert all(begin < end for begin, end in cuts)


def test_one_large_segment_feeds_many_tasks_of_about_the_same_size(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(TopicName.parse("big"))
        for number in range(20):
            some = [Message(payload=b"x" * (100 + 37 * (number + row) % 300)) for row in range(500)]
            store.append(TopicName.parse("big"), Draft.of(some))
    assert len(segments(tmp_path / "data", "big")) < 10
    found = plan_slices(location(tmp_path / "data"), {("/default/big", 0): (0, 10_000)}, slices_min=40)
    assert len(found) == 40
    data = open_data(location(tmp_path / "data"))
    ruler = ByteRuler(data.disk, view_within(data, "/default/big", 0, 0, 10_000))
    sizes = [ruler.position(part.stop) - ruler.position(part.start) for part in found]
    assert max(sizes) < 1.3 * min(sizes)


def test_small_segments_share_a_task(logs: Path) -> None:
    assert len(segments(logs, "orders")) > 5
    rows = len(unchanged(logs)["/default/orders", 0])
    assert len(plan_slices(location(logs), {("/default/orders", 0): (0, rows)})) == 1


@given(total=st.integers(0, 1 << 45))
def test_slices_are_as_large_as_pays_and_as_many_as_cores_share_evenly(total: int) -> None:
    size = best_slice_bytes(total)
    assert SLICE_BYTES_MIN <= size <= SLICE_BYTES_MAX
    assert size == SLICE_BYTES_MIN or -(-total // size) % 8 == 0


def test_there_are_no_more_slices_than_offsets(logs: Path) -> None:
    found = plan_slices(location(logs), {(CARTS, 1): (3, 6)}, slices_min=100)
    assert [(part.start, part.stop) for part in found] == [(3, 4), (4, 5), (5, 6)]


def test_empty_ranges_give_no_slices(logs: Path) -> None:
    assert plan_slices(location(logs), {("/default/empty", 0): (0, 0), (CARTS, 0): (5, 5)}) == []


def test_cuts_are_found_without_an_index_too(tmp_path: Path) -> None:
    root = make_logs(tmp_path / "data", seed=3)
    rows = len(plain(root)["/default/orders", 0])
    for path in segments(root, "orders"):
        path.with_suffix(".idx").unlink()
    found = plan_slices(location(root), {("/default/orders", 0): (0, rows)}, slices_min=7)
    assert [offset for part in found for offset in range(part.start, part.stop)] == list(range(rows))


def test_a_slice_travels_to_the_workers(logs: Path) -> None:
    part = Slice(location(logs), CARTS, 1, 0, 10, 1000)
    assert pickle.loads(pickle.dumps(part)) == part


def test_only_the_segments_of_a_range_are_looked_at(logs: Path) -> None:
    data = open_data(location(logs))
    rows = len(unchanged(logs)["/default/orders", 0])
    everything = view_within(data, "/default/orders", 0, 0, rows)
    middle = everything.segments[len(everything.segments) // 2]
    assert view_within(data, "/default/orders", 0, middle.base, middle.stop).segments == (middle,)
    assert LIMITS.segment_bytes_max >= middle.size
