"""Streams of events whose reader loses its permission: it gets the reason, and its connection is closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.cli.kit import child_environment
from tests.server.events.sse import Reader
from tests.server.http_kit import Client
from tests.server.security.token_kit import Files, hs256

from penstock.testing import RunningBroker

FORMS = ("text/event-stream", "application/x-ndjson")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    files = Files.make(tmp_path_factory.mktemp("trust"))
    environment = child_environment(tmp_path_factory)
    with RunningBroker("--http-port", "0", *files.flags, environment=environment) as running:
        yield int(running.ready["http_port"])


@pytest.fixture
def admin(port: int) -> Iterator[Admin]:
    with Client(port) as client:
        yield Admin(client)


class Admin:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._as = f"Bearer {hs256(sub='root', penstock=['admin'])}"

    def key(self, name: str) -> str:
        asked = {"name": name, "bindings": ["consumer", "publisher", "operator"]}
        made = self._client.ask("POST", "/v1/keys", asked, Authorization=self._as)
        assert made.status < 300, made.body
        return str(made.json["key"])

    def revoke(self, name: str) -> None:
        assert self._client.ask("DELETE", f"/v1/keys/{name}", Authorization=self._as).status == 200

    def post(self, topic: str, body: bytes) -> None:
        assert self._client.ask("POST", f"/api/events?type=t&topic={topic}", body, Authorization=self._as).status == 200


@contextmanager
def streams(port: int, topic: str, key: str) -> Iterator[list[Reader]]:
    with ExitStack() as opened:
        found = [
            opened.enter_context(Reader(port, f"/api/events?topic={topic}", X_API_Key=key, Accept=accept))
            for accept in FORMS
        ]
        assert [each.status for each in found] == [200, 200]
        yield found


def test_a_stream_is_told_and_its_connection_closed_when_the_key_is_revoked(port: int, admin: Admin) -> None:
    with streams(port, "orders", admin.key("reader")) as readers:
        admin.revoke("reader")
        for reader in readers:
            assert b"UNAUTHORIZED" in b"".join(reader.bodies())
            assert reader.connection.recv(1) == b"", "the connection ends too"


def test_so_is_a_stream_whose_reader_takes_nothing(port: int, admin: Admin) -> None:
    for _ in range(16):
        admin.post("large", b"x" * 1_000_000)
    key = admin.key("sleeper")
    with streams(port, "large&from=earliest", key) as readers:
        admin.revoke("sleeper")
        for reader in readers:
            assert sum(map(len, reader.bodies())) < 16_000_000, "it is cut off in the middle"
