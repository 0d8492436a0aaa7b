"""The audit trail of a broker without authentication: each change, what is known of its client, and how it ended."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.cli.kit import child_environment
from tests.server.http_kit import DEADLINE_SECONDS, Client
from tests.server.kit import TcpClient

from penstock.testing import RunningBroker

ONE = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
OTHER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]})
UNREAD = (
    ("the server", "POST /v1/access/grant"),
    ("the server", "POST /v1/topics"),
    ("topic /default/unread", "PATCH /v1/topics/{topic}"),
    ("topic /default/unread", "DELETE /v1/topics/{topic}"),
    ("the server", "DELETE /v1/topics/{topic}"),
    ("subject unread-value", "POST /subjects/{subject}/versions"),
    ("the server", "system.topic.create"),
    ("the server", "system.topic.delete"),
    ("the server", "system.schema.register"),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as opened:
        yield opened
        assert "unhandled error" not in opened.log


@pytest.fixture
def http(running: RunningBroker) -> Iterator[Client]:
    with Client(int(running.ready["http_port"])) as client:
        yield client


@pytest.fixture
def tcp(running: RunningBroker) -> Iterator[TcpClient]:
    with TcpClient(running.ready["tcp_port"]) as client:
        yield client


def say(tcp: TcpClient, topic: str, fields: dict[str, Any] | list[Any]) -> Any:
    """Return the answer of a system topic."""
    return tcp.ask(f"request:{topic}:1.0.0:{uuid.uuid4()}", json.dumps(fields).encode()).json


def lines(
    running: RunningBroker, about: str, count: int, meant: Callable[[dict[str, Any]], object] = bool
) -> list[dict[str, Any]]:
    """Wait for so many entries of a resource, and return them: they are written once a second."""
    file, deadline = running.data / "audit.jsonl", time.monotonic() + DEADLINE_SECONDS
    while True:
        every = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        found = [each for each in every if each["resource"] == about and meant(each)]
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, every
        time.sleep(0.05)


def test_a_registration_is_written_with_its_version_and_a_refused_one_as_refused(
    running: RunningBroker, http: Client
) -> None:
    path = "/subjects/orders-value/versions"
    made = http.ask("POST", path, {"schema": ONE})
    assert made.status == 200
    assert http.ask("POST", path, {"schema": OTHER}).status == 409
    assert http.ask("POST", path, {"schema": "{"}).status == 422
    done, *refused = lines(running, "subject orders-value", 3)
    assert done["outcome"] == "allowed"
    assert done["target"] == {"version": "1", "id": str(made.json["id"])}
    assert done["principal"] == "anonymous"
    assert done["surface"] == "http"
    assert done["address"].startswith("127.0.0.1:")
    assert [each["outcome"] for each in refused] == ["refused", "refused"]
    assert [each["reason"].split()[-1] for each in refused] == ["409", "42201"]
    assert "schema" not in json.dumps(refused).replace("schema.write", "").replace("SCHEMA_REJECTED", "")


def test_so_is_one_over_tcp_with_the_name_of_the_service(running: RunningBroker, tcp: TcpClient) -> None:
    say(tcp, "system.service.register", {"name": "billing", "description": "bills"})
    asked = {"subject": "bills-value", "schema": ONE}
    made = say(tcp, "system.schema.register", asked)
    assert "error" in say(tcp, "system.schema.register", asked | {"schema": OTHER})
    done, refused = lines(running, "subject bills-value", 2)
    assert (done["outcome"], refused["outcome"]) == ("allowed", "refused")
    assert done["target"] == {"version": "1", "id": str(made["id"])}
    assert done["service"] == "billing"
    assert done["surface"] == "tcp"
    assert done["address"].startswith("127.0.0.1:")
    assert "409" in refused["reason"]


def test_topics_are_written_however_they_come_to_be(running: RunningBroker, http: Client, tcp: TcpClient) -> None:
    assert http.ask("POST", "/v1/topics", {"topic": "made"}).status == 201
    assert http.ask("POST", "/v1/topics", {"topic": "made"}).status == 422
    assert [each["outcome"] for each in lines(running, "topic /default/made", 2)] == ["allowed", "refused"]
    assert http.ask("POST", "/api/events?topic=posted&type=t", b"x").status == 200
    (posted,) = lines(running, "topic /default/posted", 1)
    assert (posted["operation"], posted["outcome"]) == ("topic.create", "allowed")
    tcp.send("publish:published:1.0.0", b"x")
    (published,) = lines(running, "topic /default/published", 1)
    assert (published["operation"], published["surface"]) == ("topic.create", "tcp")
    say(tcp, "system.topic.create", {"topic": "asked"})
    say(tcp, "system.topic.alter", {"topic": "asked", "retention_ms": 1})
    say(tcp, "system.topic.delete", {"topic": "asked"})
    assert [each["operation"] for each in lines(running, "topic /default/asked", 3)] == [
        "topic.create",
        "topic.alter",
        "topic.delete",
    ]
    assert "error" in say(tcp, "system.topic.delete", {"topic": "nowhere"})
    (missing,) = lines(running, "topic /default/nowhere", 1)
    assert missing["outcome"] == "refused"


def test_keys_and_bindings_are_written_without_their_secrets(
    running: RunningBroker, http: Client, tcp: TcpClient
) -> None:
    made = http.ask("POST", "/v1/keys", {"name": "shop", "bindings": ["viewer"]})
    asked = say(tcp, "system.key.create", {"name": "till"})
    assert (made.status, asked["name"]) == (201, "till")
    assert http.ask("DELETE", "/v1/keys/none").status == 422
    assert http.ask("DELETE", f"/v1/keys/{made.json['key_id']}").status == 200
    granted = {"principal": "key:till", "binding": ["publisher@topic:orders"]}
    assert http.ask("POST", "/v1/access/grant", granted).status == 200
    say(tcp, "system.access.revoke", granted)
    found = lines(running, "the server", 6, lambda each: "target" in each)
    assert [(each["action"], each["outcome"], each["target"]) for each in found] == [
        ("POST /v1/keys", "allowed", {"name": "shop", "bindings": ["viewer"]}),
        ("system.key.create", "allowed", {"name": "till"}),
        ("DELETE /v1/keys/{key}", "refused", {"key": "none"}),
        ("DELETE /v1/keys/{key}", "allowed", {"key": made.json["key_id"]}),
        ("POST /v1/access/grant", "allowed", granted),
        ("system.access.revoke", "allowed", granted),
    ]
    assert {each["principal"] for each in found} == {"anonymous"}
    text = (running.data / "audit.jsonl").read_text()
    assert made.json["key"] not in text
    assert asked["key"] not in text


def test_a_change_that_could_not_be_read_is_written_as_refused(
    running: RunningBroker, http: Client, tcp: TcpClient
) -> None:
    grant = {"principal": "key:a", "binding": ["viewer"], "more": "psk_hidden"}
    assert http.ask("POST", "/v1/access/grant", grant).status == 422
    assert http.ask("POST", "/v1/topics", {"topic": "a b"}).status == 422
    assert http.ask("PATCH", "/v1/topics/unread", {"more": 1}).status == 422
    assert http.ask("DELETE", "/v1/topics/unread?more=1").status == 422
    assert http.ask("DELETE", "/v1/topics/a%20b").status == 422
    assert http.ask("POST", "/subjects/unread-value/versions", b'{"schema": "').status == 400
    assert "error" in say(tcp, "system.topic.create", {"topic": "a b"})
    assert "error" in say(tcp, "system.topic.delete", [])
    assert "error" in tcp.ask(f"request:system.schema.register:1.0.0:{uuid.uuid4()}", b'{"subject": "').json
    for resource, action in UNREAD:
        (found,) = lines(running, resource, 1, partial(_is_unread, action))
        assert (found["outcome"], bool(found["reason"])) == ("refused", True)
    assert "hidden" not in (running.data / "audit.jsonl").read_text()


def _is_unread(action: str, line: dict[str, Any]) -> bool:
    return line["action"] == action and "target" not in line


def test_what_is_only_looked_at_is_not_written(running: RunningBroker, http: Client, tcp: TcpClient) -> None:
    say(tcp, "system.topic.catalog", {})
    assert http.ask("GET", "/v1/topics").status == 200
    assert http.ask("POST", "/v1/topics", {"topic": "last"}).status == 201
    lines(running, "topic /default/last", 1)
    text = (running.data / "audit.jsonl").read_text()
    assert "system.topic.catalog" not in text
    assert "GET /v1/topics" not in text
