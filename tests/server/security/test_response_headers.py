"""Response headers: every answer restricts browsers, and only allowed pages may ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.server.http_kit import Client, Serving

from penstock.server.security.response_headers import SECURE

PAGE = "http://localhost:3000"
ELSEWHERE = "https://evil.example"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    own = {"content-security-policy": "default-src 'self'"} if scope["path"] == "/page" else {}
    await Response(b"{}", 200, own, media_type="application/json")(scope, receive, send)


@pytest.fixture(scope="module")
def http() -> Iterator[Client]:
    with Serving(app) as serving, Client(serving.port) as client:
        yield client


@pytest.mark.parametrize("headers", [{}, {"Origin": PAGE}, {"Origin": ELSEWHERE}, {"Host": "evil.example"}])
def test_every_answer_tells_browsers_to_do_nothing_with_it(http: Client, headers: dict[str, str]) -> None:
    answer = http.ask("GET", "/", **headers)
    for name, value in SECURE:
        assert answer.headers[name.decode()] == value.decode()
    assert "server" not in answer.headers


def test_what_an_answer_says_itself_stays(http: Client) -> None:
    answer = http.ask("GET", "/page")
    assert answer.headers["content-security-policy"] == "default-src 'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_page_that_may_ask_may_read_the_answer_and_is_asked_about_before(http: Client) -> None:
    answer = http.ask("GET", "/", Origin=PAGE)
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-credentials" not in answer.headers
    wanted = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization, x-attr-trace"}
    before = http.ask("OPTIONS", "/", Origin=PAGE, **wanted)
    assert before.status == 204
    assert before.headers["access-control-allow-origin"] == PAGE
    assert before.headers["access-control-allow-headers"] == "authorization, x-attr-trace"
    assert "DELETE" in before.headers["access-control-allow-methods"]
    assert before.headers["vary"] == "Origin"


@pytest.mark.parametrize("asked", ["a\x7f", "x" * 2000, "a,,b", "a: b", "<script>"])
def test_names_of_headers_that_are_none_are_not_repeated(http: Client, asked: str) -> None:
    wanted = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": asked}
    answer = http.ask("OPTIONS", "/", Origin=PAGE, **wanted)
    assert answer.headers["access-control-allow-headers"] == "authorization, content-type, x-api-key"


def test_other_pages_may_neither_ask_nor_read(http: Client) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        answer = http.ask(method, "/", Origin=ELSEWHERE, Access_Control_Request_Method="GET")
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers


def test_programs_are_not_pages(http: Client) -> None:
    answer = http.ask("GET", "/")
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers
