"""Reading slices: equal to a plain reader for any range, split and choice of columns; losses told, exactly."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.source_kit import Row, append, flip, location, make_logs, plain, segments, some_message, unchanged

from penstock.core.names import TopicName
from penstock.spark.scan.columns import NAMES, schema_of
from penstock.spark.scan.slice_reader import DataLoss, LostRange, batches
from penstock.spark.scan.slices import Slice, plan_slices
from penstock.storage.store import Store

ORDERS = ("/default/orders", 0)


@pytest.fixture(scope="module", params=[0, 1])
def logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_logs(tmp_path_factory.mktemp("reading") / "data", seed=request.param)


@pytest.fixture
def copy(logs: Path, tmp_path: Path) -> Path:
    """The same log, to be damaged."""
    return Path(shutil.copytree(logs, tmp_path / "copy"))


def rows_of(part: Slice, columns: Any = NAMES, **options: Any) -> list[Row]:
    found = []
    for batch in batches(part, columns, **options):
        assert batch.schema == schema_of(columns)
        assert batch.num_rows
        found += batch.to_pylist()
    return found


def lenient(root: Path, stop: int, **options: Any) -> tuple[list[Row], list[LostRange]]:
    losses: list[LostRange] = []
    part = Slice(location(root), *ORDERS, 0, stop, 0)
    rows = rows_of(part, fail_on_data_loss=False, on_loss=losses.append, **options)
    return rows, losses


@settings(max_examples=60, deadline=None)
@given(data=st.data(), verify=st.booleans(), rows_max=st.sampled_from((1, 3, 10_000)))
def test_slices_of_any_range_split_and_columns_equal_a_plain_reader(
    logs: Path, data: st.DataObject, verify: bool, rows_max: int
) -> None:
    columns = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    for key, rows in unchanged(logs).items():
        start = data.draw(st.integers(0, len(rows)))
        stop = data.draw(st.integers(start, len(rows)))
        parts = plan_slices(location(logs), {key: (start, stop)}, slices_min=data.draw(st.integers(0, 5)))
        found = [row for part in parts for row in rows_of(part, columns, verify=verify, rows_max=rows_max)]
        assert found == [{name: row[name] for name in columns} for row in rows[start:stop]]


def test_an_empty_topic_has_no_rows(logs: Path) -> None:
    assert rows_of(Slice(location(logs), "/default/empty", 1, 0, 0, 0)) == []


def test_a_log_that_is_being_written_is_read_up_to_what_is_acknowledged(tmp_path: Path) -> None:
    root, chance = tmp_path / "data", random.Random(1)
    with Store.open(root, create=True) as store:
        store.create_topic(TopicName.parse("orders"))
        for number in range(40):
            append(store, "orders", [some_message(chance, number)])
            rows = rows_of(Slice(location(root), *ORDERS, 0, number + 1, 0))
            assert [row["offset"] for row in rows] == list(range(number + 1))


def test_an_index_that_is_gone_or_wrong_costs_nothing_but_time(copy: Path) -> None:
    rows = plain(copy)[ORDERS]
    one, two, *_ = segments(copy, "orders")
    one.with_suffix(".idx").unlink()
    index = two.with_suffix(".idx")
    index.write_bytes(index.read_bytes()[:-8])
    flip(segments(copy, "orders")[3].with_suffix(".idx"), 128 + 9)
    assert rows_of(Slice(location(copy), *ORDERS, 0, len(rows), 0)) == rows


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_records_fail_the_read_or_are_counted_and_the_others_are_read(
    logs: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = Path(shutil.copytree(logs, tmp_path_factory.mktemp("damage") / "copy"))
    whole = unchanged(logs)[ORDERS]
    for path in data.draw(st.lists(st.sampled_from(segments(root, "orders")[:-1]), min_size=1, max_size=3)):
        flip(path, data.draw(st.integers(0, path.stat().st_size - 1)))
    left = plain(root)[ORDERS]
    rows, losses = lenient(root, len(whole), rows_max=data.draw(st.sampled_from((1, 7, 10_000))))
    assert rows == left
    lost = [offset for loss in losses for offset in range(loss.start, loss.stop)]
    kept = {row["offset"] for row in left}
    assert lost == [row["offset"] for row in whole if row["offset"] not in kept]
    if lost:
        with pytest.raises(DataLoss, match=r"/default/orders partition 0: .* lost: .* set failOnDataLoss to false"):
            rows_of(Slice(location(root), *ORDERS, 0, len(whole), 0))


def test_a_flipped_payload_loses_one_record_and_says_which(copy: Path) -> None:
    rows = plain(copy)[ORDERS]
    path = segments(copy, "orders")[1]
    flip(path, path.stat().st_size // 2)
    found, losses = lenient(copy, len(rows))
    (loss,) = losses
    assert loss.stop == loss.start + 1
    assert found == rows[: loss.start] + rows[loss.stop :]
    assert f"offset {loss.start} is lost: the checksum does not match" in str(loss)


def test_without_verification_a_flipped_payload_is_not_noticed(copy: Path) -> None:
    rows = plain(copy)[ORDERS]
    path = segments(copy, "orders")[1]
    target = next(row for row in rows if len(row["value"]) == 2000 and row["value"] in path.read_bytes())
    place = path.read_bytes().index(target["value"])
    flip(path, place + 5)
    found, losses = lenient(copy, len(rows), verify=False)
    assert losses == []
    assert len(found) == len(rows)


def test_a_missing_segment_is_a_loss_with_its_numbers(copy: Path) -> None:
    rows = plain(copy)[ORDERS]
    paths = segments(copy, "orders")
    first, following = int(paths[2].stem), int(paths[3].stem)
    paths[2].unlink()
    found, losses = lenient(copy, len(rows))
    assert losses == [LostRange(*ORDERS, first, following, "the segment is missing")]
    assert found == rows[:first] + rows[following:]
    with pytest.raises(DataLoss, match=rf"{following - first} offsets, \[{first}, {following}\)"):
        rows_of(Slice(location(copy), *ORDERS, 0, len(rows), 0))


def test_offsets_that_retention_took_and_that_never_were_are_losses(tmp_path: Path) -> None:
    root = make_logs(tmp_path / "data", seed=2)
    rows = plain(root)[ORDERS]
    with Store.open(root) as store:
        store.truncate_before(TopicName.parse("orders"), 50)
    found, losses = lenient(root, len(rows) + 5)
    assert found == rows[50:]
    assert [(loss.start, loss.stop) for loss in losses] == [(0, 50), (len(rows), len(rows) + 5)]
    assert losses[0].reason == "the log begins with offset 50 now"
    assert losses[1].reason == f"the log ends with offset {len(rows) - 1}"
    part = Slice(location(root), *ORDERS, 3, 10, 0)
    with pytest.raises(DataLoss, match="7 offsets"):
        rows_of(part)


def test_a_segment_that_goes_while_it_is_read_is_a_loss_and_no_crash(copy: Path) -> None:
    rows = plain(copy)[ORDERS]
    paths = segments(copy, "orders")
    part = Slice(location(copy), *ORDERS, 0, len(rows), 0)
    losses: list[LostRange] = []
    reading = batches(part, ["offset"], fail_on_data_loss=False, on_loss=losses.append, rows_max=5)
    found = next(reading).column(0).to_pylist()
    for path in paths[1:4]:
        path.unlink()
        path.with_suffix(".idx").unlink()
    found += [offset for batch in reading for offset in batch.column(0).to_pylist()]
    gone = range(int(paths[1].stem), int(paths[4].stem))
    assert found == [row["offset"] for row in rows if row["offset"] not in gone]
    assert [offset for loss in losses for offset in range(loss.start, loss.stop)] == list(gone)


def test_a_name_without_a_file_is_a_loss_and_no_endless_loop(copy: Path) -> None:
    rows = plain(copy)[ORDERS]
    paths = segments(copy, "orders")
    paths[1].unlink()
    paths[1].symlink_to("nowhere")
    found, losses = lenient(copy, len(rows))
    assert [offset for loss in losses for offset in range(loss.start, loss.stop)] == [
        *range(int(paths[1].stem), int(paths[2].stem))
    ]
    assert len(found) + sum(loss.stop - loss.start for loss in losses) == len(rows)


def test_losses_are_counted_in_the_log_if_nobody_asks_for_them(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = plain(copy)[ORDERS]
    segments(copy, "orders")[2].unlink()
    rows_of(Slice(location(copy), *ORDERS, 0, len(rows), 0), fail_on_data_loss=False)
    assert "the segment is missing (left out; lost by this reader so far: " in caplog.text
