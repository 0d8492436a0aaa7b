"""Statistics: the groups add up to the counts of a plain reader."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from pathlib import Path
from statistics import median_low
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record.samples import stamped
from tests.spark.jobs.data_kit import flip, make_data, segments
from tests.spark.jobs.kit import messages
from tests.spark.log_kit import everything

from penstock.core.errors import InvalidRequest
from penstock.record.block import scan
from penstock.record.message import Message, Record
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit.runners import LocalRunner
from penstock.spark.jobs.stats import groups
from penstock.spark.jobs.stats.groups import BY, Group, GroupTotals, MessageSums, add_totals, of_block
from penstock.spark.jobs.stats.stats import Stats, parse_by, stats_with
from penstock.storage.inspect.data_reader import DataReader

HOUR = 3_600_000
some_by = st.lists(st.sampled_from(BY), min_size=1, max_size=3, unique=True).map(tuple)


def value(record: Record, name: str) -> Any:
    message = record.message
    producer = message.producer_name or (f"#{message.producer_id}" if message.producer_id else None)
    schema = message.schema and f"{message.schema.id}/{message.schema.version}"
    hour = record.publish_time_ms // HOUR * HOUR
    day = record.publish_time_ms // (24 * HOUR) * 24 * HOUR
    fields = {"type": message.type, "producer": producer, "schema": schema, "hour": hour, "day": day}
    return (fields | {"topic": "/default/t", "partition": 3})[name]


def plain(records: list[Record], by: tuple[str, ...]) -> dict[Group, list[Record]]:
    found: dict[Group, list[Record]] = defaultdict(list)
    for record in records:
        found[tuple(value(record, name) for name in by)].append(record)
    return dict(found)


@given(st.lists(messages, min_size=1, max_size=12), some_by)
def test_a_block_is_grouped_as_a_plain_reader_would(given_: list[Message], by: tuple[str, ...]) -> None:
    block = scan(stamped(given_))[0]
    found = of_block(block, "/default/t", 3, by)
    wanted = plain(list(block), by)
    assert set(found) == set(wanted)
    for group, sums in found.items():
        sizes = [len(record.message.payload) for record in wanted[group]]
        times = [record.publish_time_ms for record in wanted[group]]
        assert (sums.count, sums.sizes.smallest, sums.sizes.largest) == (len(sizes), min(sizes), max(sizes))
        assert (sums.first_ms, sums.last_ms) == (min(times), max(times))
        assert abs((sums.sizes.quantile(0.5) or 0) - median_low(sizes)) <= median_low(sizes) / 64 + 1
    assert sum(sums.record_bytes for sums in found.values()) == len(block.raw)


def test_many_types_are_told_apart() -> None:
    block = scan(stamped([Message(payload=b"x", type=f"t{number % 70}") for number in range(140)]))[0]
    found = of_block(block, "/default/t", 0, ("type",))
    assert {group[0]: sums.count for group, sums in found.items()} == {f"t{number}": 2 for number in range(70)}


@given(st.lists(st.lists(messages, min_size=1, max_size=4), min_size=1, max_size=4), st.randoms())
def test_sums_are_the_same_in_any_order(blocks: list[list[Message]], chance: Any) -> None:
    parts = [GroupTotals(of_block(scan(stamped(block))[0], "/default/t", 0, ("type", "schema"))) for block in blocks]
    shuffled = list(parts)
    chance.shuffle(shuffled)
    assert add_totals(parts) == add_totals(shuffled) == reduce(lambda left, right: add_totals([left, right]), parts)


def test_too_many_groups_are_refused() -> None:
    block = scan(stamped([Message(payload=b"", type=str(number)) for number in range(5)]))[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "GROUPS_MAX", 4)
        with pytest.raises(InvalidRequest, match="more than 4 groups"):
            add_totals([GroupTotals(of_block(block, "/default/t", 0, ("type",)))])


# whole logs


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("stats") / "data")


def counted(root: Path, *by: str) -> Stats:
    return stats_with(LocalRunner(), Location.parse(path=str(root)), by=by)


def test_topics_are_counted(root: Path) -> None:
    found = counted(root, "topic")
    assert [(row["topic"], row["messages"]) for row in found.as_dicts()] == [
        ("/default/orders", 200),
        ("/shop/parts.sold", 200),
    ]
    first = found.as_dicts()[0]
    assert first["first_time"] == "2023-11-14T22:13:20.000Z"
    assert first["messages_per_second"] == pytest.approx(200 / (199 * 1728), abs=0.001)
    assert (found.count, found.lost) == (400, 0)


def test_hours_are_times_in_order_and_add_up(root: Path) -> None:
    rows = counted(root, "hour", "topic").as_dicts()
    assert rows[0]["hour"] == "2023-11-14T22:00:00.000Z"
    assert [row["hour"] for row in rows] == sorted(row["hour"] for row in rows)
    assert sum(row["messages"] for row in rows) == 400


def test_every_message_is_in_one_group_of_each_kind(root: Path) -> None:
    held = sum(map(len, everything(DataReader(root)).values()))
    for name in BY:
        assert counted(root, name).count == held


def test_damaged_messages_are_counted_apart(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data", messages=20)
    flip(segments(root)[0], 20)
    found = counted(root, "topic")
    assert (found.count, found.lost) == (39, 1)


def test_one_message_has_no_rate() -> None:
    block = scan(stamped([Message(payload=b"x")]))[0]
    ((group, sums),) = of_block(block, "/default/t", 0, ("topic",)).items()
    assert isinstance(sums, MessageSums)
    (row,) = Stats(("topic",), ((group, sums),), 0, 1.0).as_dicts()
    assert row["messages_per_second"] is None


def test_what_nothing_can_be_grouped_by_is_refused_with_what_can() -> None:
    assert parse_by("Topic, hour,topic") == ("topic", "hour")
    for text in ("colour", "", ","):
        with pytest.raises(InvalidRequest, match="choose from topic, partition, type, producer, schema, hour, day"):
            parse_by(text)
