"""The front door: what it says to programs and to people, and that its pages bring nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.server.http_kit import Answer, Client
from tests.server.registry.kit import RegistryServer, serve_registry

from penstock import __version__
from penstock.server.api.openapi import described, operation_id
from penstock.server.routes import ROUTE_TABLE

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with serve_registry(tmp_path_factory.mktemp("registry")) as serving:
        yield serving


@pytest.fixture
def client(server: RegistryServer) -> Iterator[Client]:
    with Client(int(server.url.rpartition(":")[2])) as opened:
        yield opened


class Page(HTMLParser):
    """The elements of a page, and where it leads."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(answer.body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)


def test_a_program_is_told_what_this_is_and_where_to_go_on(client: Client) -> None:
    answer = client.ask("GET", "/")
    assert answer.media == "application/json"
    assert (answer.json["name"], answer.json["version"]) == ("penstock", __version__)
    assert answer.json["links"] == {
        "docs": "/docs",
        "openapi": "/openapi.json",
        "livez": "/livez",
        "readyz": "/readyz",
        "metrics": "/metrics",
    }
    assert all(ROUTE_TABLE.find("GET", path) for path in answer.json["links"].values())


def test_a_client_of_registries_is_told_it_in_what_it_speaks(client: Client) -> None:
    answer = client.ask("GET", "/", Accept="application/vnd.schemaregistry.v1+json")
    assert answer.media == "application/vnd.schemaregistry.v1+json"
    assert answer.json["name"] == "penstock"


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_has_no_scripts_and_brings_nothing_from_elsewhere(client: Client, path: str) -> None:
    answer = client.ask("GET", path, Accept=BROWSER)
    assert answer.status == 200
    assert answer.media == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    page = Page(answer)
    assert {"script", "img", "link", "iframe", "form"}.isdisjoint(page.elements)
    assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in page.links)
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)


def test_the_page_has_every_operation_once(client: Client) -> None:
    answer = client.ask("GET", "/docs")
    page = Page(answer)
    for row in ROUTE_TABLE.routes:
        assert page.ids.count(operation_id(row)) == 1
        assert f"<code>{row.method.value} {row.path}</code>" in answer.body.decode()


def test_every_operation_has_a_tag_that_is_described_and_a_summary(client: Client) -> None:
    document = client.ask("GET", "/openapi.json").json
    assert document == described(ROUTE_TABLE)
    assert document["servers"] == [{"url": "/", "description": "the broker that answers this"}]
    known = {each["name"] for each in document["tags"]}
    assert all(each["description"] for each in document["tags"])
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert {tag for each in operations for tag in each["tags"]} == known
    assert all(len(each["tags"]) == 1 and each["summary"] for each in operations)


def test_the_documentation_names_all_of_it() -> None:
    text = (Path(__file__).parents[3] / "docs" / "http.md").read_text()
    assert re.search(r"`/docs`", text)
    assert re.search(r"`/openapi\.json`", text)
