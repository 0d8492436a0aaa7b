"""The first and next offset of a log, found without reading all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import TopicNotSupported
from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.core.offsets import OffsetRange
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.base.disk import OsDisk
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.log.log_view import log_range, view_of
from penstock.storage.store import Store

ORDERS = TopicName.parse("orders")
LIMITS = Limits(payload_bytes_max=2048, block_bytes_max=4096, segment_bytes_first=4096, segment_bytes_max=4096)


def fill(store: Store, count: int) -> None:
    for _ in range(count):
        store.append(ORDERS, Draft.of([Message(payload=b"x" * 500)]))


def log(root: Path) -> Path:
    return DataReader(root).log(ORDERS, 0)


def test_the_edges_are_those_of_the_whole_view(tmp_path: Path) -> None:
    disk = OsDisk()
    with Store.open(tmp_path / "data", create=True, limits=LIMITS) as store:
        store.create_topic(ORDERS)
        assert log_range(disk, log(tmp_path / "data"))[0] == OffsetRange.of(0, 0)
        known = None
        for count in (1, 5, 20, 1, 3):
            fill(store, count)
            view = view_of(disk, log(tmp_path / "data"))
            edges, known = log_range(disk, log(tmp_path / "data"), known=known)
            assert edges == OffsetRange(view.first_offset, view.next_offset)
        store.truncate_before(ORDERS, 12)
        assert log_range(disk, log(tmp_path / "data"))[0] == OffsetRange.of(12, 30)


def test_a_log_that_was_made_anew_is_counted_anew(tmp_path: Path) -> None:
    disk = OsDisk()
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(ORDERS)
        fill(store, 9)
        _, known = log_range(disk, log(tmp_path / "data"))
        store.delete_topic(ORDERS)
        store.create_topic(ORDERS)
        fill(store, 4)
        assert log_range(disk, log(tmp_path / "data"), known=known)[0] == OffsetRange.of(0, 4)


def test_a_view_of_some_offsets_has_their_segments_alone(tmp_path: Path) -> None:
    disk = OsDisk()
    with Store.open(tmp_path / "data", create=True, limits=LIMITS) as store:
        store.create_topic(ORDERS)
        fill(store, 40)
        everything = view_of(disk, log(tmp_path / "data")).segments
        assert len(everything) > 4
        for start in range(0, 40, 3):
            for stop in range(start, 40, 7):
                part = view_of(disk, log(tmp_path / "data"), within=OffsetRange.of(start, stop)).segments
                assert set(part) >= {each for each in everything if each.base < stop and each.stop > start}
                assert len(part) <= 2 + (stop - start) // min(each.count for each in everything if each.count)


def test_a_log_is_found_without_a_look_at_the_others(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(ORDERS)
        store.create_topic(TopicName.parse("parts"), partitions=3)
    data = DataReader(tmp_path / "data")
    assert data.log(ORDERS, 0).name == "orders"
    assert data.log(TopicName.parse("parts"), 2).name == "parts-part-2"
    for name, partition in ((ORDERS, 1), (TopicName.parse("parts"), 3), (TopicName.parse("none"), 0)):
        with pytest.raises(TopicNotSupported, match=f"there is no partition {partition} of {name}"):
            data.log(name, partition)
