"""Columns: what a DataFrame may have, and how rows are told apart by topic and producer."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.spark.sink.kit import options, rows

from penstock.core.errors import InvalidRequest, PayloadTooLarge, TopicNotSupported
from penstock.spark.sink import columns

PUBLISHED = options(broker="127.0.0.1:7450", topic="orders")
BY_ROW = options(broker="127.0.0.1:7450")
DIRECT = options(path="/data")
NUMBERED = options(broker="127.0.0.1:7450", topic="orders", numbers="columns")


def test_all_columns_that_the_sink_takes_are_right() -> None:
    kinds = {
        "value": "binary",
        "key": "string",
        "type": "string",
        "attributes": "map<string,string>",
        "schema_id": "bigint",
        "schema_version": "int",
        "topic": "string",
        "partition": "int",
    }
    columns.check_kinds(kinds, DIRECT)


def test_what_the_source_gives_can_be_written_but_for_the_partition() -> None:
    kinds = {"value": "binary", "offset": "bigint", "timestamp": "timestamp", "id": "binary", "producer_id": "bigint"}
    columns.check_kinds(kinds, PUBLISHED)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"key": "binary"}, "column 'value' is missing"),
        ({"value": "struct<a:int>"}, "column 'value' is struct<a:int>, and the sink takes binary or string"),
        ({"value": "binary", "vlaue": "binary"}, "no column 'vlaue'"),
        ({"value": "binary", "attributes": "map<string,int>"}, "column 'attributes' is map<string,int>"),
        ({"value": "binary", "schema_id": "string"}, "column 'schema_id' is string"),
        ({"value": "binary", "partition": "int"}, "a broker chooses the partition"),
    ],
)
def test_other_columns_are_refused_by_name(kinds: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        columns.check_kinds(kinds, PUBLISHED)
    assert said in caught.value.message


def test_a_topic_must_come_from_somewhere() -> None:
    with pytest.raises(InvalidRequest, match="no topic is given"):
        columns.check_kinds({"value": "binary"}, BY_ROW)
    columns.check_kinds({"value": "binary", "topic": "string"}, BY_ROW)


def test_rows_with_numbers_of_their_own_need_both_columns() -> None:
    with pytest.raises(InvalidRequest, match="needs the column 'request_id'"):
        columns.check_kinds({"value": "binary", "producer_name": "string"}, NUMBERED)


def test_a_row_without_a_value_is_named() -> None:
    batch = pa.record_batch({"value": pa.array([b"a", None, b"c"])})
    with pytest.raises(InvalidRequest, match="null in row 101 of its task") as caught:
        columns.check_values(batch, 100)
    assert caught.value.details["row"] == 101


def test_a_payload_that_is_too_large_is_named() -> None:
    with pytest.raises(PayloadTooLarge, match="row 12 of its task: a payload of /default/t has at most 3 bytes, not 4"):
        columns.check_sizes(pa.record_batch({"value": [b"abc", b"", b"abcd"]}), 10, topic="/default/t", bytes_max=3)


def test_rows_are_told_apart_by_topic_in_their_order() -> None:
    batch = rows(5, topic=["a", "b", "A", "/shop/c", "b"])
    found = {topic: part.column("value").to_pylist() for topic, part in columns.by_topic(batch, None, 0)}
    assert found == {
        "/default/a": [b"row 0", b"row 2"],
        "/default/b": [b"row 1", b"row 4"],
        "/shop/c": [b"row 3"],
    }


def test_the_option_wins_over_the_column() -> None:
    batch = columns.accepted_columns(rows(2, topic=["a", "b"]), PUBLISHED)
    assert [(topic, part.num_rows) for topic, part in columns.by_topic(batch, PUBLISHED.topic, 0)] == [
        ("/default/orders", 2)
    ]


def test_a_row_without_a_topic_or_with_a_wrong_one_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'topic' is null in row 8"):
        list(columns.by_topic(rows(2, topic=["a", None]), None, 7))
    with pytest.raises(TopicNotSupported, match="column 'topic'"):
        list(columns.by_topic(rows(2, topic=["a", "not a topic"]), None, 7))


def test_rows_are_told_apart_by_producer() -> None:
    batch = rows(3, producer_name=["p", "q", "p"], request_id=[1, 1, 2])
    found = {name: part.column("request_id").to_pylist() for name, part in columns.by_producer(batch)}
    assert found == {"p": [1, 2], "q": [1]}
    with pytest.raises(InvalidRequest, match="'request_id' is null"):
        list(columns.by_producer(rows(2, producer_name=["p", "q"], request_id=[1, None])))
    with pytest.raises(InvalidRequest, match="'producer_name' is empty"):
        list(columns.by_producer(rows(2, producer_name=["p", ""], request_id=[1, 2])))
