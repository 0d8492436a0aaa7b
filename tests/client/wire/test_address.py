from __future__ import annotations

import pytest

from penstock.client.wire.address import DEFAULT, VARIABLE, parse_url, tls_context
from penstock.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "host", "port", "secure"),
    [
        ("tcp://127.0.0.1:7450", "127.0.0.1", 7450, False),
        ("tls://broker.example:1", "broker.example", 1, True),
        ("tcp://[::1]:7450/", "::1", 7450, False),
        ("localhost:7450", "localhost", 7450, False),
    ],
)
def test_an_address_says_where_and_how(url: str, host: str, port: int, secure: bool) -> None:
    found = parse_url(url)
    assert (found.host, found.port, found.secure) == (host, port, secure)
    assert str(found).endswith(url.rstrip("/"))


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1", "http://a:1", "tcp://a", "tcp://:1", "tcp://a:x", "tcp://a:99999", "tcp://a:1/path", "tcp://["],
)
def test_anything_else_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InvalidRequest, match="tcp://host:port"):
        parse_url(url)


def test_without_one_the_environment_counts_and_then_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert str(parse_url(None)) == DEFAULT
    monkeypatch.setenv(VARIABLE, "tls://a:2")
    assert str(parse_url(None)) == "tls://a:2"


def test_certificates_that_cannot_be_read_are_named() -> None:
    with pytest.raises(InvalidRequest, match=r"/nowhere/ca\.pem"):
        tls_context("/nowhere/ca.pem", None, None)
