"""Fixtures: a broker with authentication for all tests of this folder, which trusts the keys of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.cli.kit import child_environment
from tests.server.http_kit import Client
from tests.server.kit import Link, TcpClient, WsClient
from tests.server.security.token_kit import Files, hs256

from penstock.testing import RunningBroker


@dataclass(frozen=True)
class Guarded:
    running: RunningBroker
    files: Files

    def tcp(self) -> Link:
        return TcpClient(self.running.ready["tcp_port"])

    def ws(self, token: str | None = None) -> WsClient:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return WsClient(self.running.ready["ws_port"], headers=headers)

    def http(self) -> Client:
        return Client(self.running.ready["http_port"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    files = Files.make(tmp_path_factory.mktemp("trust"))
    environment = child_environment(tmp_path_factory)
    with RunningBroker("--http-port", "0", *files.flags, environment=environment) as running:
        found = Guarded(running, files)
        with found.http() as http:
            admin = f"Bearer {hs256(sub='setup', penstock=['admin'])}"
            made = http.ask("POST", "/v1/topics", {"topic": "orders"}, Authorization=admin)
            assert made.status == 201, made.body
            assert http.ask("POST", "/api/events?topic=orders&type=t", b"x", Authorization=admin).status == 200
        yield found
        assert "unhandled error" not in running.log
        assert "Traceback" not in running.log
