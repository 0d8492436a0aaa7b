"""Client certificates: each is a principal, on every surface, with the permissions granted to its name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.kit import child_environment
from tests.server.http_kit import Client
from tests.server.kit import ID, Link, TcpClient, WsClient, eventually
from tests.server.tls_kit import Authority

from penstock.core.errors import InvalidRequest
from penstock.server.security.offline_keys import ask
from penstock.server.settings import load
from penstock.testing import RunningBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("ca"), "authority")


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = tmp_path_factory.mktemp("guarded") / "data"
    ask(data, "system.key.create", {"name": "root", "bindings": ["admin"]})
    ask(data, "system.access.grant", {"principal": "certificate:viewer.example", "binding": "viewer"})
    own = authority.issue("server")
    files = ["--tls-cert", str(own.cert), "--tls-key", str(own.key), "--tls-ca", str(authority.pair.cert)]
    environment = child_environment(tmp_path_factory)
    with RunningBroker("--auth", "on", "--http-port", "0", *files, data=data, environment=environment) as running:
        yield running
        assert "unhandled error" not in running.log


def code(link: Link, topic: str) -> str:
    return link.ask(f"request:{topic}:1.0.0:{ID}", b'{"topic": "orders"}').error or "OK"


@pytest.mark.parametrize("kind", [TcpClient, WsClient])
def test_a_certificate_may_what_its_name_was_granted(
    broker: RunningBroker, authority: Authority, kind: type[TcpClient | WsClient]
) -> None:
    port = broker.ready["tcp_port" if kind is TcpClient else "ws_port"]
    with kind(port, tls=authority.client(authority.issue("viewer.example"))) as viewer:
        assert code(viewer, "system.metrics") == "OK"
        assert code(viewer, "system.topic.create") == "FORBIDDEN"
    with kind(port, tls=authority.client(authority.issue("stranger"))) as stranger:
        assert code(stranger, "system.metrics") == "FORBIDDEN"


def test_over_http_too(broker: RunningBroker, authority: Authority) -> None:
    port = broker.ready["http_port"]
    with Client(port, authority.client(authority.issue("viewer.example"))) as http:
        assert http.ask("GET", "/metrics").status == 200
        assert http.ask("GET", "/v1/keys").status == 403
        assert http.ask("GET", "/metrics", Authorization="Bearer nothing").status == 401


def test_a_key_says_more_than_a_certificate(broker: RunningBroker, authority: Authority) -> None:
    key = ask(broker.data, "system.key.create", {"name": "boss", "bindings": ["admin"]})["key"]
    with Client(broker.ready["http_port"], authority.client(authority.issue("stranger"))) as http:
        eventually(lambda: http.ask("GET", "/v1/keys", X_API_Key=key).status == 200, "the broker has heard of the key")
    with TcpClient(broker.ready["tcp_port"], tls=authority.client(authority.issue("stranger"))) as link:
        answer = link.ask(f"request:system.client.authenticate:1.0.0:{ID}", json.dumps({"token": key}).encode())
        assert answer.json["principal"] == "key:boss"
        assert code(link, "system.topic.create") == "OK"


# what the settings allow


def test_other_machines_may_come_where_they_say_who_they_are(authority: Authority) -> None:
    files = {"tls_cert": authority.pair.cert, "tls_key": authority.pair.key}
    assert load(None, {}, {"host": "0.0.0.0", "auth": "on"} | files).requires_authentication
    with pytest.raises(InvalidRequest, match="--auth on"):
        load(None, {}, {"host": "0.0.0.0"} | files)
    with pytest.raises(InvalidRequest, match="TLS"):
        load(None, {}, {"host": "0.0.0.0", "auth": "on"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"auth": "maybe"}, "expected one of off, on"),
        ({"jwt_issuer": "x"}, "--auth on"),
        ({"auth": "on", "jwt_issuer": "x"}, "--jwt-audience"),
        ({"auth": "on", "jwt_issuer": "x", "jwt_audience": "y"}, "--jwt-jwks-file"),
        ({"auth": "on", "jwt_jwks_file": "x"}, "--jwt-issuer"),
    ],
)
def test_half_a_setting_is_none(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        load(None, {}, given)


def test_authentication_can_be_given_in_the_file_and_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[auth]\nmode = "on"\njwt_issuer = "i"\njwt_audience = "a"\njwt_jwks_file = "k"\n')
    variables = {"PENSTOCK_AUTH": "on", "PENSTOCK_JWT_ISSUER": "i", "PENSTOCK_JWT_AUDIENCE": "a"}
    by_variable = load(None, variables | {"PENSTOCK_JWT_JWKS_FILE": "k"})
    assert load(file, {}) == by_variable
    assert by_variable.token_files is not None
    assert (by_variable.requires_authentication, by_variable.token_files.jwks) == (True, Path("k"))


def test_a_token_in_the_environment_is_no_setting() -> None:
    assert not load(None, {"PENSTOCK_TOKEN": "x", "PENSTOCK_TOKEN_FILE": "y"}).requires_authentication
