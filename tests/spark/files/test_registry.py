"""Schemas from every source: the same answers from a catalog, a broker, another registry and an export."""

from __future__ import annotations

import json
import pickle
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kit import child_environment
from tests.spark.files.test_http import answering, fake_server
from tests.spark.log_kit import make_data

import penstock
from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.core.names import TopicName
from penstock.core.schemas import Definition, SchemaKind
from penstock.spark.files import registry as registries
from penstock.spark.files.location import Location
from penstock.spark.files.registry import HttpRegistry, RegistryLocation, SchemaSource, read_export
from penstock.spark.files.web import HttpClient
from penstock.storage.catalog.reader import CatalogReader
from penstock.storage.catalog.rows import topic_row
from penstock.storage.catalog.topics import TopicSettings
from penstock.storage.store import Store
from penstock.testing import RunningBroker

ORDERS = TopicName.parse("orders")
CARTS = TopicName.parse("carts")
MONEY = json.dumps({"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]})
ADDRESS = json.dumps({"type": "record", "name": "Address", "fields": [{"name": "due", "type": "Money"}]})
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "to", "type": "Address"}]})
SHAPE = '{"type": "object"}'


def refers(name: str, subject: str) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture(scope="module")
def ids(broker: RunningBroker) -> dict[str, int]:
    """Return the ids of registered schemas by name; one version is deleted, and keeps its meaning."""
    with penstock.connect(broker.url) as client:

        def register(subject: str, text: str, kind: str = "AVRO", *references: dict[str, Any]) -> int:
            asked = {"subject": subject, "type": kind, "schema": text, "references": list(references)}
            return int(client.ask("system.schema.register", asked)["id"])

        found = {"money": register("money", MONEY)}
        found["address"] = register("address/of", ADDRESS, "AVRO", refers("Money", "money"))
        found["order"] = register(
            "orders-value", ORDER, "AVRO", refers("Address", "address/of"), refers("Money", "money")
        )
        client.ask("system.schema.config", {"subject": "shapes", "compatibility": "NONE"})
        found["shape"] = register("shapes", SHAPE, "JSON")
        found["closed"] = register("shapes", '{"type": "array"}', "JSON")
        found["third"] = register("shapes", '{"type": "string"}', "JSON")
        client.ask("system.schema.delete", {"subject": "shapes", "version": 2})
        client.ask("system.topic.create", {"topic": "shaped", "schema_subjects": ["shapes", "address/of"]})
        client.ask("system.topic.create", {"topic": "orders"})
    return found


@pytest.fixture(scope="module")
def export(broker: RunningBroker, ids: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "schemas.jsonl"
    command = [sys.executable, "-m", "penstock", "schema", "export", "--url", broker.url, "--output", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


Opened = Callable[[], SchemaSource]


@pytest.fixture(params=["catalog", "broker", "export with the catalog", "registry with the catalog", "data directory"])
def source(request: pytest.FixtureRequest, broker: RunningBroker, export: Path) -> SchemaSource:
    data, nowhere = Location.parse(path=str(broker.data)), Location.parse(path="s3://bucket/data")
    at = {
        "catalog": RegistryLocation(data),
        "broker": RegistryLocation(Location.parse(url=broker.http_url)),
        "export with the catalog": RegistryLocation(data, str(export)),
        "registry with the catalog": RegistryLocation(data, broker.http_url),
        "data directory": RegistryLocation(nowhere, str(broker.data)),
    }[request.param]
    travelled: RegistryLocation = pickle.loads(pickle.dumps(at))
    return travelled.open()


def test_an_id_means_its_text_with_all_that_it_refers_to(source: SchemaSource, ids: dict[str, int]) -> None:
    assert source.schema(ids["shape"]) == Definition(SchemaKind.JSON, SHAPE)
    order = source.schema(ids["order"])
    assert (order.kind, order.text) == (SchemaKind.AVRO, ORDER)
    assert order.references == (("Money", MONEY), ("Address", ADDRESS)), "what others need comes first"
    assert source.schema(ids["order"]) is order


def test_a_version_that_is_deleted_still_means_what_it_meant(source: SchemaSource, ids: dict[str, int]) -> None:
    assert source.schema(ids["closed"]).text == '{"type": "array"}'
    assert source.versions("shapes") == [(1, ids["shape"]), (3, ids["third"])]


def test_versions_are_those_of_the_subject_and_an_unknown_one_has_none(
    source: SchemaSource, ids: dict[str, int]
) -> None:
    assert source.versions("address/of") == [(1, ids["address"])]
    assert source.versions("nobody") == []


def test_a_topics_subjects_are_what_its_settings_say_or_the_one_of_its_name(source: SchemaSource) -> None:
    assert source.subjects_of(TopicName.parse("shaped")) == ["shapes", "address/of"]
    assert source.subjects_of(ORDERS) == ["orders-value"]
    assert source.subjects_of(TopicName.parse("/shop/nothing.there")) == ["shop/nothing.there-value"]


def test_an_id_that_is_not_known_is_named_with_the_place_that_does_not_know_it(source: SchemaSource) -> None:
    with pytest.raises(InvalidRequest, match=r"schema id 777 is not known to .+: was the message written with another"):
        source.schema(777)


def test_an_id_that_comes_later_is_known_then(broker: RunningBroker, ids: dict[str, int]) -> None:
    source = RegistryLocation(Location.parse(path=str(broker.data))).open()
    later = max(ids.values()) + 1
    with pytest.raises(InvalidRequest, match=f"schema id {later}"):
        source.schema(later)
    with penstock.connect(broker.url) as client:
        asked = {"subject": "later", "type": "JSON", "schema": '{"type": "boolean"}'}
        assert client.ask("system.schema.register", asked)["id"] == later
    assert source.schema(later).text == '{"type": "boolean"}'


# what is opened


def test_a_process_goes_on_with_the_source_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = RegistryLocation(Location.parse(path=str(make_data(tmp_path / "data"))))
    assert at.open() is at.open()
    monkeypatch.setattr(registries, "_REUSED_SECONDS", -1.0)
    assert at.open() is not at.open()


def test_no_more_sources_are_kept_than_may_be(tmp_path: Path) -> None:
    for number in range(40):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("")
        RegistryLocation(Location.parse(path="/nowhere"), str(path)).open()
    assert len(registries._opened) <= 16


def test_files_alone_have_no_schemas_with_them(tmp_path: Path) -> None:
    for place in (str(tmp_path), "s3://bucket/data"):
        with pytest.raises(InvalidRequest, match=r"there are no schemas with the files .*: name a registry"):
            RegistryLocation(Location.parse(path=place)).open()


@pytest.mark.parametrize("uri", ["nowhere.jsonl", "ftp://h/x", "http:///x", ""])
def test_a_registry_that_is_none_is_named(uri: str) -> None:
    with pytest.raises(InvalidRequest, match=f"registry={uri!r} is neither"):
        RegistryLocation(Location.parse(path="/nowhere"), uri).open()


# a catalog


def files_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}


def test_a_reader_of_a_catalog_that_nobody_has_open_leaves_nothing_behind(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data")
    before = files_of(root)
    assert CatalogReader(root / "catalog.db").versions("orders") == []
    assert files_of(root) == before


@pytest.mark.parametrize("left", [("-wal",), ("-wal", "-shm")])
def test_what_a_killed_owner_left_in_its_log_is_read_and_nothing_left_behind(
    tmp_path: Path, left: tuple[str, ...]
) -> None:
    root = make_data(tmp_path / "data")
    with Store.open(root) as store:
        store.create_topic(CARTS, settings=TopicSettings(schema_subjects=("carts.v2",)))
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for suffix in ("", *left):
            shutil.copyfile(root / f"catalog.db{suffix}", crashed / f"catalog.db{suffix}")
    before = sorted(files_of(crashed))
    assert CatalogReader(crashed / "catalog.db").subjects_of(CARTS) == ("carts.v2",)
    assert sorted(files_of(crashed)) == before


def test_a_reader_sees_what_an_owner_writes_that_came_later_and_what_it_left(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data")
    reader = CatalogReader(root / "catalog.db")
    assert reader.subjects_of(CARTS) is None
    with Store.open(root) as store:
        store.create_topic(CARTS, settings=TopicSettings(schema_subjects=("carts.v2",)))
        beside = sorted(files_of(root))
        assert reader.subjects_of(CARTS) == ("carts.v2",)
        assert sorted(files_of(root)) == beside
    assert reader.subjects_of(CARTS) == ("carts.v2",)
    assert not [name for name in files_of(root) if name.endswith(("-wal", "-shm"))]


def test_what_was_read_while_an_owner_came_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_data(tmp_path / "data")
    reader, asked = CatalogReader(root / "catalog.db"), topic_row

    def slow(connection: Any, topic: TopicName) -> Any:
        found = asked(connection, topic)
        monkeypatch.setattr("penstock.storage.catalog.reader.topic_row", asked)
        with Store.open(root) as store:
            store.create_topic(CARTS, settings=TopicSettings(schema_subjects=("carts.v2",)))
        return found

    monkeypatch.setattr("penstock.storage.catalog.reader.topic_row", slow)
    assert reader.subjects_of(CARTS) == ("carts.v2",)


def test_a_damaged_catalog_is_not_believed(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data")
    with sqlite3.connect(root / "catalog.db") as connection:
        connection.execute("UPDATE topics SET settings = '{\"rate_max\": 1}'")
    connection.close()
    with pytest.raises(StorageFailed, match="table topics is not as it was written"):
        RegistryLocation(Location.parse(path=str(root))).open().subjects_of(ORDERS)


def test_a_file_that_is_no_catalog_is_told(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(StorageFailed, match="is damaged"):
        RegistryLocation(Location.parse(path=str(tmp_path))).open().versions("x")


# an export


def test_a_line_that_is_none_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "schemas.jsonl"
    good = '{"subject": "a", "version": 1, "id": 7, "schemaType": "JSON", "schema": "{}"}\n'
    path.write_text(good + '{"subject": "a", "compatibility": "NONE"}\n\n')
    assert read_export(path).versions("a") == [(1, 7)]
    for wrong, words in (("no json", "line 2 is no line"), ('{"version": 1}', "line 2"), ("{}", "line 2: neither")):
        path.write_text(good + wrong + "\n")
        with pytest.raises(InvalidRequest, match=words):
            read_export(path)


def test_a_reference_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "schemas.jsonl"
    references = [refers("Money", "money")]
    line = {"subject": "a", "version": 1, "id": 7, "schemaType": "AVRO", "schema": ADDRESS, "references": references}
    path.write_text(json.dumps(line))
    with pytest.raises(InvalidRequest, match=r"version 1 of subject 'money', .* refers to as 'Money', is not known"):
        SchemaSource(read_export(path)).schema(7)


def test_references_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "schemas.jsonl"
    lines = [
        {"subject": name, "version": 1, "id": number, "schemaType": "AVRO", "schema": name, "references": [other]}
        for number, (name, other) in enumerate((("a", refers("B", "b")), ("b", refers("A", "a"))), 1)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert dict(SchemaSource(read_export(path)).schema(1).references) == {"A": "a", "B": "b"}


# other registries


def test_another_registry_that_knows_no_topics_is_asked_for_schemas_alone() -> None:
    with fake_server(answering(404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}')) as (url, _):
        source = RegistryLocation(Location.parse(path="s3://bucket/data"), url).open()
        assert source.subjects_of(ORDERS) == ["orders-value"]
        assert source.versions("x") == []
        with pytest.raises(InvalidRequest, match=f"schema id 7 is not known to {url}"):
            source.schema(7)


def test_no_type_means_avro_and_fields_that_nobody_knows_are_passed_over() -> None:
    with fake_server(answering(200, b'{"schema": "\\"long\\"", "guid": "x", "ruleSet": null}')) as (url, asked):
        assert HttpRegistry(HttpClient(url)).schema(7) is not None
        assert SchemaSource(HttpRegistry(HttpClient(url))).schema(7) == Definition(SchemaKind.AVRO, '"long"')
        assert asked == ["/schemas/ids/7"] * 2


def test_one_that_answers_otherwise_is_told() -> None:
    with (
        fake_server(answering(200, b'{"schema": 5}')) as (url, _),
        pytest.raises(InvalidRequest, match="something else than"),
    ):
        HttpRegistry(HttpClient(url)).schema(7)
    with (
        fake_server(answering(401, b'{"message": "who are you"}')) as (url, _),
        pytest.raises(InvalidRequest, match="answers 401: who are you"),
    ):
        HttpRegistry(HttpClient(url)).schema(7)
