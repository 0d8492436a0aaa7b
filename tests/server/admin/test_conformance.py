"""A real broker held to the description that it publishes of itself, with authentication and without.

The registry's rows are held to it elsewhere, without a broker; streams are asked for as far as there is something.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from tests.server.admin.kit import Admin, admin_of

from penstock.server.api.routing import PUBLIC, Route
from penstock.server.registry.routes import ROUTES as REGISTRY
from penstock.server.routes import ROUTE_TABLE

pytestmark = pytest.mark.slow  # a real broker, and hundreds of requests

STREAM: Final = ("GET", "/api/events")
ROUTES: Final = [row for row in ROUTE_TABLE.routes if row not in REGISTRY]
EXAMPLES: Final = 8


@contextmanager
def filled(admin: Admin, headers: dict[str, str]) -> Iterator[requests.Session]:
    """Start a broker that holds data under the names that are tried first."""
    with requests.Session() as session:
        session.headers.update(headers)
        base = f"http://localhost:{admin.port}/v1"
        for name in ("a", "0", "A"):
            session.post(f"{base}/topics", json={"topic": name, "partitions": 2})
            session.post(f"{base}/topics/{name}/messages", json={"payload": "hello", "type": "0", "key": "0"})
            session.post(f"{base}/topics/{name}/subscriptions", json={"subscription": "0", "from": "earliest"})
        yield session


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with admin_of() as found:
        yield found


@pytest.fixture(scope="module")
def session(admin: Admin) -> Iterator[requests.Session]:
    with filled(admin, {}) as opened:
        yield opened


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Admin, requests.Session]]:
    """Start a broker with authentication, and a client with all permissions."""
    data: Path = tmp_path_factory.mktemp("locked") / "data"
    made = [sys.executable, "-m", "penstock", "key", "create", "root", "--role", "admin", "--data", str(data)]
    key = subprocess.run(made, check=True, capture_output=True, text=True).stdout.strip()
    with admin_of("--auth", "on", data=data) as found, filled(found, {"Authorization": f"Bearer {key}"}) as opened:
        yield found, opened


@pytest.fixture(scope="module")
def described(admin: Admin) -> Any:
    """Load the description with schemathesis; imported here, since that alone takes seconds."""
    import schemathesis

    return schemathesis.openapi.from_dict(admin.http.ask("GET", "/openapi.json").json)


def held(row: Route, described: Any, base_url: str, session: requests.Session, examples: int) -> None:
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    kept_to = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]

    def play(case: Any) -> None:
        if (row.method, row.path) == STREAM:
            case.query = {**(case.query or {}), "follow": "false"}
        case.call_and_validate(base_url=base_url, session=session, checks=kept_to)

    operation = described[row.path][row.method]
    played = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    for mode in GenerationMode:
        if mode is GenerationMode.POSITIVE or row.query or row.body or "{" in row.path:
            with suppress(Unsatisfiable):  # some parameters cannot be wrong
                played(given(case=operation.as_strategy(generation_mode=mode))(play))()


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_it_keeps_to_its_description_and_nothing_makes_it_fail(
    row: Route, described: Any, admin: Admin, session: requests.Session
) -> None:
    held(row, described, f"http://localhost:{admin.port}", session, EXAMPLES)


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_with_authentication_it_keeps_to_it_for_those_who_may(
    row: Route, described: Any, locked: tuple[Admin, requests.Session]
) -> None:
    admin, session = locked
    held(row, described, f"http://localhost:{admin.port}", session, EXAMPLES // 4)


def test_with_authentication_an_anonymous_client_learns_nothing(locked: tuple[Admin, requests.Session]) -> None:
    """Every row of every room: who has not said who it is gets 401, and what is public is what says so."""
    admin, _ = locked
    told = []
    for row in ROUTE_TABLE.routes:
        path = row.path.replace("{version}", "1").replace("{id}", "1")
        for name in ("topic", "subject", "namespace", "log", "file", "message", "subscription", "connection", "key"):
            path = path.replace(f"{{{name}}}", "a")
        answer = admin.http.ask(row.method, path, {} if row.body is not None else None)
        if answer.status != 401:
            told.append((row.method, row.path))
        else:
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert told == [(row.method, row.path) for row in ROUTE_TABLE.routes if row.permission == PUBLIC]
