"""A broker with access control, read by Spark: the token is in no option and no plan, and no other server gets it."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.cli.kit import child_environment

import penstock
from penstock.client.wire.credentials import FILE_VARIABLE, REGISTRY_VARIABLE, VARIABLE
from penstock.core.errors import Forbidden, InvalidRequest, Unauthorized
from penstock.core.names import TopicName
from penstock.server.security.offline_keys import ask
from penstock.spark.files.location import Location
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.publisher import connect
from penstock.spark.source.progress import ProgressReporter
from penstock.testing import RunningBroker

ORDERS = TopicName.parse("orders")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, FILE_VARIABLE, REGISTRY_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    data = tmp_path_factory.mktemp("guarded") / "data"
    wanted = {"root": ["admin"], "reader": ["consumer@topic:orders", "viewer@subject:*"], "stranger": []}
    made = {
        name: ask(data, "system.key.create", {"name": name, "bindings": each})["key"] for name, each in wanted.items()
    }
    return {"data": data} | made


@pytest.fixture(scope="module")
def broker(keys: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    environment = child_environment(tmp_path_factory)
    with RunningBroker("--auth", "on", "--http-port", "0", data=keys["data"], environment=environment) as running:
        with penstock.connect(running.url, token=keys["root"]) as client:
            client.publish("orders", b"1")
            client.publish("secrets", b"1")
        yield running


@pytest.fixture
def token_file(keys: dict[str, Any], tmp_path: Path) -> Path:
    file = tmp_path / "reader.key"
    file.write_text(keys["reader"])
    return file


def test_logs_are_read_by_whoever_may_consume_them(broker: RunningBroker, token_file: Path) -> None:
    location = Location.parse(url=broker.http_url, storage_options={"token_file": str(token_file)})
    data = location.open()
    assert [topic.name for topic in data.topics()] == [ORDERS]
    assert data.topic(ORDERS).partition(0).view.next_offset == 1
    assert str(token_file) not in repr(location)


def test_the_environment_says_who_asks(
    broker: RunningBroker, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, keys["reader"])
    assert [topic.name for topic in Location.parse(url=broker.http_url).open().topics()] == [ORDERS]


def test_who_is_nobody_or_somebody_else_reads_nothing(
    broker: RunningBroker, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unauthorized, match="PENSTOCK_TOKEN"):
        Location.parse(url=broker.http_url).open()
    monkeypatch.setenv(VARIABLE, keys["stranger"])
    assert Location.parse(url=broker.http_url).open().topics() == []


def test_a_token_itself_is_no_option(broker: RunningBroker, keys: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"storage\.token is no option") as refused:
        Location.parse(url=broker.http_url, storage_options={"token": keys["reader"]})
    assert keys["reader"] not in refused.value.message
    with pytest.raises(InvalidRequest):
        SinkOptions.parse({"broker": broker.url, "topic": "orders", "token": "x"})


def test_schemas_are_read_as_who_reads_the_log(broker: RunningBroker, token_file: Path) -> None:
    location = Location.parse(url=broker.http_url, storage_options={"token_file": str(token_file)})
    assert RegistryLocation(location).open().versions("orders") == []
    with pytest.raises(Unauthorized):
        RegistryLocation(Location.parse(url=broker.http_url)).open().versions("orders")


def test_the_sink_and_the_reports_of_a_stream_say_who_they_are(broker: RunningBroker, token_file: Path) -> None:
    options = SinkOptions.parse({"broker": broker.url, "topic": "orders", "tokenFile": str(token_file)})
    with connect(options) as client, pytest.raises(Forbidden, match=r"topic\.publish"):
        client.publish("orders", b"2")
    progress = ProgressReporter(broker.url, "spark", tls={"token_file": str(token_file)})
    try:
        assert progress._connection().ask("system.topic.describe", {"topic": "orders"})["topic"] == "/default/orders"
    finally:
        progress._disconnect()


def test_anothers_registry_is_not_shown_the_brokers_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("authorization"))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv(VARIABLE, "for-the-broker-alone")
        RegistryLocation(Location.parse(path=str(tmp_path)), url).open().versions("orders")
        monkeypatch.setenv(REGISTRY_VARIABLE, "for-the-registry")
        RegistryLocation(Location.parse(path=str(tmp_path)), f"{url}/").open().versions("orders")
        server.shutdown()
    assert seen == [None, "Bearer for-the-registry"]
