"""The description that the server publishes of itself, and the server held to it by one that reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import jsonschema_rs
import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from tests.server.registry.kit import RegistryServer, record, serve_registry

from penstock.core.names import TopicName
from penstock.server.api.errors import REGISTRY_MEDIA as MEDIA
from penstock.server.api.routing import Route
from penstock.server.registry.routes import ROUTES
from penstock.server.routes import ROUTE_TABLE
from penstock.storage.catalog.topics import TopicSettings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """Start a server that holds data under the names that are tried first."""
    with serve_registry(tmp_path_factory.mktemp("registry")) as serving:
        for number, subject in enumerate(("0", "a", "orders")):
            serving.post(f"/subjects/{subject}/versions", {"schema": record(f"x{number}:long")})
            serving.backend.topics[TopicName.parse(f"t{subject}")] = TopicSettings()
        yield serving


@pytest.fixture(scope="module")
def document(server: RegistryServer) -> Any:
    return server.get("/openapi.json")


def test_it_describes_every_row_and_nothing_else(document: Any) -> None:
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(row.method, row.path) for row in ROUTE_TABLE.routes}
    names = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]
    assert len(set(names)) == len(names) == len(ROUTE_TABLE.routes)


def test_every_schema_in_it_is_one_and_every_name_is_known(document: Any) -> None:
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    text = repr(document)
    used = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert used <= set(document["components"]["schemas"])


def test_whatever_is_in_a_path_is_described(document: Any) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


def test_bodies_and_answers_are_described_in_every_type(document: Any) -> None:
    register = document["paths"]["/subjects/{subject}/versions"]["post"]
    assert tuple(register["requestBody"]["content"]) == MEDIA
    assert tuple(register["responses"]["200"]["content"]) == MEDIA
    assert set(register["responses"]) == {"200", "409", "422", "default"}
    assert "42201" in register["responses"]["422"]["description"]


def test_it_is_plain_json_whatever_is_asked_for(server: RegistryServer) -> None:
    assert server.ask("GET", "/openapi.json", Accept=MEDIA[0]).media == "application/json"


@pytest.fixture(scope="module")
def described(document: Any) -> Any:
    """Load the description with schemathesis; imported here, since that alone takes seconds."""
    import schemathesis

    return schemathesis.openapi.from_dict(document)


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")  # the others need a broker
def test_it_keeps_to_its_description_and_nothing_makes_it_fail(
    row: Route, described: Any, server: RegistryServer, session: requests.Session
) -> None:
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
        case.call_and_validate(base_url=server.url, session=session, checks=kept_to)

    operation = described[row.path][row.method]
    played = settings(max_examples=12, suppress_health_check=list(HealthCheck))
    for mode in GenerationMode:
        if mode is GenerationMode.POSITIVE or row.query or row.body or "{" in row.path:
            with suppress(Unsatisfiable):  # some parameters cannot be wrong
                played(given(case=operation.as_strategy(generation_mode=mode))(play))()
