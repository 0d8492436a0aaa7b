"""The dialect, over a real port: what is asked, what is answered, and what is refused with which number."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.server.http_kit import Answer, raw
from tests.server.registry.kit import V1, RegistryServer, record, serve_registry

from penstock.core.errors import Code, DiskFull, PenstockError, ServiceUnavailable, StorageFailed, Timeout
from penstock.schema.errors import RegistryError
from penstock.server.api import bodies
from penstock.server.api.bodies import RequestBodies, best_of, check_content
from penstock.server.api.errors import FLAT, STATUSES, HttpError
from penstock.server.api.errors import REGISTRY_MEDIA as MEDIA
from penstock.server.registry import cache as keeping
from penstock.server.registry.cache import SchemaAnswerCache
from penstock.server.routes import ROUTE_TABLE

JSON = "application/json"
ONE, TWO = record("id:long"), record("id:long", 'note:string=""')
OTHER = json.dumps({"type": "enum", "name": "Colour", "symbols": ["RED"]})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RegistryServer]:
    with serve_registry(tmp_path) as serving:
        yield serving


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """A server for tests that change nothing: `orders` has two versions, ids 1 and 2, and `a/b c` has the first schema
    too."""
    with serve_registry(tmp_path_factory.mktemp("registry")) as serving:
        for subject, schema in (("orders", ONE), ("orders", TWO), ("a%2Fb%20c", ONE)):
            serving.post(f"/subjects/{subject}/versions", {"schema": schema})
        yield serving


@pytest.fixture(scope="module")
def battered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with serve_registry(tmp_path_factory.mktemp("registry")) as serving:
        yield serving


# what is there


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/subjects", ["a/b c", "orders"]),
        ("/subjects/", ["a/b c", "orders"]),
        ("/subjects?subjectPrefix=ord", ["orders"]),
        ("/subjects?subjectPrefix=:*:ord", ["orders"]),
        ("/subjects?subjectPrefix=a%2Fb+c", ["a/b c"]),
        ("/subjects?deletedOnly=TRUE", []),
        ("/subjects?offset=1", ["orders"]),
        ("/subjects?limit=1", ["a/b c"]),
        ("/subjects?offset=1&limit=-1", ["orders"]),
        ("/subjects?offset=7", []),
        ("/subjects?limit=0", []),
        ("/subjects?nobody=knows&this", ["a/b c", "orders"]),
        ("/subjects/orders/versions", [1, 2]),
        ("/subjects/orders/versions?offset=1", [2]),
        ("/subjects/:.:orders/versions", [1, 2]),
        ("/subjects/orders/versions/1", {"subject": "orders", "version": 1, "id": 1, "schema": ONE}),
        ("/subjects/orders/versions/2", {"subject": "orders", "version": 2, "id": 2, "schema": TWO}),
        ("/subjects/orders/versions/latest", {"subject": "orders", "version": 2, "id": 2, "schema": TWO}),
        ("/subjects/orders/versions/-1", {"subject": "orders", "version": 2, "id": 2, "schema": TWO}),
        ("/subjects/a%2Fb%20c/versions/1", {"subject": "a/b c", "version": 1, "id": 1, "schema": ONE}),
        ("/subjects/orders/versions/1/schema", json.loads(ONE)),
        ("/subjects/orders/versions/1/referencedby", []),
        ("/schemas/types", ["AVRO", "JSON", "PROTOBUF"]),
        ("/v1/schemas/types", ["AVRO", "JSON", "PROTOBUF", "STRING", "NUMBER", "BYTES"]),
        ("/schemas/ids/1", {"schema": ONE}),
        ("/schemas/ids/1?fetchMaxId=true", {"schema": ONE, "maxId": 2}),
        ("/schemas/ids/1?subject=a%2Fb%20c", {"schema": ONE}),
        ("/schemas/ids/2?subject=a%2Fb%20c", {"schema": TWO}),
        ("/schemas/ids/2?subject=nobody", {"schema": TWO}),
        ("/schemas/ids/2?subject=:.:", {"schema": TWO}),
        ("/schemas/ids/2?subject=:.:nobody", {"schema": TWO}),
        ("/schemas/ids/2/schema?subject=a%2Fb%20c", json.loads(TWO)),
        ("/schemas/ids/2/schema?subject=:.:", json.loads(TWO)),
        ("/schemas/ids/1?format=serialized", {"schema": ONE}),
        ("/schemas/ids/1/schema", json.loads(ONE)),
        ("/schemas/ids/1/subjects", ["a/b c", "orders"]),
        ("/schemas/ids/1/subjects?subject=orders", ["orders"]),
        ("/schemas/ids/1/subjects?subject=:.:", ["a/b c", "orders"]),
        ("/schemas/ids/1/versions", [{"subject": "a/b c", "version": 1}, {"subject": "orders", "version": 1}]),
        ("/schemas/ids/1/versions?offset=1", [{"subject": "orders", "version": 1}]),
        ("/contexts", ["."]),
        ("/config", {"compatibilityLevel": "BACKWARD"}),
        ("/config/orders?defaultToGlobal=true", {"compatibilityLevel": "BACKWARD"}),
        ("/mode", {"mode": "READWRITE"}),
        ("/mode/orders?defaultToGlobal=True", {"mode": "READWRITE"}),
    ],
)
def test_what_is_there_is_answered(shared: RegistryServer, path: str, answer: object) -> None:
    assert shared.get(path) == answer


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/subjects/nobody/versions", 40401),
        ("/subjects/nobody/versions/1", 40401),
        ("/subjects/orders/versions/3", 40402),
        ("/subjects/orders/versions/3/schema", 40402),
        ("/subjects/orders/versions/0", 42202),
        ("/subjects/orders/versions/-2", 42202),
        ("/subjects/orders/versions/newest", 42202),
        ("/subjects/orders/versions/2147483648", 42202),
        ("/subjects/orders/versions/3/referencedby", 40402),
        ("/subjects/a%0Ab/versions", 422),
        ("/subjects/:.elsewhere:orders/versions", 422),
        ("/schemas/ids/3", 40403),
        ("/schemas/ids/0", 40403),
        ("/schemas/ids/-1", 40403),
        ("/schemas/ids/one", 40403),
        ("/schemas/ids/99999999999", 40403),
        ("/schemas/ids/3?subject=orders", 40403),
        ("/schemas/ids/2?subject=a%0Ab", 422),
        ("/schemas/ids/2?subject=:.elsewhere:orders", 422),
        ("/schemas/ids/3/versions", 40403),
        ("/schemas/ids/3/subjects", 40403),
        ("/schemas/ids/3/schema?subject=orders", 40403),
        ("/schemas/ids/2/schema?subject=:.:a%0Ab", 422),
        ("/schemas/guids/0a1b2c3d-0000-4000-8000-00000000000a", 404),
        ("/associations/resources/a/b", 404),
        ("/config/orders", 40408),
        ("/mode/orders", 40409),
        ("/nowhere", 404),
        ("/subjects/%zz/versions", 400),
        ("/subjects/%ff/versions", 400),
        ("/subjects?deleted=perhaps", 422),
        ("/subjects?limit=many", 422),
        ("/subjects?offset=-1", 422),
        ("/v1/topics/nowhere/schema", 404),
        ("/v1/topics/no%20topic/schema", 422),
    ],
)
def test_what_is_not_there_has_its_number(shared: RegistryServer, path: str, number: int) -> None:
    assert shared.ask("GET", path).error == number


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "TRACE", "POST", "PUT", "DELETE"])
def test_other_methods_are_not_found_and_never_not_allowed(shared: RegistryServer, method: str) -> None:
    assert shared.ask(method, "/subjects").error == 404


def test_head_is_get_without_its_body(shared: RegistryServer) -> None:
    for path in ("/schemas/ids/1", "/subjects", "/schemas", "/nowhere"):
        asked, told = shared.ask("GET", path), shared.ask("HEAD", path)
        assert (told.status, told.media, told.body) == (asked.status, asked.media, b"")


def test_all_schemas_are_listed_and_the_last_of_each(shared: RegistryServer) -> None:
    assert [(each["subject"], each["version"]) for each in shared.get("/schemas")] == [
        ("a/b c", 1),
        ("orders", 1),
        ("orders", 2),
    ]
    assert [each["id"] for each in shared.get("/schemas?latestOnly=true&subjectPrefix=o")] == [2]
    assert shared.get("/schemas?offset=1&limit=1")[0]["schema"] == ONE
    assert shared.get("/schemas?subjectPrefix=nobody") == []


def test_the_server_says_what_it_is(shared: RegistryServer) -> None:
    assert set(shared.get("/v1/metadata/id")["scope"]["clusters"]) == {"kafka-cluster", "schema-registry-cluster"}
    assert shared.get("/v1/metadata/version")["version"]


def test_who_takes_more_is_told_more(shared: RegistryServer) -> None:
    more = shared.get("/subjects/orders/versions/1", Accept=JSON)
    assert more["createdMs"] == 1_700_000_000_000
    assert len(more["fingerprint"]) == 64
    found = shared.get("/schemas/ids/1?subject=a%2Fb%20c", Accept=JSON)
    assert found == {"schema": ONE, "subject": "a/b c", "version": 1, "id": 1}
    assert shared.ask("GET", "/subjects/x/versions", Accept=JSON).json["details"] == {"subject": "x"}
    for accept in ("*/*", V1, f"{V1}, {JSON}"):
        assert set(shared.ask("GET", "/subjects/x/versions", Accept=accept).json) == {"error_code", "message"}


# how it is written


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("*/*", V1),
        ("*", V1),
        ("", V1),
        (" , ", V1),
        ("application/*", V1),
        (JSON, JSON),
        ("APPLICATION/JSON; charset=utf-8", JSON),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        (f"{JSON}, {V1}, application/vnd.schemaregistry+json", V1),
        (f"{JSON}, {V1};q=0.9", JSON),
        (f"{V1};q=0, */*;q=0.1", "application/vnd.schemaregistry+json"),
        (f"text/html, {JSON};q=0.2, */*;q=0.1", JSON),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", V1),
        ("*/*;q=nonsense", V1),
    ],
)
def test_an_answer_is_written_as_the_client_likes_it_best(accept: str, media: str) -> None:
    assert best_of(accept, FLAT)[0] == media


@pytest.mark.parametrize("accept", ["text/html", "application/xml, text/*", "*/*;q=0", f"{JSON};q=0"])
def test_who_takes_nothing_that_we_write_is_told_so(shared: RegistryServer, accept: str) -> None:
    assert shared.ask("GET", "/subjects", Accept=accept).error == 406


def test_errors_too_are_written_as_the_client_likes_it(shared: RegistryServer) -> None:
    for path in ("/nowhere", "/subjects/x/versions", "/subjects/x/versions/oldest", "/schemas/ids/none", "/subjects/%"):
        assert shared.ask("GET", path, Accept=JSON).media == JSON, path
        for accept in ("*/*", V1, "text/html"):
            assert shared.ask("GET", path, Accept=accept).media == V1, path
    assert shared.ask("GET", "/v1/nowhere", Accept=V1).media == JSON


@pytest.mark.parametrize(
    "media", [*MEDIA, f"{V1}; charset=utf-8", "application/json;charset=UTF-8", 'Application/JSON; charset="utf-8"']
)
def test_bodies_of_these_types_are_taken(shared: RegistryServer, media: str) -> None:
    sent = json.dumps({"schema": ONE}).encode()
    assert shared.ask("POST", "/subjects/orders/versions", sent, Content_Type=media).json == {"id": 1}


@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "application/json; charset=latin-1"]
)
def test_bodies_of_other_types_are_not(shared: RegistryServer, media: str) -> None:
    assert shared.ask("POST", "/subjects/a/versions", b"{}", Content_Type=media).error == 415


def test_a_body_that_says_nothing_of_itself_is_taken_for_json_and_a_packed_one_is_not() -> None:
    check_content(None, None, FLAT)
    check_content(None, "identity", FLAT)
    with pytest.raises(HttpError, match="gzip"):
        check_content(JSON, "gzip", FLAT)


# limits


def test_a_body_that_is_too_large_is_refused(shared: RegistryServer) -> None:
    row, _ = ROUTE_TABLE.find("POST", "/subjects/a/versions")
    answer = shared.ask("POST", "/subjects/a/versions", b'{"schema": "' + b"x" * row.body_bytes_max, Content_Type=JSON)
    assert answer.error == 413
    assert shared.ask("PUT", "/config", b" " * 70_000 + b"{}", Content_Type=JSON).error == 413


def test_a_schema_that_is_too_large_is_an_invalid_schema(shared: RegistryServer) -> None:
    wide = json.dumps({"type": "enum", "name": "E", "symbols": [f"S{number}" for number in range(150_000)]})
    assert shared.ask("POST", "/subjects/a/versions", {"schema": wide}).error == 42201


def test_all_bodies_together_are_bounded(shared: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_BODIES_BYTES_MAX", 10)
    assert shared.ask("POST", "/subjects/a/versions", {"schema": ONE}).error == 503


def test_a_body_that_does_not_come_is_not_waited_for(shared: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_BODY_SECONDS", 0.05)
    head = b"POST /subjects/a/versions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\nconnection: close\r\n\r\n{"
    assert b"HTTP/1.1 408 " in raw(shared.serving.port, head)


def test_what_bodies_take_is_given_back_whatever_becomes_of_them() -> None:
    taken = RequestBodies()

    async def ends() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def comes() -> dict[str, Any]:
        return {"type": "http.request", "body": b"12345", "more_body": False}

    async def read(receive: Any, most: int) -> int:
        async with taken.read(receive, most) as held:
            assert taken.size == len(held)
            return len(held)

    assert asyncio.run(read(comes, 5)) == 5
    for receive, most in ((comes, 4), (ends, 5)):
        with pytest.raises(PenstockError):
            asyncio.run(read(receive, most))
    assert taken.size == 0


def test_encoded_answers_are_kept_up_to_a_bound(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.post("/subjects/a/versions", {"schema": ONE})
    stored = server.backend.registry.schema(1)
    kept = SchemaAnswerCache()
    monkeypatch.setattr(keeping, "CACHED_BYTES_MAX", 10)
    for number in range(5):
        kept.put(number, stored, b"1234")
    assert [kept.get(number, stored) for number in range(5)] == [None, None, None, b"1234", b"1234"]
    kept.put(4, stored, b"123456789ab")
    assert kept.get(4, stored) is None


def test_an_id_that_is_given_again_has_the_new_schema(server: RegistryServer) -> None:
    server.put("/mode", {"mode": "IMPORT"})
    for schema in (ONE, OTHER):
        server.post("/subjects/a/versions", {"schema": schema, "id": 5})
        assert server.get("/schemas/ids/5")["schema"] == schema
        server.delete("/subjects/a")
        server.delete("/subjects/a?permanent=true")
        assert server.ask("GET", "/schemas/ids/5").error == 40403


# failures


@pytest.mark.parametrize(
    ("failure", "status", "number"),
    [
        (StorageFailed("the disk is gone"), 500, 50001),
        (DiskFull("no room"), 500, 50001),
        (Timeout("too slow"), 500, 50002),
        (ServiceUnavailable("closing"), 503, 503),
        (PenstockError("what", registry_code=42206), 422, 42206),
        (RegistryError("hm"), 422, 422),
    ],
)
def test_what_fails_says_so_with_a_number(
    shared: RegistryServer, failure: PenstockError, status: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared.backend, "failure", failure)
    answer = shared.ask("POST", "/subjects/a/versions", {"schema": ONE})
    assert (answer.status, answer.error) == (status, number)


def test_a_defect_is_logged_and_answered(
    shared: RegistryServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared.backend, "failure", ZeroDivisionError())
    with caplog.at_level(logging.ERROR):
        assert shared.ask("POST", "/subjects/a/versions", {"schema": ONE}).error == 50001
    assert "unhandled error" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_every_code_has_a_status() -> None:
    assert set(STATUSES) == set(Code)


def test_details_of_any_kind_can_be_told() -> None:
    told = FLAT.refuse(StorageFailed("x", where=Path("/x"), sizes={1, 2}, wrong=ValueError("y")), JSON, more=True)
    assert json.loads(bytes(told.body))["details"]["where"] == "/x"


@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    st.lists(
        st.sampled_from(
            ["subjects", "schemas", "ids", "versions", "latest", "1", "a", "%2F", "%", "config", "mode", "v1"]
        )
        | st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#"), max_size=5),
        max_size=5,
    ),
    st.sampled_from(["", "?deleted=true", "?limit=x", "?%", "?normalize=1&force=true&permanent=true"]),
    st.none() | st.binary(max_size=20) | st.sampled_from([b"{}", b'{"schema":"\\"int\\""}', b'{"mode":"IMPORT"}']),
)
@example("GET", ["http://x"], "", None)
def test_nothing_that_is_sent_makes_it_fail(
    battered: RegistryServer, method: str, path: list[str], query: str, body: bytes | None
) -> None:
    answer: Answer = battered.ask(method, "/" + "/".join(path) + query, body, Content_Type=JSON)
    assert answer.status < 500
    if answer.status != 200:
        assert answer.error
