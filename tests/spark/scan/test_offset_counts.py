"""Counts out of offsets: the same as by reading, whatever has become of the log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.spark.jobs.data_kit import append, flip, make_data, numbered, segments
from tests.spark.log_kit import ORDERS, SMALL
from tests.spark.source_kit import row_of

import penstock.spark
from penstock.core.errors import InvalidRequest, TopicNotSupported
from penstock.core.positions import Earliest
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit.runners import LocalRunner
from penstock.spark.jobs.stats.stats import stats_with
from penstock.spark.scan.offset_counts import HOUR_MS, CountedRange, counted_ranges
from penstock.spark.scan.slice_reader import DataLoss, LostRange
from penstock.spark.scan.slices import Slice
from penstock.spark.source.batch import BatchReader
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.read_schema import read_task_for
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.log import log_view
from penstock.storage.store import Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Orders over four days, about two an hour, and a topic of two partitions."""
    data = make_data(tmp_path / "data", messages=200)
    append(data, [numbered(number) for number in range(20)])  # days later, within an hour
    return data


def whole(root: Path, start: int = 0, stop: int = 220) -> Slice:
    return Slice(Location.parse(path=str(root)), str(ORDERS), 0, start, stop, 0)


def hours(root: Path) -> Counter[int]:
    """Count by reading."""
    log = DataReader(root).topic(ORDERS).partition(0)
    times = [record.publish_time_ms for record, _ in log.follow(Earliest()) if record is not None]
    return Counter(time_ms - time_ms % HOUR_MS for time_ms in times)


def counted(found: list[CountedRange]) -> Counter[int]:
    sums: Counter[int] = Counter()
    for run in found:
        assert run.hour_ms is not None
        sums[run.hour_ms] += run.count
    return sums


def test_a_partition_is_one_run_and_the_hours_are_those_of_its_messages(root: Path) -> None:
    assert list(counted_ranges(whole(root))) == [CountedRange(0, 220)]
    found = list(counted_ranges(whole(root), hourly=True))
    assert counted(found) == hours(root)
    assert [run.start for run in found] == [0, *(run.stop for run in found[:-1])]
    assert found[-1].stop == 220
    assert list(counted_ranges(whole(root, 30, 40))) == [CountedRange(30, 40)]


def test_nothing_is_read_for_counts_and_little_for_hours(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    read = log_view.read

    def counting(*given: Any, **more: Any) -> Any:
        looked.append(more["bytes_max"])
        return read(*given, **more)

    monkeypatch.setattr(log_view, "read", counting)
    list(counted_ranges(whole(root)))
    assert looked == []
    found = list(counted_ranges(whole(root), hourly=True))
    assert len(looked) <= len(found) * 3
    assert max(looked) <= 16 << 10


def test_a_log_that_has_lost_its_beginning_counts_from_there(root: Path) -> None:
    with Store.open(root, limits=SMALL) as store:
        store.truncate_before(ORDERS, 77)
    assert penstock.spark.counts(str(root), ["orders"]) == [{"topic": "/default/orders", "messages": 143}]
    assert counted(list(counted_ranges(whole(root, 77), hourly=True))) == hours(root)


def test_a_damaged_message_counts_and_does_not_lead_the_search_astray(root: Path) -> None:
    before = counted(list(counted_ranges(whole(root), hourly=True)))
    flip(segments(root)[2], 200)
    found = counted(list(counted_ranges(whole(root), hourly=True)))
    assert found.total() == before.total() == 220
    assert sum((found - hours(root)).values()) <= 2  # the damaged one, and where its hour is taken from the next one


@pytest.mark.parametrize("place", range(5))
def test_damage_that_reaches_over_hours_leaves_every_offset_in_one_run(root: Path, place: int) -> None:
    """A segment has no readable record: its messages are counted with the next readable ones."""
    chosen = segments(root)[place]
    for position in range(0, chosen.stat().st_size, 40):
        flip(chosen, position)
    found = list(counted_ranges(whole(root), hourly=True))
    assert [run.start for run in found] == [0, *(run.stop for run in found[:-1])]
    assert found[-1].stop == 220
    by_reading = hours(root)
    known = counted([run for run in found if run.hour_ms is not None])
    assert all(known[hour] >= count for hour, count in by_reading.items())


def test_a_missing_segment_is_lost_as_it_is_to_a_reader(root: Path) -> None:
    gone = segments(root)[1]
    start, stop = (int(each.stem) for each in segments(root)[1:3])
    gone.unlink()
    with pytest.raises(DataLoss, match="the segment is missing"):
        list(counted_ranges(whole(root)))
    told: list[LostRange] = []
    assert list(counted_ranges(whole(root), on_loss=told.append)) == [CountedRange(0, start), CountedRange(stop, 220)]
    assert [(loss.start, loss.stop) for loss in told] == [(start, stop)]
    counts = penstock.spark.counts(str(root), ["orders"], by="partition")
    assert counts == [{"partition": 0, "messages": 220 - (stop - start)}]


@pytest.mark.parametrize(
    "by", ["topic", "topic,partition", "hour", "day,topic", "partition,hour", "type", "topic,producer"]
)
def test_counts_are_those_of_stats(root: Path, by: str) -> None:
    told = stats_with(LocalRunner(), Location.parse(path=str(root)), by=by.split(",")).as_dicts()
    found = penstock.spark.counts(str(root), by=by)
    assert found == [{name: row[name] for name in (*by.split(","), "messages")} for row in told]


def test_what_is_not_there_is_said(root: Path) -> None:
    with pytest.raises(InvalidRequest, match="--by 'colour': choose from"):
        penstock.spark.counts(str(root), by="colour")
    with pytest.raises(TopicNotSupported):
        penstock.spark.counts(str(root), ["nothing"])
    with pytest.raises(InvalidRequest, match="neither path nor url"):
        penstock.spark.counts()


def rows(root: Path, **more: str) -> list[dict[str, Any]]:
    """Read the rows as Spark does."""
    options = ReadOptions.of({"path": str(root), "subscribePattern": "/.*/.*", **more}, streaming=False)
    reader = BatchReader(options, read_task_for(options))
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def test_the_source_gives_a_row_for_each_partition_and_for_each_hour(root: Path) -> None:
    keys = ("topic", "partition", "first_offset", "next_offset", "count")
    found = rows(root, rows="counts")
    assert [tuple(row[key] for key in keys) for row in found] == [
        ("/default/orders", 0, 0, 220, 220),
        ("/shop/parts.sold", 0, 0, 100, 100),
        ("/shop/parts.sold", 1, 0, 100, 100),
    ]
    hourly = rows(root, rows="hours", startingOffsets='{"/default/orders": {"0": 50}}')
    assert sum(row["count"] for row in hourly) == 370
    orders = [row for row in hourly if row["topic"] == "/default/orders"]
    log = DataReader(root).topic(ORDERS).partition(0)
    first = next(row_of(record, "", 0) for record, _ in log.follow(Earliest()) if record and record.offset == 50)
    assert orders[0]["hour"] == first["timestamp"].replace(minute=0, second=0, microsecond=0)
