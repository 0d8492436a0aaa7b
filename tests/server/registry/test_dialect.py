"""The registry's dialect: register, look up, check, delete and configure; and Penstock's extensions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.registry.kit import RegistryServer, record, serve_registry

from penstock.core.names import TopicName
from penstock.schema.registry.transfer import RECORDS_MAX
from penstock.storage.catalog.topics import TopicSettings

JSON = "application/json"
ONE, TWO = record("id:long"), record("id:long", 'note:string=""')
BAD = record("id:long", "more:int")
OTHER = json.dumps({"type": "enum", "name": "Colour", "symbols": ["RED"]})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RegistryServer]:
    with serve_registry(tmp_path) as serving:
        yield serving


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """A server for requests that are refused, and so change nothing."""
    with serve_registry(tmp_path_factory.mktemp("registry")) as serving:
        yield serving


# registering


def test_the_same_schema_is_registered_once_and_has_one_id_everywhere(server: RegistryServer) -> None:
    ids = [server.post(f"/subjects/{each}/versions", {"schema": ONE})["id"] for each in ("a", "a", "b")]
    assert ids == [1, 1, 1]
    assert server.get("/subjects/a/versions") == [1]
    spaced = ONE.replace(" ", "  ")
    assert server.post("/subjects/a/versions?normalize=true", {"schema": spaced}) == {"id": 1}


def test_what_was_registered_is_returned_letter_for_letter(server: RegistryServer) -> None:
    written = ONE.replace("{", "{ \n\t").replace("Order", "Order\\u0041")
    server.post("/subjects/a/versions", {"schema": written})
    assert server.get("/schemas/ids/1")["schema"] == written
    assert server.ask("GET", "/schemas/ids/1/schema").body.decode() == written


def test_clients_that_take_more_are_told_the_version_at_once(server: RegistryServer) -> None:
    told = server.post("/subjects/a/versions", {"schema": ONE}, Confluent_Accept_Unknown_Properties="true")
    assert told == {"id": 1, "version": 1, "subject": "a", "schema": ONE}


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF", "COBOL"])
def test_what_is_no_schema_is_called_invalid_first_of_all(server: RegistryServer, kind: str) -> None:
    for path in ("/subjects/a/versions", "/compatibility/subjects/a/versions"):
        refused = server.ask("POST", path, {"schema": "{", "schemaType": kind}).json
        assert (refused["error_code"], refused["message"][:16]) == (42201, "Invalid schema: ")
        assert refused["message"].count("Invalid schema") == 1
    refused = server.ask("POST", "/subjects/a/versions", {"schema": "\x00", "schemaType": "JSON"}).json
    assert refused["message"].count("Invalid schema") == 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"normalize": False}, "normalize cannot be switched off"),
        ({"compatibilityGroup": "a"}, "compatibilityGroup is not kept here"),
        ({"alias": "b"}, "alias is not kept here"),
        ({"overrideRuleSet": {"domainRules": []}}, "overrideRuleSet is not kept here"),
        ({"defaultMetadata": {"properties": {"a": "b"}}}, "defaultMetadata is not kept here"),
    ],
)
def test_a_setting_that_would_be_lost_is_refused_with_its_reason(
    server: RegistryServer, setting: dict[str, Any], words: str
) -> None:
    for path in ("/config", "/config/a"):
        refused = server.ask("PUT", path, {"compatibility": "NONE", **setting}).json
        assert (refused["error_code"], refused["message"].startswith(words)) == (42205, True)
    assert server.get("/config") == {"compatibilityLevel": "BACKWARD"}


def test_schemas_are_always_normalised_and_it_may_be_said(server: RegistryServer) -> None:
    assert server.put("/config", {"compatibility": "FULL", "normalize": True}) == {
        "compatibility": "FULL",
        "normalize": True,
    }
    assert server.put("/config", {"normalize": True}) == {"compatibility": "FULL", "normalize": True}
    assert server.put("/config", {"compatibility": "NONE", "alias": None}) == {"compatibility": "NONE"}
    assert server.get("/config", Accept="application/json")["normalize"] is True


def test_the_latest_version_with_some_properties_is_found(server: RegistryServer) -> None:
    for number, stage in ((1, "a"), (2, "b"), (3, "a")):
        body = {"schema": record(f'x{number}:string=""'), "metadata": {"properties": {"stage": stage, "n": "="}}}
        server.post("/subjects/s/versions", body)
    assert server.get("/subjects/s/metadata")["version"] == 3
    assert server.get("/subjects/s/metadata?key=stage&value=b")["version"] == 2
    found = server.get("/subjects/s/metadata?key=n&value=%3D&key=stage&value=a")
    assert (found["version"], found["metadata"]) == (3, {"properties": {"stage": "a", "n": "="}})
    server.delete("/subjects/s/versions/2")
    for path, number in (
        ("/subjects/s/metadata?key=stage&value=b", 40403),
        ("/subjects/s/metadata?key=stage", 422),
        ("/subjects/t/metadata", 40401),
    ):
        assert server.ask("GET", path).error == number
    assert server.get("/subjects/s/metadata?key=stage&value=b&deleted=true")["version"] == 2


def test_a_schema_of_each_plain_kind_needs_no_text(server: RegistryServer) -> None:
    for kind in ("STRING", "NUMBER", "BYTES"):
        server.post(f"/subjects/{kind}/versions", {"schemaType": kind})
        assert server.get(f"/subjects/{kind}/versions/1")["schemaType"] == kind


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ({"schema": "{"}, 42201),
        ({"schema": ""}, 42201),
        ({"schema": None}, 42201),
        ({}, 42201),
        ({"schema": ONE, "schemaType": "COBOL"}, 42201),
        ({"schema": ONE, "references": [{"name": "x", "subject": "nobody", "version": 1}]}, 42201),
        ({"schema": ONE, "id": 7}, 42205),
        ({"schema": ONE, "version": 7}, 42201),
        ({"schema": ONE, "ruleSet": {"domainRules": [{}]}}, 42205),
        ({"schema": ONE, "metadata": {"sensitive": ["x"]}}, 42205),
        ({"schema": 1}, 422),
        ({"schema": ONE, "schemaType": 1}, 422),
        ({"schema": ONE, "references": "none"}, 422),
        ({"schema": ONE, "references": [{"name": "x"}]}, 422),
        ({"schema": ONE, "references": [{"name": "x", "subject": "y", "version": 2**31}]}, 422),
        ({"schema": ONE, "id": "7"}, 422),
        ({"schema": ONE, "id": 10**30}, 422),
        ({"schema": ONE, "tags": ["x"] * 65}, 422),
        ([], 422),
        ("schema", 422),
        (None, 422),
        (1, 422),
    ],
)
def test_what_cannot_be_registered_is_refused_with_its_number(
    shared: RegistryServer, body: object, number: int
) -> None:
    sent = json.dumps(body).encode()
    answer = shared.ask("POST", "/subjects/new/versions", sent, Content_Type=JSON)
    assert answer.error == number
    assert shared.get("/subjects?subjectPrefix=new") == []


@pytest.mark.parametrize(
    ("sent", "number"),
    [(b"", 400), (b"{", 400), (b"{}{}", 400), (b'{"schema": "\xff"}', 400), (b'{"schema": "\\ud800"}', 400),
     (b'{"x": ' + b"[" * 100_000, 400), (b"[" * 100_000 + b"]" * 100_000, 400), (b"nothing", 400)],
    ids=["nothing", "half", "two", "no UTF-8", "half a character", "deep", "deep and closed", "no JSON"],
)  # fmt: skip
def test_what_is_no_json_is_a_bad_request(shared: RegistryServer, sent: bytes, number: int) -> None:
    answer = shared.ask("POST", "/subjects/a/versions", sent, Content_Type=JSON)
    assert answer.error in (number, 422)
    assert answer.status < 500


def test_fields_that_nobody_knows_are_ignored(server: RegistryServer) -> None:
    assert server.post("/subjects/a/versions", {"schema": ONE, "unknown": [1, {"a": None}], "Schema": 3}) == {"id": 1}


def test_a_subject_is_any_text_but_control_characters(server: RegistryServer) -> None:
    for escaped, name in (
        ("%2F", "/"),
        ("%F0%9F%98%80", "😀"),
        ("a%20%2B+b", "a ++b"),
        ("%25", "%"),
        ("..%2Fx", "../x"),
    ):
        server.post(f"/subjects/{escaped}/versions", {"schema": ONE})
        assert server.get(f"/subjects/{escaped}/versions/latest")["subject"] == name
    for wrong in ("%00", "a%1Fb", "%C2%85", "a" * 513):
        assert server.ask("POST", f"/subjects/{wrong}/versions", {"schema": ONE}).error == 422


def test_an_incompatible_schema_is_refused_and_says_why(server: RegistryServer) -> None:
    server.post("/subjects/a/versions", {"schema": ONE})
    refused = server.ask("POST", "/subjects/a/versions", {"schema": BAD}, Accept=JSON)
    assert refused.error == 409
    assert '"more"' in refused.json["message"]
    (problem,) = refused.json["details"]["problems"]
    assert (problem["version"], problem["path"]) == (1, "/fields/1")
    assert server.get("/subjects/a/versions") == [1]


def test_references_are_kept_and_found_from_both_ends(server: RegistryServer) -> None:
    server.post("/subjects/colour/versions", {"schema": OTHER})
    reference = {"name": "Colour", "subject": "colour", "version": 1}
    body = {"schema": record("paint:Colour"), "references": [reference]}
    server.post("/subjects/car/versions", body)
    assert server.get("/subjects/car/versions/1")["references"] == [reference]
    assert server.get("/schemas/ids/2")["references"] == [reference]
    assert server.get("/subjects/colour/versions/1/referencedby") == [2]
    assert server.post("/subjects/car", body)["id"] == 2
    assert server.ask("DELETE", "/subjects/colour/versions/1").error == 42206
    assert server.ask("DELETE", "/subjects/colour").error == 42206


def test_words_about_a_version_are_kept(server: RegistryServer) -> None:
    told = {"description": "what was ordered", "tags": ["pii"], "metadata": {"properties": {"owner": "shop"}}}
    server.post("/subjects/a/versions", {"schema": ONE, **told})
    found = server.get("/subjects/a/versions/1", Accept=JSON)
    assert (found["description"], found["tags"]) == ("what was ordered", ["pii", "owner=shop"])
    assert found["metadata"] == server.get("/subjects/a/versions/1")["metadata"] == told["metadata"]


# looking up


def test_a_schema_is_looked_up_by_its_text(server: RegistryServer) -> None:
    server.post("/subjects/a/versions", {"schema": ONE})
    found = {"subject": "a", "version": 1, "id": 1, "schema": ONE}
    assert server.post("/subjects/a?normalize=True&deleted=False", {"schema": ONE}) == found
    assert server.ask("POST", "/subjects/b", {"schema": ONE}).error == 40401
    assert server.ask("POST", "/subjects/a", {"schema": OTHER}).error == 40403
    assert server.ask("POST", "/subjects/a", {"schema": "{"}).error == 42201
    server.delete("/subjects/a/versions/1")
    server.post("/subjects/a/versions", {"schema": OTHER})
    assert server.ask("POST", "/subjects/a", {"schema": ONE}).error == 40403
    assert server.post("/subjects/a?deleted=true", {"schema": ONE}) == found


# compatibility


def test_a_schema_is_checked_before_it_is_registered(server: RegistryServer) -> None:
    server.post("/subjects/a/versions", {"schema": ONE})
    for path in ("versions", "versions/latest", "versions/1", "versions/-1"):
        assert server.post(f"/compatibility/subjects/a/{path}", {"schema": TWO}) == {"is_compatible": True}
        assert server.post(f"/compatibility/subjects/a/{path}", {"schema": BAD}) == {"is_compatible": False}
    assert server.ask("POST", "/compatibility/subjects/a/versions/2", {"schema": TWO}).error == 40402
    assert server.ask("POST", "/compatibility/subjects/a/versions/two", {"schema": TWO}).error == 42202
    assert server.ask("POST", "/compatibility/subjects/a/versions", {"schema": "{"}).error == 42201
    assert server.post("/compatibility/subjects/nobody/versions", {"schema": BAD}) == {"is_compatible": True}


def test_a_verbose_check_says_why(server: RegistryServer) -> None:
    server.post("/subjects/a/versions", {"schema": ONE})
    checked = server.post("/compatibility/subjects/a/versions/latest?verbose=true", {"schema": BAD})
    assert set(checked) == {"is_compatible", "messages"}
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in checked["messages"][0]
    more = server.post("/compatibility/subjects/a/versions?verbose=TRUE", {"schema": BAD}, Accept=JSON)
    assert more["problems"][0]["fix"]
    right = server.post("/compatibility/subjects/a/versions?verbose=true", {"schema": TWO})
    assert right == {"is_compatible": True, "messages": []}


# deleting


def test_versions_are_deleted_softly_and_then_for_good(server: RegistryServer) -> None:
    server.post("/subjects/a/versions", {"schema": ONE})
    server.post("/subjects/a/versions", {"schema": TWO})
    assert server.ask("DELETE", "/subjects/a/versions/1?permanent=true").error == 40407
    assert server.delete("/subjects/a/versions/1") == 1
    assert server.ask("DELETE", "/subjects/a/versions/1").error == 40406
    assert server.get("/subjects/a/versions") == [2]
    assert server.get("/subjects/a/versions?deleted=true") == [1, 2]
    assert server.get("/subjects/a/versions?deleted_only=True") == [1]
    assert server.ask("GET", "/subjects/a/versions/1").error == 40402
    assert server.get("/subjects/a/versions/1?deleted=true")["id"] == 1
    assert server.get("/schemas/ids/1")["schema"] == ONE
    assert server.get("/schemas/ids/1/versions") == []
    assert server.get("/schemas/ids/1/versions?deleted=true") == [{"subject": "a", "version": 1}]
    assert server.delete("/subjects/a/versions/1?permanent=TRUE") == 1
    assert server.ask("GET", "/schemas/ids/1").error == 40403
    assert server.ask("DELETE", "/subjects/a/versions/1?permanent=true").error == 40402
    assert server.delete("/subjects/a/versions/latest") == 2
    assert server.ask("DELETE", "/subjects/nobody/versions/1").error == 40401
    assert server.ask("DELETE", "/subjects/a/versions/newest").error == 42202


def test_subjects_are_deleted_softly_and_then_for_good(server: RegistryServer) -> None:
    for schema in (ONE, TWO):
        server.post("/subjects/a/versions", {"schema": schema})
    assert server.ask("DELETE", "/subjects/nobody").error == 40401
    assert server.ask("DELETE", "/subjects/a?permanent=true").error == 40405
    assert server.delete("/subjects/a") == [1, 2]
    assert server.ask("DELETE", "/subjects/a").error == 40404
    assert server.get("/subjects") == []
    assert server.get("/subjects?deleted=true") == server.get("/subjects?deletedOnly=true") == ["a"]
    assert server.delete("/subjects/a?permanent=true") == [1, 2]
    assert server.get("/subjects?deleted=true") == []


def test_what_was_deleted_softly_is_brought_back(server: RegistryServer) -> None:
    for schema in (ONE, TWO):
        server.post("/subjects/a/versions", {"schema": schema})
    server.delete("/subjects/a")
    assert server.ask("POST", "/v1/subjects/a/undelete?version=2").json == {"versions": [2]}
    assert server.get("/subjects/a/versions") == [2]
    assert server.ask("POST", "/v1/subjects/a/undelete").json == {"versions": [1]}
    assert server.ask("POST", "/v1/subjects/a/undelete").json == {"versions": []}
    assert server.ask("POST", "/v1/subjects/nobody/undelete").error == 40401
    assert server.ask("POST", "/v1/subjects/a/undelete?version=3").error == 40402
    assert server.ask("POST", "/v1/subjects/a/undelete?version=0").error == 422


# settings


def test_compatibility_is_set_for_all_and_for_one(server: RegistryServer) -> None:
    assert server.put("/config", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert server.get("/config") == {"compatibilityLevel": "FULL"}
    assert server.put("/config/a%2Fb", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert server.get("/config/a%2Fb") == {"compatibilityLevel": "NONE"}
    assert server.delete("/config/a%2Fb") == {"compatibilityLevel": "NONE"}
    assert server.ask("DELETE", "/config/a%2Fb").error == 40401
    assert server.delete("/config") == {"compatibilityLevel": "FULL"}
    assert server.get("/config") == {"compatibilityLevel": "BACKWARD"}


def test_lenience_is_for_those_who_know_of_it(server: RegistryServer) -> None:
    assert server.put("/config", {"lenient": True}, Accept=JSON) == {"compatibility": "BACKWARD", "lenient": True}
    known = {"compatibilityLevel": "BACKWARD", "lenient": True, "normalize": True}
    assert server.get("/config", Accept=JSON) == known
    assert server.get("/config") == {"compatibilityLevel": "BACKWARD"}


@pytest.mark.parametrize(
    ("path", "body", "number"),
    [
        ("/config", {"compatibility": "SOMETIMES"}, 42203),
        ("/config/a", {}, 42203),
        ("/config", {"compatibility": 1}, 422),
        ("/config", [], 422),
        ("/config/%00", {"compatibility": "FULL"}, 422),
        ("/mode", {"mode": "SLEEP"}, 42204),
        ("/mode/a", {"mode": ""}, 42204),
        ("/mode", {}, 422),
        ("/mode", {"mode": None}, 422),
        ("/mode?force=perhaps", {"mode": "IMPORT"}, 422),
    ],
)
def test_settings_that_cannot_be_are_refused(shared: RegistryServer, path: str, body: object, number: int) -> None:
    assert shared.ask("PUT", path, body).error == number


def test_a_mode_says_what_may_be_done(server: RegistryServer) -> None:
    server.post("/subjects/a/versions", {"schema": ONE})
    assert server.put("/mode/a", {"mode": "readonly"}) == {"mode": "READONLY"}
    assert server.ask("POST", "/subjects/a/versions", {"schema": TWO}).error == 42205
    assert server.post("/subjects/a/versions", {"schema": ONE}) == {"id": 1}
    assert server.ask("DELETE", "/subjects/a").error == 42205
    assert server.get("/mode/a") == {"mode": "READONLY"}
    assert server.delete("/mode/a") == {"mode": "READONLY"}
    assert server.ask("DELETE", "/mode/a").error == 40401
    assert server.delete("/mode") == {"mode": "READWRITE"}


def test_in_import_mode_schemas_keep_their_ids_and_versions(server: RegistryServer) -> None:
    server.post("/subjects/a/versions", {"schema": ONE})
    assert server.ask("PUT", "/mode", {"mode": "IMPORT"}).error == 42205
    assert server.put("/mode?force=TRUE", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert server.post("/subjects/b/versions", {"schema": OTHER, "id": 77, "version": 5}) == {"id": 77}
    assert server.get("/subjects/b/versions") == [5]
    assert server.ask("POST", "/subjects/b/versions", {"schema": TWO, "id": 77}).error == 42205
    assert server.ask("POST", "/subjects/b/versions", {"schema": TWO, "id": -1, "version": 0}).error == 42205


# Penstock's own


def test_a_version_is_deprecated_with_a_word(server: RegistryServer) -> None:
    server.post("/subjects/a/versions", {"schema": ONE})
    path = "/v1/subjects/a/versions/1/deprecation"
    assert server.put(path, {"message": "use 2"})["deprecated"] == "use 2"
    assert server.get("/subjects/a/versions/1", Accept=JSON)["deprecated"] == "use 2"
    assert "deprecated" not in server.get("/subjects/a/versions/1")
    assert "deprecated" not in server.delete(path)
    assert server.ask("PUT", path, {"message": ""}).error == 422
    assert server.ask("PUT", "/v1/subjects/a/versions/9/deprecation", {"message": "x"}).error == 40402
    assert server.ask("PUT", path, {"message": "x", "instead": 2}).error == 422


def test_a_registry_is_taken_elsewhere(server: RegistryServer, tmp_path: Path) -> None:
    server.post("/subjects/colour/versions", {"schema": OTHER})
    reference = {"name": "Colour", "subject": "colour", "version": 1}
    server.post("/subjects/car/versions", {"schema": record("paint:Colour"), "references": [reference]})
    server.put("/config/car", {"compatibility": "FULL"})
    exported = server.get("/v1/export")
    with serve_registry(tmp_path / "elsewhere") as elsewhere:
        assert elsewhere.post("/v1/import", exported) == {"imported": 3, "known": 0, "refused": []}
        assert elsewhere.post("/v1/import", exported) == {"imported": 0, "known": 3, "refused": []}
        assert elsewhere.get("/v1/export") == exported
        wrong = elsewhere.post("/v1/import", {"records": [{"subject": "x", "version": 1}]})
        assert [each["index"] for each in wrong["refused"]] == [0]
    assert server.get("/v1/export?subjectPrefix=nobody") == {"records": []}
    assert server.ask("POST", "/v1/import", {"records": {}}).error == 422
    assert server.ask("POST", "/v1/import", {"records": [], "dry_run": True}).error == 422
    assert server.ask("POST", "/v1/import", {"records": [{}] * (RECORDS_MAX + 1)}).error == 422
    assert "sets nothing" in server.post("/v1/import", {"records": [{}]})["refused"][0]["message"]


def test_a_topics_policy_is_read_and_set(server: RegistryServer) -> None:
    server.backend.topics |= {TopicName.parse(each): TopicSettings() for each in ("orders.new", "/shop/orders")}
    path = "/v1/topics/orders.new/schema"
    default: dict[str, Any] = {"policy": "none", "payloads": False, "default": None, "deprecated": True}
    assert server.get(path) == default | {"topic": "/default/orders.new", "subjects": ["orders.new-value"]}
    assert server.get("/v1/topics/%2Fshop%2Forders/schema")["subjects"] == ["shop/orders-value"]
    wanted = {"policy": "enforce", "subjects": ["a", "b"], "payloads": True, "default": 3, "deprecated": False}
    assert server.put(path, wanted) == {"topic": "/default/orders.new", **wanted}
    assert server.put(path, {"default": "latest"})["subjects"] == ["a", "b"]
    back = dict.fromkeys(wanted)
    assert server.put(path, back) == default | {"topic": "/default/orders.new", "subjects": ["orders.new-value"]}


@pytest.mark.parametrize(
    "body",
    [{"policy": "maybe"}, {"policy": 1}, {"subjects": []}, {"subjects": ["\0"]}, {"default": "oldest"}, {"default": 0},
     {"payloads": "yes"}, {"deprecated": 1}, {"polcy": "none"}],
)  # fmt: skip
def test_a_policy_that_cannot_be_is_refused(shared: RegistryServer, body: dict[str, object]) -> None:
    shared.backend.topics[TopicName.parse("t")] = TopicSettings()
    assert shared.ask("PUT", "/v1/topics/t/schema", body).error == 422
