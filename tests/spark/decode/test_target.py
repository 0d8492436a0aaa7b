"""Targets: which schemas they are made of."""

from __future__ import annotations

import pickle

import pytest
from tests.spark.decode.kit import TOPIC, Shelf, avro, field, json_schema, kinds, properties, proto, record, rows

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.schemas import SchemaKind
from penstock.spark.decode.target import has_schemas, target_for

FIRST, SECOND = avro(record(field("a", "int"))), avro(record(field("a", "long"), field("b", "int", default=0)))


def test_the_latest_a_version_and_all_of_them() -> None:
    shelf = Shelf(FIRST, SECOND)
    assert kinds(shelf.target()) == {"a": "int64", "b": "int32"}
    assert kinds(shelf.target("1")) == {"a": "int32"}
    assert kinds(shelf.target("merged")) == {"a": "int64", "b": "int32"}
    assert [shelf.target(pick).schema_ids for pick in ("latest", "1", "merged")] == [(2,), (1,), (1, 2)]


def test_a_target_travels() -> None:
    for schema in (
        FIRST,
        json_schema(properties(a={}, b={"type": "integer", "default": 5})),
        proto("message M { M m = 1; }"),
    ):
        target = Shelf(schema).target()
        assert pickle.loads(pickle.dumps(target)) == target


def test_of_several_subjects_the_latest_of_each_is_meant() -> None:
    shelf = Shelf(FIRST, SECOND, avro(record(field("c", "int"), name="Other")), subjects=["x", "x", "y"])
    source = shelf.open()
    topics = [TopicName.parse("x"), TopicName.parse("y")]
    named = Shelf(
        FIRST, SECOND, avro(record(field("c", "int"), name="Other")), subjects=["x-value", "x-value", "y-value"]
    )
    assert kinds(target_for(named.open(), topics)) == {"a": "int64", "b": "int32", "c": "int32"}
    assert kinds(target_for(source, TOPIC, subject="y")) == {"c": "int32"}
    with pytest.raises(InvalidRequest, match="2 subjects"):
        target_for(named.open(), topics, pick="1")


def test_a_topic_without_schemas_cannot_be_decoded() -> None:
    source = Shelf().open()
    assert not has_schemas(source, TOPIC)
    assert has_schemas(Shelf(FIRST).open(), TOPIC)
    with pytest.raises(InvalidRequest, match="orders-value"):
        target_for(source, TOPIC)


@pytest.mark.parametrize("pick", ["newest", "", "-1", "1.0", "9" * 30, "٣"])
def test_what_is_no_version_is_refused(pick: str) -> None:
    with pytest.raises(InvalidRequest, match="latest, merged, or the number of a version"):
        Shelf(FIRST).target(pick)


def test_a_version_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidRequest, match="it has: 1, 2"):
        Shelf(FIRST, SECOND).target("7")


def test_languages_may_be_mixed_where_all_are_merged() -> None:
    shelf = Shelf((SchemaKind.STRING, ""), json_schema(properties(a={"type": "integer"})))
    found = shelf.decode((b"plain", 1), (b'{"a": 5}', 2), pick="merged")
    assert rows(found) == [{"value": "plain", "a": None}, {"value": None, "a": 5}]
    latest = shelf.decode((b"plain", 1))
    assert latest.bad.column("reason").to_pylist() == ["it was written as STRING, and is to be read as JSON"]


def test_text_takes_json_and_bytes_take_anything() -> None:
    object_ = json_schema(properties(a={"type": "integer"}))
    assert rows(Shelf(object_, (SchemaKind.STRING, "")).decode((b'{"a": 5}', 1))) == [{"value": '{"a": 5}'}]
    assert rows(Shelf(FIRST, (SchemaKind.BYTES, "")).decode((b"\xff", 1))) == [{"value": b"\xff"}]


def test_numbers_are_a_column_of_doubles() -> None:
    found = Shelf((SchemaKind.NUMBER, "")).decode((b"5", 1), (b"1.5", 1), (b"x", 1), (b'"5"', 1))
    assert found.rows.to_pylist() == [{"value": 5.0}, {"value": 1.5}]
    assert found.bad.num_rows == 2
