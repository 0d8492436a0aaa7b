"""The options: each wrong one is named, with what was given and what is allowed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.spark.jobs.audit.archive_side import Warehouse
from penstock.spark.lake.archive.batch_commit import Destination
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.scan.columns import DEFAULT_NAMES, NAMES
from penstock.spark.scan.slices import Slice
from penstock.spark.source.offsets import ReadBound
from penstock.spark.source.option_values import Rows
from penstock.spark.source.options import OPTIONS, ReadOptions, parse

BASE = {"path": "/data", "subscribe": "orders"}


def options(*, streaming: bool | None = False, **given: Any) -> ReadOptions:
    return ReadOptions.of({**BASE, **given}, streaming=streaming)


def test_the_least_that_has_to_be_said_is_where_and_which_topics() -> None:
    found = options()
    assert found.location.uri == "/data"
    assert found.topics == (TopicName.parse("orders"),)
    assert found.columns == DEFAULT_NAMES
    assert (found.starting, found.ending) == (ReadBound(word="earliest"), ReadBound(word="latest"))
    assert found.fail_on_data_loss
    assert found.verify
    assert not found.pushdown


def test_a_stream_begins_with_what_is_new_unless_it_is_told_otherwise() -> None:
    assert options(streaming=True).starting == ReadBound(word="latest")
    assert options(streaming=True, startingOffsets="earliest").starting == ReadBound(word="earliest")


def test_names_are_known_in_any_case_since_spark_makes_them_lower() -> None:
    given = {"path": "/data", "SUBSCRIBE": "a,/shop/B , a", "failondataloss": "FALSE", "SliceBytes": "1MiB"}
    found = ReadOptions.of(given, streaming=False)
    assert found.topics == (TopicName.parse("a"), TopicName.parse("/shop/b"))
    assert not found.fail_on_data_loss
    assert found.slice_bytes == 1 << 20


def test_offsets_of_each_partition_are_json() -> None:
    found = options(startingOffsets='{"orders": {"0": 23, "1": -2}}', endingOffsets='{"/default/orders": {"0": -1}}')
    assert found.starting.by_partition == {("/default/orders", 0): 23, ("/default/orders", 1): -2}
    assert found.ending.by_partition == {("/default/orders", 0): -1}


def test_times_are_milliseconds_or_words() -> None:
    assert options(startingTimestamp="1767225600000").starting.time_ms == 1767225600000
    assert options(endingTimestamp="2026-01-01T00:00:00Z").ending.time_ms == 1767225600000


def test_columns_are_chosen_by_name_and_attributes_on_request() -> None:
    assert options(columns="offset, value").columns == ("offset", "value")
    assert options(includeAttributes="true").columns == NAMES
    assert options(columns="offset", includeAttributes="true").columns == ("offset", "attributes")
    assert options(rows="slices").rows is Rows.SLICES


def test_what_goes_to_the_object_store_is_handed_on() -> None:
    given = {"path": "s3://bucket/data", "subscribe": "orders", "storage.region": "eu", "storage.AWS_TIMEOUT": "9s"}
    found = ReadOptions.of(given, streaming=False).location
    assert dict(found.storage_options) == {"region": "eu", "AWS_TIMEOUT": "9s"}


def test_what_may_be_secret_is_not_shown() -> None:
    keys = {"access_key_id": "me", "secret_access_key": "hush"}
    given = {"path": "s3://bucket/data", "subscribe": "orders", **{f"storage.{key}": keys[key] for key in keys}}
    found = ReadOptions.of(given, streaming=False)
    part = Slice(found.location, "/default/orders", 0, 0, 1, 1)
    warehouse: dict[str, Any] = {"storage_options": (("secret", "hush"),), "catalog": (("token", "hush"),)}
    destination = Destination(warehouse="s3://lake", **warehouse)
    shown = [found, part, destination, Folder.parse("s3://lake", keys), Warehouse("s3://lake", **warehouse)]
    assert "hush" not in repr(shown)
    assert "s3://bucket/data" in repr(found)


def test_bad_records_of_all_workers_go_to_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given, meant in (("bad", f"{tmp_path}/bad"), ("/bad", "/bad"), ("s3://bucket/bad", "s3://bucket/bad")):
        found = options(decode="registry", decodeMode="quarantine", badRecords=given).decode
        assert found is not None
        assert found.bad_records == meant


def test_options_travel_to_the_workers() -> None:
    found = options(where="type = 'a' and offset in (1, 2)", decode="registry")
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("subscribe", "", "topics, with commas"),
        ("subscribe", "a,,b", "topics, with commas"),
        ("subscribe", "no topic!", "must be a letter"),
        ("subscribePattern", "(", "no regular expression"),
        ("startingOffsets", "newest", "no JSON"),
        ("startingOffsets", "[]", "no JSON object of topics"),
        ("startingOffsets", '{"orders": 5}', "no JSON object of partitions"),
        ("startingOffsets", '{"orders": {"x": 5}}', "no number of a partition"),
        ("startingOffsets", '{"orders": {"0": -3}}', "no offset, -3"),
        ("startingOffsets", '{"orders": {"0": true}}', "no offset, True"),
        ("startingOffsets", '{"no topic": {"0": 1}}', "no topic"),
        ("startingTimestamp", "yesterday", "Unix milliseconds"),
        ("startingTimestamp", "earliest", "Unix milliseconds"),
        ("endingTimestamp", "-1", "Unix milliseconds"),
        ("minPartitions", "0", "a whole number from 1 on"),
        ("minPartitions", "two", "a whole number from 1 on"),
        ("sliceBytes", "0", "a size such as"),
        ("sliceBytes", "many", "a size such as"),
        ("failOnDataLoss", "yes", "true or false"),
        ("columns", "offset,ofset", "no column 'ofset'"),
        ("columns", "offset,offset", "asked for twice"),
        ("rows", "messages", "records, slices, counts or hours"),
        ("where", "type ~ 'x'", "conditions such as"),
        ("decode", "avro", "none or registry"),
        ("decodeSchema", "newest", "latest, merged, or the number"),
        ("decodeMode", "skip", "fail, null or quarantine"),
        ("broker", "http://x", "HOST:PORT"),
        ("subscription", " ", "the name under which"),
    ],
)
def test_a_wrong_option_is_named_with_what_was_given_and_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse({**BASE, name: text})
    assert f"option {name} is {text!r}" in str(raised.value)
    assert allowed in str(raised.value)
    assert raised.value.details["option"] == name


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("subscibe", "did you mean subscribe?"),
        ("startingoffset", "did you mean startingOffsets?"),
        ("failOnDataLos", "did you mean failOnDataLoss?"),
        ("kafka.bootstrap.servers", "there are path, url, subscribe"),
    ],
)
def test_an_unknown_option_is_refused_and_the_right_one_proposed(key: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse({**BASE, key: "x"})
    assert f"there is no option {key!r}: {hint}" in str(raised.value)


def test_what_spark_adds_by_itself_is_let_pass() -> None:
    assert parse({**BASE, "checkpointLocation": "/x"})["path"] == "/data"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"subscribePattern": "a.*"}, "both are given"),
        ({"subscribe": None}, "neither is given"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "startingOffsets and startingTimestamp"),
        ({"startingOffsets": "latest"}, "startingOffsets is 'latest'"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest'"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for a stream"),
        ({"subscription": "x"}, "subscription is for a stream"),
        ({"rows": "slices", "columns": "id"}, "rows is 'slices'"),
        ({"rows": "slices", "where": "offset > 5"}, "rows is 'slices'"),
        ({"rows": "counts", "columns": "id"}, "rows is 'counts'"),
        ({"rows": "hours", "where": "type = 'a'"}, "rows is 'hours'"),
        ({"badRecords": "/bad"}, "badRecords is for decodeMode quarantine"),
        ({"path": None}, "neither path nor url is given"),
        ({"url": "http://127.0.0.1:8081"}, "path='/data' and url="),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, str | None], what: str) -> None:
    asked = {name: text for name, text in {**BASE, **given}.items() if text is not None}
    with pytest.raises(InvalidRequest, match=what):
        ReadOptions.of(asked, streaming=False)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for a batch"),
        ({"endingTimestamp": "5"}, "endingTimestamp is for a batch"),
        ({"subscription": "x"}, "broker does not say where"),
    ],
)
def test_a_stream_has_no_end_and_its_progress_an_address(given: dict[str, str], what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        ReadOptions.of({**BASE, **given}, streaming=True)


def test_every_option_says_what_is_allowed_and_its_default_is_allowed() -> None:
    for option in OPTIONS:
        assert option.allowed
        assert option.default is None or option.parse(option.default) is not None
