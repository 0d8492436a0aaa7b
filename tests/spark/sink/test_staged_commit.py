"""Into a data directory that no broker owns: every row once, whatever breaks in between."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.sink.kit import options, row_values, rows, stored, values

from penstock.core.errors import InvalidRequest, NotOwner, PayloadTooLarge, TopicNotSupported
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, SchemaRef, partition_of
from penstock.spark.sink.identity import WriteCounts, WriteIdentity
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.staged_commit import commit
from penstock.spark.sink.tasks import write_task
from penstock.storage.catalog.topics import SchemaPolicy, TopicSettings
from penstock.storage.store import Store

ORDERS = TopicName.parse("orders")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(ORDERS)
        store.create_topic(TopicName.parse("wide"), partitions=3)
        strict = TopicSettings(schema_policy=SchemaPolicy.ENFORCE, payload_bytes_max=1000)
        store.create_topic(TopicName.parse("strict"), settings=strict)
    return tmp_path / "data"


def load(
    chosen: SinkOptions, batch: int, *parts: pa.RecordBatch, query: str = "q", stream: bool = False
) -> WriteCounts:
    """A batch with a task for each part."""
    identity = WriteIdentity(query=query, batch=batch, stream=stream)
    written = [write_task(chosen, identity, number, [part]) for number, part in enumerate(parts)]
    return commit(chosen, identity, [each.file for each in written if each.file is not None])


def left(root: Path) -> list[str]:
    folder = root.with_name("data.staging")
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_rows_are_appended_in_the_order_of_tasks_and_rows(root: Path) -> None:
    tally = load(options(path=root, topic="orders"), 0, rows(5), rows(4, first=5))
    assert values(root, "orders") == row_values(range(9))
    assert tally == WriteCounts(rows=9)
    assert left(root) == ["q", "q/done.json"]


def test_every_field_of_a_row_is_stored(root: Path) -> None:
    batch = pa.record_batch(
        {
            "value": pa.array(["{}", "[]"]),
            "key": pa.array(["k", None]),
            "type": pa.array(["order.created", None]),
            "attributes": pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string())),
            "schema_id": pa.array([7, None]),
            "schema_version": pa.array([2, None], pa.int32()),
            "offset": pa.array([900, 901]),
        }
    )
    load(options(path=root, topic="orders", producer="etl"), 4, batch)
    first, second = (record.message for record in stored(root, "orders"))
    assert (first.payload, first.key, first.type, first.schema) == (b"{}", b"k", "order.created", SchemaRef(7, 2))
    assert (dict(first.attributes), first.producer_name, first.request_id) == ({"a": "b"}, "etl/q", 5 << 32)
    assert (second.payload, second.key, second.type, second.schema) == (b"[]", None, "", None)


def test_a_batch_that_comes_again_adds_nothing(root: Path) -> None:
    chosen = options(path=root, topic="orders")
    load(chosen, 0, rows(5))
    assert load(chosen, 0, rows(5)) == WriteCounts(rows=5, stored_before=5)
    load(chosen, 1, rows(5, first=5))
    assert load(chosen, 0, rows(7)) == WriteCounts(rows=7, stored_before=7)
    assert values(root, "orders") == row_values(range(10))


def test_it_adds_nothing_even_if_the_staging_directory_is_lost(root: Path) -> None:
    chosen = options(path=root, topic="wide")
    keys = [f"k{number % 5}" if number % 3 else None for number in range(5000)]
    load(chosen, 3, rows(5000, key=keys))
    (root.with_name("data.staging") / "q/done.json").unlink()
    assert load(chosen, 3, rows(5000, key=keys)) == WriteCounts(rows=5000, stored_before=5000)
    assert load(chosen, 2, rows(100)) == WriteCounts(rows=100, stored_before=100)
    assert sorted(values(root, "wide")) == sorted(row_values(range(5000)))


@pytest.mark.parametrize("lost", [False, True])
def test_a_stream_that_begins_anew_under_its_old_name_fails_and_loses_nothing(root: Path, lost: bool) -> None:
    chosen = options(path=root, topic="wide")
    for number in range(3):
        load(chosen, number, rows(5, first=5 * number), stream=True)
    if lost:  # then the log itself says how far the stream has come
        (root.with_name("data.staging") / "q/done.json").unlink()
    with pytest.raises(InvalidRequest, match=r"batch 0 of the stream q .* its batch 2 is there already: .* option run"):
        load(chosen, 0, rows(5, first=90), stream=True)
    assert load(chosen, 2, rows(5, first=10), stream=True).stored_before == 5
    load(chosen, 0, rows(5, first=90), query="other", stream=True)
    assert sorted(values(root, "wide")) == sorted(row_values([*range(15), *range(90, 95)]))


def test_numbers_that_rows_bring_along_are_of_no_batch_of_a_stream(root: Path) -> None:
    chosen = options(path=root, topic="orders", numbers="columns")
    load(chosen, 0, rows(1, producer_name=["a"], request_id=[9 << 32]), stream=True)
    load(chosen, 1, rows(1, first=1, producer_name=["a"], request_id=[(9 << 32) + 1]), stream=True)
    assert values(root, "orders") == row_values(range(2))


def test_rows_go_to_the_partition_of_their_key_or_the_one_they_name(root: Path) -> None:
    keys = [f"k{number}" for number in range(30)]
    load(options(path=root, topic="wide"), 0, rows(30, key=keys))
    by_key = stored(root, "wide")
    assert {r.message.key: partition_of(r.message.key or b"", 3) for r in by_key} == {
        key.encode(): partition_of(key.encode(), 3) for key in keys
    }
    load(options(path=root, topic="wide"), 1, rows(3, partition=[2, 0, None]))
    assert "row 1" in [record.message.payload.decode() for record in stored(root, "wide")]
    with pytest.raises(InvalidRequest, match="column 'partition' is 3, and /default/wide has partitions 0 to 2"):
        load(options(path=root, topic="wide"), 2, rows(1, partition=[3]))


def test_many_topics_are_written_at_once_and_may_be_created(root: Path) -> None:
    batch = rows(4, topic=["orders", "fresh", "orders", "fresh"])
    with pytest.raises(TopicNotSupported, match="fresh"):
        load(options(path=root), 0, batch)
    assert values(root, "orders") == []
    load(options(path=root, createPartitions="2"), 1, batch)
    assert (values(root, "orders"), values(root, "fresh")) == (["row 0", "row 2"], ["row 1", "row 3"])


def test_a_failed_load_can_be_repeated_when_its_cause_is_gone(root: Path) -> None:
    chosen = options(path=root, topic="fresh", run="nightly")
    with pytest.raises(TopicNotSupported):
        load(chosen, 0, rows(3), query="nightly")
    with Store.open(root) as store:
        store.create_topic(TopicName.parse("fresh"))
    load(chosen, 0, rows(2), query="nightly")
    assert values(root, "fresh") == row_values(range(2))


def test_rows_with_numbers_of_their_own_are_recognised_across_loads(root: Path) -> None:
    chosen = options(path=root, topic="orders", numbers="columns")
    load(chosen, 0, rows(3, producer_name=["a", "b", "a"], request_id=[5, 5, 9]))
    load(chosen, 1, rows(4, first=3, producer_name=["a", "a", "b", "b"], request_id=[9, 12, 5, 6]))
    assert values(root, "orders") == row_values([0, 2, 1, 4, 6])
    with pytest.raises(InvalidRequest, match="request_id 1 comes after 3"):
        load(chosen, 2, rows(1, producer_name=["c"], request_id=[3]), rows(1, producer_name=["c"], request_id=[1]))


def test_what_a_topic_does_not_take_is_refused_before_anything_is_stored(root: Path) -> None:
    batch = pa.record_batch({"value": [b"a", b"x" * 2_000_000], "topic": ["orders", "orders"]})
    with pytest.raises(PayloadTooLarge, match="at most 1048576 bytes, not 2000000"):
        load(options(path=root), 0, batch)
    with pytest.raises(InvalidRequest, match="enforces its schema"):
        load(options(path=root, topic="strict"), 0, rows(1), query="other")
    with pytest.raises(InvalidRequest, match="null in row 1"):
        load(options(path=root, topic="orders"), 0, pa.record_batch({"value": [b"a", None]}), query="third")
    assert values(root, "orders") == []


def test_a_directory_that_somebody_owns_is_refused_with_what_to_do(root: Path) -> None:
    with Store.open(root), pytest.raises(NotOwner, match="broker=HOST:PORT in place of path"):
        load(options(path=root, topic="orders"), 0, rows(1))


def test_other_producers_of_the_topic_are_left_alone(root: Path) -> None:
    with Store.open(root) as store:
        producer = store.catalog.producer_id(store.catalog.get_topic(ORDERS), "shop")
        store.append(ORDERS, Draft.of([Message(payload=b"theirs", producer_id=producer, request_id=1 << 40)]))
    load(options(path=root, topic="orders"), 0, rows(2))
    assert values(root, "orders") == ["theirs", "row 0", "row 1"]


_KILLED = """
import sys
from pathlib import Path
from tests.spark.sink.kit import options, rows
from tests.spark.sink.test_staged_commit import load
load(options(path=Path(sys.argv[1]), topic="wide"), 0, *(rows(1500, first=1500 * n) for n in range(4)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["sink-planned", "sink-appending", "sink-appending:3", "sink-appended", "sink-finished"]
)
def test_a_commit_that_was_killed_is_finished_by_the_next(root: Path, place: str) -> None:
    environment = {**os.environ, "PENSTOCK_FAILPOINT": place}
    died = subprocess.run([sys.executable, "-c", _KILLED, str(root)], env=environment, check=False)
    assert died.returncode == -9
    others = rows(6000, first=0).take(pa.array(range(5999, -1, -1)))  # the query gives them in another order now
    load(options(path=root, topic="wide"), 0, others)
    assert sorted(values(root, "wide")) == sorted(row_values(range(6000)))
    assert left(root) == ["q", "q/done.json"]
