"""Through a real broker: each row once, however often and from wherever a task comes."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.kit import child_environment
from tests.spark.sink.kit import cut, options, row_values, rows, stored, values

import penstock
from penstock.core.errors import (
    InvalidRequest,
    NotOwner,
    PayloadTooLarge,
    SchemaRejected,
    ServiceUnavailable,
    TopicNotSupported,
)
from penstock.spark.sink.identity import WriteCounts, WriteIdentity
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.staged_commit import commit
from penstock.spark.sink.tasks import write_task
from penstock.testing import RunningBroker

pytestmark = pytest.mark.slow  # a broker in a process of its own


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker("--auto-create", "off", environment=child_environment(tmp_path_factory)) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with three partitions."""
    name = f"t{zlib.crc32(request.node.nodeid.encode())}"
    with penstock.connect(broker.url) as client:
        client.ask("system.topic.create", {"topic": name, "partitions": 3})
    return name


def task(chosen: SinkOptions, batch: int, *parts: pa.RecordBatch, partition: int = 0, query: str = "q") -> WriteCounts:
    return write_task(chosen, WriteIdentity(query=query, batch=batch), partition, parts).tally


def put(chosen: SinkOptions, identity: WriteIdentity, batch: pa.RecordBatch) -> None:
    """Staged by one task, and committed."""
    file = write_task(chosen, identity, 0, [batch]).file
    assert file is not None
    commit(chosen, identity, [file])


def broken_off(after: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows that end with the death of their task."""
    yield from cut(batch.slice(0, after), 1000)
    raise ConnectionResetError("killed")


def test_rows_are_published_with_all_their_fields(broker: RunningBroker, topic: str) -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"one", b"two"]),
            "key": pa.array([b"k", None]),
            "type": ["created", "deleted"],
            "attributes": pa.array([[("trace", "1")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    assert task(options(broker=broker.url, topic=topic, producer="etl"), 7, batch, partition=4) == WriteCounts(rows=2)
    found = sorted((record.message for record in stored(broker.data, topic)), key=lambda each: each.request_id)
    assert [each.payload for each in found] == [b"one", b"two"]
    assert (found[0].key, found[0].type, dict(found[0].attributes)) == (b"k", "created", {"trace": "1"})
    assert (found[0].producer_name, found[0].request_id) == ("etl/q/4", 8 << 32)
    assert (found[1].key, found[1].type, found[1].request_id) == (None, "deleted", (8 << 32) + 1)


@pytest.mark.parametrize("stop", [1, 4999, 5000, 17_300, 29_999])
def test_a_task_that_broke_off_goes_on_where_it_was(broker: RunningBroker, topic: str, stop: int) -> None:
    chosen = options(broker=broker.url, topic=topic)
    batch = rows(30_000)
    with pytest.raises(ConnectionResetError):
        write_task(chosen, WriteIdentity(query="q", batch=0), 0, broken_off(stop, batch))
    tally = task(chosen, 0, *cut(batch, 7000))
    assert sorted(values(broker.data, topic)) == sorted(row_values(range(30_000)))
    assert tally.rows == 30_000
    assert task(chosen, 0, batch).stored_before == 30_000
    assert len(values(broker.data, topic)) == 30_000


def test_a_batch_that_is_long_past_is_left_out(broker: RunningBroker, topic: str) -> None:
    chosen = options(broker=broker.url, topic=topic)
    for number in range(4):
        task(chosen, number, rows(8000, first=8000 * number))
    assert task(chosen, 0, rows(8000)) == WriteCounts(rows=8000, stored_before=8000)
    assert task(chosen, 3, rows(8000, first=24_000)).stored_before == 8000
    assert sorted(values(broker.data, topic)) == sorted(row_values(range(32_000)))


def test_a_stream_that_begins_anew_under_its_old_name_fails_and_loses_nothing(
    broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    chosen = options(broker=broker.url, topic=topic)
    said = r"producer spark/q.*: batch 0 of the stream q .* its batch 2 is there already: .* option run"
    for number in range(3):
        write_task(chosen, WriteIdentity(query="q", batch=number, stream=True), 0, [rows(10, first=10 * number)])
    anew = WriteIdentity(query="q", batch=0, stream=True)
    with pytest.raises(InvalidRequest, match=said):
        write_task(chosen, anew, 0, [rows(10, first=90)])
    identity = WriteIdentity(query="q", batch=2, stream=True)
    assert write_task(chosen, identity, 0, [rows(10, first=20)]).tally.stored_before == 10
    staged = options(broker=broker.url, topic=topic, staging=tmp_path)
    put(staged, WriteIdentity(query="q", batch=2, stream=True), rows(10, first=30))
    (tmp_path / "q/done.json").unlink()  # then the log itself says how far the stream has come
    with pytest.raises(InvalidRequest, match=said):
        put(staged, anew, rows(10, first=90))
    assert sorted(values(broker.data, topic)) == sorted(row_values(range(40)))


def test_it_is_remembered_when_the_broker_was_killed(tmp_path: Path) -> None:
    with RunningBroker(data=tmp_path / "data") as running:
        task(options(broker=running.url, topic="kept"), 0, rows(12_000))
        running.kill()
        running.start()
        task(options(broker=running.url, topic="kept"), 0, rows(13_000))
        assert values(running.data, "kept") == row_values(range(13_000))


def test_the_attempt_that_came_last_is_the_one_that_writes(broker: RunningBroker, topic: str) -> None:
    chosen, identity = options(broker=broker.url, topic=topic), WriteIdentity(query="q", batch=0)
    overtaken, told = threading.Event(), threading.Event()
    failure: list[BaseException] = []

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows(10_000)
        told.set()
        overtaken.wait(30)
        yield rows(10_000, first=10_000)

    def zombie() -> None:
        try:
            write_task(chosen, identity, 0, slow())
        except NotOwner as error:
            failure.append(error)

    thread = threading.Thread(target=zombie)
    thread.start()
    assert told.wait(30)
    task(chosen, 0, rows(20_000))
    overtaken.set()
    thread.join(30)
    assert "another attempt of this task" in str(failure[0])
    assert sorted(values(broker.data, topic)) == sorted(row_values(range(20_000)))


def test_tasks_of_one_batch_are_told_apart(broker: RunningBroker, topic: str) -> None:
    chosen = options(broker=broker.url, topic=topic)
    for partition in range(3):
        task(chosen, 0, rows(10, first=10 * partition), partition=partition)
    task(chosen, 0, rows(10, first=30), query="other")
    assert sorted(values(broker.data, topic)) == sorted(row_values(range(40)))


def test_each_topic_of_a_task_has_numbers_of_its_own(broker: RunningBroker, topic: str) -> None:
    chosen = options(broker=broker.url, createPartitions="1")
    batch = rows(6, topic=[topic, f"{topic}.b", topic, f"{topic}.b", f"{topic}.b", topic])
    task(chosen, 0, batch)
    task(chosen, 0, *cut(batch, 2))
    assert sorted(values(broker.data, topic)) == row_values([0, 2, 5])
    assert values(broker.data, f"{topic}.b") == row_values([1, 3, 4])


def test_rows_with_numbers_of_their_own_are_recognised_in_any_batch(broker: RunningBroker, topic: str) -> None:
    chosen = options(broker=broker.url, topic=topic, numbers="columns")
    names, numbers = ["a", "b", "a", "b"], [10, 5, 30, 6]
    task(chosen, 0, rows(4, producer_name=names, request_id=numbers))
    task(chosen, 9, rows(6, producer_name=[*names, "a", "b"], request_id=[*numbers, 31, 7]), partition=3)
    assert sorted(values(broker.data, topic)) == row_values(range(6))


@pytest.mark.parametrize("stop", [1, 6000, 14_000])
def test_a_sequence_with_gaps_that_broke_off_goes_on_where_it_was(broker: RunningBroker, topic: str, stop: int) -> None:
    chosen, identity = options(broker=broker.url, topic=topic, numbers="columns"), WriteIdentity(query="q", batch=0)
    names = ["a" if number % 3 else "b" for number in range(15_000)]
    batch = rows(15_000, producer_name=names, request_id=[7 * number + 1 for number in range(15_000)])
    with pytest.raises(ConnectionResetError):
        write_task(chosen, identity, 0, broken_off(stop, batch))
    for stored_before in (None, 15_000):
        tally = task(chosen, 5, *cut(batch, 4000), query="another")
        assert stored_before in (None, tally.stored_before)
    assert sorted(values(broker.data, topic)) == sorted(row_values(range(15_000)))


def test_content_decides_the_order_where_that_is_asked_for(broker: RunningBroker, topic: str) -> None:
    chosen = options(broker=broker.url, topic=topic, order="content")
    batch = rows(20_000)
    with pytest.raises(ConnectionResetError):
        write_task(chosen, WriteIdentity(query="q", batch=0), 0, broken_off(20_000, batch))
    task(chosen, 0, batch)
    task(chosen, 0, batch.take(pa.array(range(19_999, -1, -1))))
    assert sorted(values(broker.data, topic)) == sorted(row_values(range(20_000)))


def test_rows_that_are_fewer_than_before_are_not_taken_for_the_same(broker: RunningBroker, topic: str) -> None:
    chosen = options(broker=broker.url, topic=topic)
    task(chosen, 0, rows(100))
    with pytest.raises(InvalidRequest, match="had more than 99 rows when it was published before, and now has 50"):
        task(chosen, 0, rows(50))


def test_rows_that_come_in_another_order_than_before_are_not_taken_for_the_same(
    broker: RunningBroker, topic: str
) -> None:
    chosen = options(broker=broker.url, topic=topic)
    with pytest.raises(ConnectionResetError):
        write_task(chosen, WriteIdentity(query="q", batch=0), 0, broken_off(12_000, rows(20_000)))
    with pytest.raises(InvalidRequest, match="order=content"):
        task(chosen, 0, rows(20_000).take(pa.array(range(19_999, -1, -1))))
    assert sorted(values(broker.data, topic)) == sorted(row_values(range(12_000)))


def test_staged_rows_are_published_once_though_they_differ_when_they_come_again(
    broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    chosen, identity = options(broker=broker.url, topic=topic, staging=tmp_path), WriteIdentity(query="q", batch=0)
    for first in (0, 500):
        written = [write_task(chosen, identity, number, [rows(4000, first=first)]) for number in range(2)]
        commit(chosen, identity, [each.file for each in written if each.file is not None])
    assert sorted(values(broker.data, topic)) == sorted(2 * row_values(range(4000)))


def test_what_the_topic_does_not_take_is_told_with_its_row(broker: RunningBroker, topic: str) -> None:
    batch = pa.record_batch({"value": [b"a", b"x" * 1_100_000]})
    with pytest.raises(PayloadTooLarge, match=r"row 1 of its task: a payload of .* at most 1048576 bytes, not 1100000"):
        task(options(broker=broker.url, topic=topic), 0, batch)
    with pytest.raises(TopicNotSupported, match="there is no durable topic /default/missing"):
        task(options(broker=broker.url, topic="missing"), 0, rows(1))


def test_what_the_schema_does_not_allow_is_told_with_its_reason_and_the_rest_goes_on_later(
    broker: RunningBroker, topic: str
) -> None:
    text = json.dumps({"type": "object", "required": ["id"]})
    batch = pa.record_batch({"value": [b'{"id":1}', b'{"no":2}', b'{"id":3}']})
    chosen = options(broker=broker.url, topic=topic)
    with penstock.connect(broker.url) as client:
        client.ask("system.schema.register", {"subject": f"{topic}-value", "type": "JSON", "schema": text})
        policy = {"schema_policy": "enforce", "schema_default": "latest", "schema_payloads": True}
        policy["schema_subjects"] = [f"{topic}-value"]
        client.ask("system.topic.alter", {"topic": topic, **policy})
        with pytest.raises(SchemaRejected, match=r"1 of 3 messages were refused; message 1: .*id"):
            task(chosen, 0, batch)
        client.ask("system.topic.alter", {"topic": topic, **policy, "schema_policy": "none"})
        task(chosen, 0, batch)
    assert sorted(values(broker.data, topic)) == ['{"id":1}', '{"id":3}', '{"no":2}']


def test_a_pace_is_kept(broker: RunningBroker, topic: str) -> None:
    assert task(options(broker=broker.url, topic=topic, rowsPerSecond="5000"), 0, rows(1000)) == WriteCounts(rows=1000)
    assert len(values(broker.data, topic)) == 1000


def test_a_broker_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable):
        task(options(broker="127.0.0.1:1", topic="t", timeout="1"), 0, rows(1))
