"""A real broker with HTTP, and what is asked of its admin API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.server.http_kit import Answer, Client

import penstock
from penstock.testing import RunningBroker


@dataclass
class Admin:
    """A connection to the admin API of a broker."""

    broker: RunningBroker
    http: Client

    @property
    def port(self) -> int:
        return int(self.broker.ready["http_port"])

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Answer:
        given = f"?{urlencode(query)}" if query else ""
        return self.http.ask(method, f"/v1{path}{given}", body)

    def get(self, path: str, **query: Any) -> Any:
        return right(self.ask("GET", path, **query))

    def post(self, path: str, body: Any = None) -> Any:
        return right(self.ask("POST", path, {} if body is None else body))

    def delete(self, path: str, **query: Any) -> Any:
        return right(self.ask("DELETE", path, **query))

    def client(self) -> penstock.Client:
        return penstock.connect(self.broker.url)


def right(answer: Answer) -> Any:
    """Return the answer of a request that must succeed."""
    assert answer.status in (200, 201), (answer.status, answer.body)
    return answer.json


def wrong(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """The error, which has the one shape that all have."""
    assert answer.status == status, (answer.status, answer.body)
    error: dict[str, Any] = answer.json["error"]
    assert set(error) <= {"code", "message", "timestamp", "details"}
    assert error["code"] == code, error
    return error


def topic(name: str) -> str:
    """Return a topic's name as it stands in a path."""
    return quote(name, safe="")


@contextmanager
def admin_of(*arguments: str, data: Path | None = None) -> Iterator[Admin]:
    with RunningBroker("--http-port", "0", *arguments, data=data) as broker:
        with Client(broker.ready["http_port"]) as http:
            yield Admin(broker, http)
        assert "unhandled error" not in broker.log
        assert "Traceback" not in broker.log
