"""The same on every surface: who may what, which tokens are refused, and what ends when a key is revoked."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.broker.access.test_policy import ORACLE
from tests.server.http_kit import Answer, Client
from tests.server.http_kit import raw as answered
from tests.server.kit import ID, Link, eventually, upgrade
from tests.server.security.conftest import Guarded
from tests.server.security.token_kit import claims, ec_key, forged, hs256, jwk, raw, rsa_key, signed

from penstock.broker.access.policy import Operation
from penstock.broker.access.roles import ROLES
from penstock.server.routes import ROUTE_TABLE
from penstock.server.security.offline_keys import ask as ask_directory

REFUSED = ("UNAUTHORIZED", "FORBIDDEN")
OF_TOPICS = ("topic.", "service.", "subscription.")

WIRE: dict[str, tuple[str, dict[str, Any]]] = {
    "topic.publish": ("publish:orders", {}),
    "topic.consume": ("subscribe:orders", {"action": "publish"}),
    "topic.browse": ("request:system.message.browse", {"topic": "orders", "limit": 1}),
    "topic.describe": ("request:system.topic.describe", {"topic": "orders"}),
    "topic.create": ("request:system.topic.create", {"topic": "orders", "partitions": 0}),
    "topic.alter": ("request:system.topic.alter", {"topic": "orders"}),
    "topic.delete": ("request:system.topic.delete", {"topic": "orders", "confirm": "no"}),
    "subscription.manage": ("request:system.subscription.pause", {"topic": "orders", "subscription": "none"}),
    "service.request": ("request:orders", {}),
    "service.respond": ("subscribe:orders", {"action": "request"}),
    "schema.read": ("request:system.schema.versions", {"subject": "orders"}),
    "schema.write": ("request:system.schema.register", {"subject": "orders", "schema": "{"}),
    "schema.delete": ("request:system.schema.delete", {"subject": "orders"}),
    "server.view": ("request:system.metrics", {}),
    "server.manage": ("request:system.key.list", {}),
    "server.connect": ("request:system.service.register", {"name": "n", "description": "d"}),
    "public": ("request:system.heartbeat", {}),
}
"""A message for each operation that needs it, on the topic and the subject `orders`, and changes nothing."""

HTTP: dict[str, tuple[str, str, Any]] = {
    "topic.publish": ("POST", "/api/events?topic=orders&type=t", b"x"),
    "topic.consume": ("GET", "/api/events?topic=orders&follow=false&from=latest", None),
    "topic.browse": ("GET", "/v1/topics/orders/messages?limit=1", None),
    "topic.describe": ("GET", "/v1/topics/orders", None),
    "topic.create": ("POST", "/v1/topics", {"topic": "orders"}),
    "topic.alter": ("PATCH", "/v1/topics/orders", {}),
    "topic.delete": ("DELETE", "/v1/topics/orders?confirm=no", None),
    "subscription.manage": ("POST", "/v1/topics/orders/subscriptions/none/pause", None),
    "schema.read": ("GET", "/subjects/orders/versions", None),
    "schema.write": ("POST", "/subjects/orders/versions", {"schema": "{"}),
    "schema.delete": ("DELETE", "/subjects/orders", None),
    "server.view": ("GET", "/metrics", None),
    "server.manage": ("GET", "/v1/keys", None),
    "server.connect": ("GET", "/v1/topics", None),
    "public": ("GET", "/livez", None),
}
"""Services are not asked over HTTP."""


def principals() -> Iterator[tuple[list[str], dict[str, bool]]]:
    """Bindings, and what they allow of `orders`: from the table, not from the code."""
    always = {"server.connect", "public"}
    for role in ROLES:
        has = {operation for operation, each in ORACLE if each == role and ORACLE[operation, role]}
        topics = {each for each in has if each.startswith(OF_TOPICS)}
        subjects = {each for each in has if each.startswith("schema.")}
        for bindings, allowed in (
            ([role], has),
            ([f"{role}@topic:orders"], topics),
            ([f"{role}@namespace:default"], topics),
            ([f"{role}@subject:ord*"], subjects),
            ([f"{role}@topic:orders", f"{role}@subject:orders"], topics | subjects),
            ([f"{role}@topic:order", f"{role}@subject:Orders", f"{role}@namespace:other"], set()),
        ):
            yield bindings, {each: each in allowed | always for each in {operation for operation, _ in ORACLE}}
    yield [], {each: each in always for each in {operation for operation, _ in ORACLE}}


def authenticate(link: Link, token: str) -> str:
    answer = link.ask(f"request:system.client.authenticate:1.0.0:{ID}", json.dumps({"token": token}).encode())
    return answer.error or "OK"


def asked(link: Link, operation: str) -> str:
    """The code of the answer. What comes besides, such as a delivery, is not looked at."""
    head, fields = WIRE[operation]
    link.send(f"{head}:1.0.0:{ID}", json.dumps(fields).encode())
    while True:
        found = link.receive()
        if found.action == "response" and found.request_id == ID:
            return found.error


def test_the_probes_know_every_operation() -> None:
    assert WIRE.keys() == set(Operation)
    assert set(Operation) - HTTP.keys() == {"service.request", "service.respond"}


@pytest.mark.parametrize("surface", ["tcp", "ws"])
def test_every_operation_and_role_over_the_wire_is_as_the_table_says(guarded: Guarded, surface: str) -> None:
    for bindings, allowed in principals():
        with getattr(guarded, surface)() as link:
            assert authenticate(link, hs256(penstock=bindings)) == "OK"
            found = {operation: asked(link, operation) not in REFUSED for operation in WIRE}
        assert found == {operation: allowed[operation] for operation in WIRE}, bindings


def test_every_operation_and_role_over_http_is_as_the_table_says(guarded: Guarded) -> None:
    with guarded.http() as http:
        for bindings, allowed in principals():
            token = f"Bearer {hs256(penstock=bindings)}"
            answers = {each: http.ask(*HTTP[each], Authorization=token) for each in HTTP}
            found = {operation: answer.status not in (401, 403) for operation, answer in answers.items()}
            assert found == {operation: allowed[operation] for operation in HTTP}, bindings
            assert all(answer.status < 500 for answer in answers.values())


def test_a_schema_that_came_over_http_bears_the_name_of_the_credentials(guarded: Guarded) -> None:
    longest = "x" * 128
    asking = {"Authorization": f"Bearer {hs256(sub=longest, penstock=['admin'])}", "Accept": "application/json"}
    with guarded.http() as http:
        assert http.ask("POST", "/subjects/signed/versions", {"schema": '"int"'}, **asking).status == 200
        assert http.ask("GET", "/subjects/signed/versions/1", **asking).json["createdBy"] == f"jwt:{longest}"


def test_every_row_of_http_says_what_it_needs_and_little_is_public() -> None:
    assert all(isinstance(row.permission.operation, Operation) for row in ROUTE_TABLE.routes)
    public = {row.path for row in ROUTE_TABLE.routes if row.permission.operation is Operation.PUBLIC}
    static = {"/", "/docs", "/openapi.json", "/contexts", "/v1/metadata/id", "/v1/metadata/version"}
    static |= {"/schemas/types", "/v1/schemas/types"}
    assert public == static | {"/livez", "/readyz"}
    unchecked = {(row.method.value, row.path) for row in ROUTE_TABLE.routes if not row.permission.checked}
    assert not {path for method, path in unchecked if method != "GET"} - {"/v1/topics"}, "bodies are read for nobody"


def test_over_http_an_anonymous_client_learns_only_that_it_is_anonymous(guarded: Guarded) -> None:
    with guarded.http() as http:
        for row in ROUTE_TABLE.routes:
            if row.permission.operation is Operation.PUBLIC:
                continue
            path = re.sub("{[a-z]*}", "1", row.path)
            answer = http.ask(row.method.value, path, b"{}" if row.body is not None else None)
            assert answer.status == 401, (row.method, row.path, answer.body)
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_over_http_no_body_is_read_from_a_client_that_may_not_send_it(guarded: Guarded) -> None:
    """Send a body without permission: it must not use up the budget of bodies."""
    port = guarded.running.ready["http_port"]
    for bindings, status in (([], 403), (["publisher@topic:other"], 403), (["consumer@topic:orders"], 403)):
        head = f"POST /api/events?topic=orders&type=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: {16 << 20}\r\n"
        token = hs256(penstock=bindings)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
            link.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
            assert link.recv(12) == f"HTTP/1.1 {status}".encode()


def test_over_http_a_topic_is_checked_by_its_default_too(guarded: Guarded) -> None:
    with guarded.http() as http:
        for bindings, status in ((["publisher@topic:orders"], 403), (["admin@topic:events"], 200)):
            token = f"Bearer {hs256(penstock=bindings)}"
            assert http.ask("POST", "/api/events?type=t", b"x", Authorization=token).status == status
            twice = "/api/events?type=t&topic=events&topic=orders"
            assert http.ask("POST", twice, b"x", Authorization=token).status == status, "the first of several counts"


def test_nobody_sends_in_the_name_of_a_redrive(guarded: Guarded) -> None:
    for role in ("publisher", "admin"):
        with guarded.tcp() as link:
            authenticate(link, hs256(penstock=[f"{role}@topic:orders"]))
            fields = {"topic": "orders", "name": "redrive /default-dlq/orders 1", "access": "shared"}
            answer = link.ask(f"request:system.producer.register:1.0.0:{ID}", json.dumps(fields).encode())
            assert answer.error == "INVALID_REQUEST"


# attacks


@cache
def attacks() -> dict[str, str]:
    now = int(time.time())
    return {
        "none": raw({"alg": "none"}, claims(penstock=["admin"])),
        "a public key as a secret": forged(
            {"alg": "HS256", "kid": "r1"}, claims(penstock=["admin"]), json.dumps(jwk(rsa_key(), "r1")).encode()
        ),
        "another key": signed(rsa_key("other"), "r1", penstock=["admin"]),
        "a wrong kid": signed(ec_key(), "r1"),
        "expired": hs256(exp=now - 60),
        "not yet": hs256(nbf=now + 600),
        "another audience": hs256(aud="other"),
        "another issuer": hs256(iss="other"),
        "no expiry": hs256(exp=None),
        "oversized": hs256(more="x" * 9000),
        "no token": "x.y.z",
        "a key that is none": "psk_" + "a" * 13 + "_" + "a" * 52,
    }


ATTACKS = ["none", "a public key as a secret", "another key", "a wrong kid", "expired", "not yet", "another audience"]
ATTACKS += ["another issuer", "no expiry", "oversized", "no token", "a key that is none"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_token_that_is_not_good_is_refused_on_every_surface(guarded: Guarded, attack: str) -> None:
    token = attacks()[attack]
    with guarded.http() as http:
        for headers in ({"Authorization": f"Bearer {token}"}, {"X_API_Key": token}):
            answer = http.ask("GET", "/v1/topics", **headers)
            assert answer.status == 401
            assert token.encode() not in answer.body
    for link in (guarded.tcp(), guarded.ws()):
        with link:
            assert authenticate(link, token) == "UNAUTHORIZED"
            assert link.receive_until_end() == []
    with socket.create_connection(("127.0.0.1", guarded.running.ready["ws_port"]), timeout=20) as plain:
        plain.sendall(upgrade(guarded.running.ready["ws_port"], Authorization=f"Bearer {token}"))
        assert b" 401 " in plain.recv(200) or attack == "oversized"
    assert token not in guarded.running.log


def test_little_is_read_of_a_connection_until_it_says_who_it_is(guarded: Guarded) -> None:
    large = b"x" * 200_000
    with guarded.tcp() as nobody:
        assert nobody.ask(f"publish:orders:1.0.0:{ID}", large).error == "PAYLOAD_TOO_LARGE"
        assert nobody.receive_until_end() == []
    with guarded.tcp() as known:
        assert authenticate(known, hs256(penstock=["publisher"])) == "OK"
        assert known.ask(f"publish:orders:1.0.0:{ID}", large).error == ""


@pytest.mark.parametrize("given", ["Basic YTpi", "Bearer", "Bearer ", "bearer\t", "Negotiate x", "Digest", ""])
def test_a_scheme_that_is_not_ours_is_no_way_in(guarded: Guarded, given: str) -> None:
    with guarded.http() as http:
        assert http.ask("GET", "/v1/topics", Authorization=given).status == 401


def test_the_scheme_may_be_spelled_in_any_case(guarded: Guarded) -> None:
    with guarded.http() as http:
        assert http.ask("GET", "/v1/topics", Authorization=f"bEARER  {hs256()}").status == 200


# revoking


def made(http: Client, name: str, *bindings: str) -> dict[str, Any]:
    answer = http.ask("POST", "/v1/keys", {"name": name, "bindings": list(bindings)}, Authorization=boss())
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.json
    return found


def boss() -> str:
    return f"Bearer {hs256(sub='boss', penstock=['admin'])}"


def events(guarded: Guarded, key: str) -> socket.socket:
    """A stream of events that has begun."""
    connection = socket.create_connection(("127.0.0.1", guarded.running.ready["http_port"]), timeout=20)
    lines = ["GET /api/events?topic=orders&from=earliest HTTP/1.1", "Host: localhost", "Connection: close"]
    head = "\r\n".join([*lines, f"Authorization: Bearer {key}", "", ""])
    connection.sendall(head.encode())
    found = b""
    while b"data:" not in found:
        piece = connection.recv(65536)
        assert piece, found
        found += piece
    assert found.startswith(b"HTTP/1.1 200")
    return connection


def rest_of(connection: socket.socket) -> bytes:
    found = b""
    while piece := connection.recv(65536):
        found += piece
    return found


@pytest.mark.parametrize("how", ["http", "directory"])
def test_a_revoked_key_ends_what_is_open_on_every_surface(guarded: Guarded, how: str) -> None:
    with ExitStack() as stack:
        http = stack.enter_context(guarded.http())
        key = made(http, f"doomed-{how}", "consumer@topic:orders")
        kept = made(http, f"kept-{how}", "consumer@topic:orders")["key"]
        tcp, other = stack.enter_context(guarded.tcp()), stack.enter_context(guarded.tcp())
        ws, stream = stack.enter_context(guarded.ws(key["key"])), stack.enter_context(events(guarded, key["key"]))
        assert authenticate(tcp, key["key"]) == authenticate(other, kept) == "OK"
        for link in (tcp, ws, other):
            link.subscribe("orders")
        if how == "http":
            assert http.ask("DELETE", f"/v1/keys/{key['key_id']}", Authorization=boss()).json["revoked"] == [
                key["key_id"]
            ]
        else:
            ask_directory(guarded.running.data, "system.key.revoke", {"key": key["key_id"]})
        for link in (tcp, ws):
            last = link.receive_until_end()
            assert [each.error for each in last] == ["UNAUTHORIZED"]
        said = f"after {how} revoked it".encode()
        http.ask("POST", "/api/events?topic=orders&type=t", said, Authorization=boss())
        assert said not in rest_of(stream)
        assert http.ask("GET", "/v1/topics", Authorization=f"Bearer {key['key']}").status == 401
        assert other.receive().payload == said


def test_a_stream_of_events_ends_when_its_binding_is_taken(guarded: Guarded) -> None:
    with guarded.http() as http:
        key = made(http, "bound", "consumer@topic:orders")
        with events(guarded, key["key"]) as stream:
            withdrawn = {"principal": "key:bound", "binding": "consumer@topic:orders"}
            assert http.ask("POST", "/v1/access/revoke", withdrawn, Authorization=boss()).status == 200
            rest_of(stream)


def test_an_issuers_key_that_is_trusted_no_more_ends_what_came_with_it(guarded: Guarded) -> None:
    guarded.files.publish(jwk(rsa_key(), "r1"), jwk(ec_key(), "e1"), jwk(ec_key("leaked"), "e2"))

    def known() -> bool:
        with guarded.http() as http:
            return http.ask("GET", "/v1/topics", Authorization=f"Bearer {signed(ec_key('leaked'), 'e2')}").status == 200

    eventually(known, "the new key is trusted")
    with guarded.tcp() as doomed, guarded.tcp() as other:
        assert authenticate(doomed, signed(ec_key("leaked"), "e2")) == "OK"
        assert authenticate(other, signed(ec_key(), "e1")) == "OK"
        guarded.files.publish(jwk(rsa_key(), "r1"), jwk(ec_key(), "e1"))
        assert [each.error for each in doomed.receive_until_end()] == ["UNAUTHORIZED"]
        assert other.answers()


# what is left behind


def audited(guarded: Guarded) -> list[dict[str, Any]]:
    """The lines that are whole: another may be about to be written."""
    found = guarded.running.data / "audit.jsonl"
    return [json.loads(line) for line in found.read_text().rpartition("\n")[0].splitlines()] if found.exists() else []


def test_what_was_administered_and_what_was_refused_is_in_the_audit_log(guarded: Guarded) -> None:
    """Refusals are repeated until they are noted: of a second in which other tests had a hundred, no more are."""
    with guarded.http() as http:
        assert http.ask("POST", "/v1/topics", {"topic": "audited"}, Authorization=boss()).status == 201

    def be_refused() -> bool:
        with guarded.http() as http, guarded.tcp() as tcp:
            assert http.ask("GET", "/v1/keys", Authorization=f"Bearer {hs256(sub='curious')}").status == 403
            assert authenticate(tcp, hs256(sub="nosy")) == "OK"
            assert asked(tcp, "topic.delete") == "FORBIDDEN"
        return True

    def lines(principal: str) -> list[tuple[str, str, str, str]]:
        fields = ("operation", "resource", "outcome", "surface")
        return [tuple(each[name] for name in fields) for each in audited(guarded) if each["principal"] == principal]

    created = ("topic.create", "topic /default/audited", "allowed", "http")
    looked = ("server.manage", "the server", "denied", "http")
    tried = ("topic.delete", "topic /default/orders", "denied", "tcp")
    eventually(lambda: created in lines("jwt:boss"), "the topic's creation is noted")
    eventually(lambda: be_refused() and looked in lines("jwt:curious"), "the curious are noted")
    eventually(lambda: be_refused() and tried in lines("jwt:nosy"), "the nosy are noted")
    assert all(each["address"].startswith("127.0.0.1:") for each in audited(guarded) if each["principal"] == "jwt:nosy")


def test_schemes_that_are_not_known_and_pages_of_other_sites_are_in_the_audit_log(guarded: Guarded) -> None:
    def be_refused() -> bool:
        with guarded.http() as http:
            assert http.ask("GET", "/v1/topics", Authorization="Digest YTpi").status == 401
            assert http.ask("GET", "/v1/topics", Origin="https://evil.example").status == 403
            assert http.ask("GET", "/v1/topics", Host="evil.example").status == 403
        port = guarded.running.ready["ws_port"]
        assert answered(port, upgrade(port, Authorization="Digest YTpi")).startswith(b"HTTP/1.1 401")
        assert answered(port, upgrade(port, Origin="https://evil.example")).startswith(b"HTTP/1.1 403")
        return True

    expected = {
        ("unknown", "authenticate", "refused", "http"),
        ("unknown", "authenticate", "refused", "websocket"),
        ("anonymous", "server.connect", "denied", "http"),
        ("anonymous", "server.connect", "denied", "websocket"),
    }

    def found() -> set[tuple[str, ...]]:
        """Return the principal, operation, outcome and surface of each refusal; collect the reasons."""
        fields = ("principal", "operation", "outcome", "surface")
        lines = [each for each in audited(guarded) if each.get("reason", "").startswith(("the Authorization", "a "))]
        assert not any("evil" in json.dumps(each) for each in lines)
        reasons.update(each["reason"] for each in lines)
        return {tuple(each[name] for name in fields) for each in lines}

    reasons: set[str] = set()
    eventually(lambda: be_refused() and expected <= found(), "each of them has a line")
    assert {"a page of another site", "a name that is none of this machine"} <= reasons


def test_the_audit_log_says_what_was_administered_over_http(guarded: Guarded) -> None:
    who = f"Bearer {hs256(sub='thorough', penstock=['admin'])}"
    with guarded.http() as http:
        asked = {"name": "audited", "bindings": ["viewer@topic:a"]}
        key = http.ask("POST", "/v1/keys", asked, Authorization=who).json
        granted = {"principal": "key:audited", "binding": "consumer@topic:b"}
        assert http.ask("POST", "/v1/access/grant", granted, Authorization=who).status == 200
        assert http.ask("DELETE", f"/v1/keys/{key['key_id']}", Authorization=who).status == 200
        assert http.ask("DELETE", f"/v1/keys/{key['key']}", Authorization=who).status >= 400

    def found() -> list[tuple[str, Any]]:
        return [
            (each["action"], each.get("target")) for each in audited(guarded) if each["principal"] == "jwt:thorough"
        ]

    eventually(lambda: len(found()) == 4, "all of it is noted")
    assert found() == [
        ("POST /v1/keys", {"name": "audited", "bindings": ["viewer@topic:a"]}),
        ("POST /v1/access/grant", {"principal": "key:audited", "binding": "consumer@topic:b"}),
        ("DELETE /v1/keys/{key}", {"key": key["key_id"]}),
        ("DELETE /v1/keys/{key}", {"key": "(hidden)"}),
    ]


def test_a_key_of_a_name_that_was_revoked_has_only_what_it_is_given(guarded: Guarded) -> None:
    with guarded.http() as http:
        first = made(http, "reborn", "consumer@topic:orders")
        assert http.ask("DELETE", f"/v1/keys/{first['key_id']}", Authorization=boss()).status == 200
        second = made(http, "reborn", "viewer@topic:open")
        assert second["bindings"] == ["viewer@topic:/default/open"]
        answer = http.ask("GET", "/v1/topics/orders/messages", Authorization=f"Bearer {second['key']}")
        assert answer.status == 403


# subjects


JSON_SCHEMA = {"schemaType": "JSON", "schema": '{"type": "object"}'}
REFERRING = {"schemaType": "JSON", "schema": '{"$ref": "pay.json"}'}


@pytest.mark.parametrize("written", ["payroll-value", ":.:payroll-value", "%3A.%3Apayroll-value"])
def test_a_subject_is_the_same_for_who_decides_and_for_who_answers(guarded: Guarded, written: str) -> None:
    clerk = f"Bearer {hs256(penstock=['registrar@subject:*.*'])}"
    with guarded.http() as http:
        path = "/subjects/payroll-value/versions"
        assert http.ask("POST", path, JSON_SCHEMA, Authorization=boss()).status == 200
        for method, where in (
            ("GET", f"/subjects/{written}/versions/1"),
            ("GET", f"/subjects/{written}/versions"),
            ("GET", f"/config/{written}?defaultToGlobal=true"),
            ("DELETE", f"/subjects/{written}"),
            ("DELETE", f"/subjects/{written}/versions/1"),
        ):
            assert http.ask(method, where, Authorization=clerk).status == 403, (method, where)
        assert http.ask("GET", f"/subjects/{written}/versions", Authorization=boss()).json == [1]


def test_who_refers_to_a_subject_must_be_allowed_to_read_it(guarded: Guarded) -> None:
    clerk = f"Bearer {hs256(penstock=['registrar@subject:mine-*'])}"
    reader = f"Bearer {hs256(penstock=['registrar@subject:mine-*', 'viewer@subject:payroll-*'])}"
    with guarded.http() as http:
        assert http.ask("POST", "/subjects/payroll-value/versions", JSON_SCHEMA, Authorization=boss()).status == 200
        for subject in ("payroll-value", ":.:payroll-value"):
            body = REFERRING | {"references": [{"name": "pay.json", "subject": subject, "version": 1}]}
            for where in (
                "/subjects/mine-a/versions",
                "/subjects/mine-a",
                "/compatibility/subjects/mine-a/versions",
                "/compatibility/subjects/mine-a/versions/latest",
            ):
                assert http.ask("POST", where, body, Authorization=clerk).status == 403, where
                assert http.ask("POST", where, body, Authorization=reader).status in (200, 404), where


def contents_of(data: Path) -> Iterator[bytes]:
    """Return the contents of every file; one that the broker has just replaced is read under its new name."""
    for each in data.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):
            yield each.read_bytes()


def test_no_secret_is_left_anywhere(guarded: Guarded) -> None:
    with guarded.http() as http, guarded.tcp() as tcp:
        key = made(http, "secretive", "admin")["key"]
        secret = key.rpartition("_")[2]
        token = hs256(sub="secretive", penstock=["admin"])
        assert authenticate(tcp, key) == "OK"
        assert http.ask("GET", "/v1/topics", Authorization=f"Bearer {token}").status == 200
        shown = [
            http.ask("GET", path, Authorization=boss()).body for path in ("/v1/keys", "/metrics", "/v1/connections")
        ]
    eventually(lambda: any(each["principal"] == "jwt:boss" for each in audited(guarded)), "the audit log is written")
    files = list(contents_of(guarded.running.data))
    command = Path(f"/proc/{guarded.running.pid}/cmdline").read_bytes()
    for text in (*shown, *files, command, guarded.running.log.encode()):
        assert secret.encode() not in text
        assert token.rpartition(".")[2].encode() not in text


def test_what_is_sent_again_is_recognised_among_what_the_same_caller_has_sent(guarded: Guarded) -> None:
    ann, bob = (f"Bearer {hs256(sub=name, penstock=['publisher'])}" for name in ("ann", "bob"))
    with guarded.http() as http:
        found = [
            http.ask(
                "POST", "/api/events?topic=orders&type=t", b"x", Authorization=each, Idempotency_Key="order-7"
            ).json
            for each in (ann, bob, ann)
        ]
    assert [each.get("duplicate", False) for each in found] == [False, False, True]
    assert found[2]["id"] == found[0]["id"] != found[1]["id"]


def test_nobody_takes_numbers_from_the_producer_of_another_key(guarded: Guarded) -> None:
    with guarded.http() as http:
        assert http.ask("POST", "/v1/topics", {"topic": "till"}, Authorization=boss()).status == 201
        names = ("ann", "mallory")
        ann, mallory = (f"Bearer {made(http, name, 'publisher@topic:till')['key']}" for name in names)

        def post(who: str, number: int) -> Answer:
            named = {"Authorization": who, "X_Producer": "till-3", "X_Request_Id": str(number)}
            return http.ask("POST", "/api/events?topic=till&type=t", b"%d" % number, **named)

        assert post(ann, 1).status == 200
        stolen = post(mallory, 2)
        assert (stolen.status, stolen.json["error"]["code"]) == (409, "NOT_OWNER")
        stored = [post(ann, number) for number in (2, 3)]
        assert [(each.status, each.json.get("duplicate", False)) for each in stored] == [(200, False)] * 2
        found = http.ask("GET", "/v1/topics/till/messages", Authorization=boss()).json["messages"]
    assert [(each["offset"], each["producer_name"]) for each in found] == [(each, "till-3") for each in range(3)]
