"""The schema registry over the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.kit import Peer, World

from penstock.broker.admin.schemas import TOPICS

CLOSED = {"type": "object", "additionalProperties": False}
FIRST = json.dumps({**CLOSED, "properties": {"age": {"type": "integer"}}})
WIDER = json.dumps({**CLOSED, "properties": {"age": {"type": "number"}}})
OTHER = json.dumps({**CLOSED, "properties": {"age": {"type": "string"}}})


@pytest.fixture
def world(kept: World) -> World:
    """A broker with a disk."""
    return kept


def ask(peer: Peer, what: str, **fields: Any) -> Any:
    return peer.ask(f"system.schema.{what}", fields)


def register(peer: Peer, schema: str = FIRST, subject: str = "people", **fields: Any) -> Any:
    return ask(peer, "register", subject=subject, type="JSON", schema=schema, **fields)


def number(answer: Any) -> int:
    return int(answer["error"]["details"]["registry_code"])


def test_a_schema_is_registered_once_and_found_every_way(ann: Peer) -> None:
    placed = {"subject": "people", "version": 1, "id": 1, "type": "JSON"}
    assert register(ann) == placed
    assert register(ann, FIRST.replace(" ", "")) == placed, "spaces mean nothing"
    assert register(ann, subject="others")["id"] == 1
    assert ask(ann, "lookup", subject="people", type="json", schema=FIRST) == placed
    found = ask(ann, "get", id=1)
    assert (found["schema"], found["type"], found["references"]) == (FIRST, "JSON", [])
    assert found["versions"] == [{"subject": "others", "version": 1}, {"subject": "people", "version": 1}]
    assert ask(ann, "get", subject="people", version="latest")["schema"] == FIRST
    assert ask(ann, "subjects") == {"subjects": ["others", "people"]}
    assert ask(ann, "subjects", prefix="p") == {"subjects": ["people"]}
    assert ask(ann, "subjects", after="others") == {"subjects": ["people"]}


def test_words_about_a_version_are_kept_with_who_registered_it(ann: Peer) -> None:
    ann.ask("system.service.register", {"name": "billing", "description": "bills"})
    register(ann, description="who lives here", tags=["team=a"])
    (version,) = ask(ann, "versions", subject="people")["versions"]
    assert (version["description"], version["tags"], version["created_by"]) == ("who lives here", ["team=a"], "billing")
    changed = ask(ann, "describe", subject="people", version=1, description="who lived here", tags=[])
    assert (changed["description"], "tags" in changed) == ("who lived here", False)
    assert ask(ann, "deprecate", subject="people", version=1, message="use 2")["deprecated"] == "use 2"
    assert "deprecated" not in ask(ann, "deprecate", subject="people", version=1, message=None)


def test_who_forgets_to_say_why_a_version_is_deprecated_does_not_take_it_back(ann: Peer) -> None:
    register(ann)
    ask(ann, "deprecate", subject="people", version=1, message="use 2")
    error = ask(ann, "deprecate", subject="people", version=1)["error"]
    assert error["message"] == "message must say why, or be null, which takes the deprecation back"
    assert ask(ann, "versions", subject="people")["versions"][0]["deprecated"] == "use 2"


def test_an_incompatible_one_is_refused_with_every_problem_and_what_would_mend_it(ann: Peer) -> None:
    register(ann)
    answer = register(ann, OTHER)
    assert number(answer) == 409
    details = answer["error"]["details"]
    assert (details["compatibility"], details["total"]) == ("BACKWARD", 1)
    (problem,) = details["problems"]
    assert problem["path"] == "/properties/age/type"
    assert (problem["version"], problem["direction"]) == (1, "BACKWARD")
    assert {"kind", "message", "fix", "reader", "writer"} <= problem.keys()


def test_checking_registers_nothing(ann: Peer) -> None:
    register(ann)
    verdict = ask(ann, "check", subject="people", type="JSON", schema=OTHER)
    assert (verdict["compatible"], verdict["compatibility"], len(verdict["problems"])) == (False, "BACKWARD", 1)
    assert ask(ann, "check", subject="people", type="JSON", schema=WIDER)["compatible"] is True
    assert ask(ann, "check", subject="people", type="JSON", schema=WIDER, version=1)["compatible"] is True
    assert len(ask(ann, "versions", subject="people")["versions"]) == 1


def test_any_two_can_be_compared(ann: Peer) -> None:
    register(ann)
    register(ann, WIDER)
    old, new = {"subject": "people", "version": 1}, {"id": 2}
    assert ask(ann, "compare", reader=new, writer=old)["compatible"] is True
    assert ask(ann, "compare", reader=old, writer=new)["compatible"] is False
    assert ask(ann, "compare", reader={"type": "JSON", "schema": "{}"}, writer=new)["compatible"] is True


def test_references_are_found_and_given_with_all_their_texts(ann: Peer) -> None:
    register(ann, '{"type":"integer"}', "ages")
    reference = {"name": "age.json", "subject": "ages", "version": 1}
    made = register(ann, '{"properties":{"age":{"$ref":"age.json"}}}', references=[reference])
    found = ask(ann, "get", id=made["id"], closure=True)
    assert found["references"] == [reference]
    assert found["closure"] == [["age.json", '{"type":"integer"}']]
    assert number(ask(ann, "delete", subject="ages")) == 42206


def test_deleting_is_soft_first_and_can_be_taken_back(ann: Peer) -> None:
    register(ann)
    assert number(ask(ann, "delete", subject="people", permanent=True)) == 40405
    assert ask(ann, "delete", subject="people", version=1) == {"versions": [1]}
    assert number(ask(ann, "get", subject="people", version="latest")) == 40401
    assert ask(ann, "get", subject="people", version=1)["deleted"] is True
    assert ask(ann, "undelete", subject="people") == {"versions": [1]}
    ask(ann, "delete", subject="people")
    assert ask(ann, "delete", subject="people", permanent=True) == {"versions": [1]}
    assert number(ask(ann, "get", id=1)) == 40403


def test_settings_are_inherited_until_a_subject_has_its_own(ann: Peer) -> None:
    general = {"compatibility": "BACKWARD", "lenient": False, "mode": "READWRITE", "inherited": True}
    assert ask(ann, "config") == general | {"inherited": False}
    assert ask(ann, "config", subject="people") == general
    own = ask(ann, "config", subject="people", compatibility="FULL", lenient=True, mode="READONLY")
    assert own == {"compatibility": "FULL", "lenient": True, "mode": "READONLY", "inherited": False}
    assert number(register(ann)) == 42205
    assert ask(ann, "config", subject="people", compatibility=None, mode=None) == general
    assert ask(ann, "config", subject="people", compatibility=None, mode=None) == general, "what is not set stays so"
    assert number(ask(ann, "config", compatibility="BEST")) == 42203


def test_what_is_exported_can_be_imported_elsewhere_with_its_ids(ann: Peer, tmp_path_factory: Any) -> None:
    register(ann, subject="others", schema=OTHER)
    register(ann)
    register(ann, WIDER)
    records = ask(ann, "export")["records"]
    assert len(records) == 3
    elsewhere = World(root=tmp_path_factory.mktemp("elsewhere"))
    bob = elsewhere.connect()
    assert ask(bob, "import", records=records) == {"imported": 3, "known": 0, "refused": []}
    assert ask(bob, "import", records=records)["known"] == 3
    assert ask(bob, "export")["records"] == records
    assert ask(bob, "export", after=2)["records"] == records[2:]
    elsewhere.close()


def test_the_registry_is_as_it_was_after_a_restart(world: World, ann: Peer) -> None:
    register(ann)
    register(ann, WIDER)
    before = ask(ann, "export")
    world.restart(reopen=True)
    again = world.connect()
    assert ask(again, "export") == before
    assert register(again, subject="new", schema=OTHER)["id"] == 3


@pytest.mark.parametrize(
    ("what", "fields", "words"),
    [
        ("register", {}, "Missing or invalid subject"),
        ("register", {"subject": "a", "type": "XML"}, "type is one of AVRO, JSON"),
        ("register", {"subject": "a", "schema": 7}, "schema must be the text"),
        ("register", {"subject": "a\n", "schema": '"int"'}, "not valid"),
        ("register", {"subject": "a", "schema": "?"}, "JSON"),
        ("register", {"subject": "a", "schema": '"int"', "references": [7]}, "a reference has a name"),
        ("register", {"subject": "a", "schema": '"int"', "who": 1}, "Unknown option 'who'"),
        ("get", {}, "Missing or invalid subject"),
        ("get", {"id": "7"}, "expected a whole number"),
        ("get", {"id": 7}, "Schema 7 not found"),
        ("get", {"subject": "a", "version": True}, "version must be a number"),
        ("compare", {"reader": {}}, "writer must be an object"),
        ("import", {"records": [7]}, "records must be a list of objects"),
        ("export", {"prefix": 7}, "Missing or invalid prefix"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_to_do(
    ann: Peer, what: str, fields: dict[str, Any], words: str
) -> None:
    assert words in ask(ann, what, **fields)["error"]["message"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["people", "latest", FIRST]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from(
    ["subject", "version", "type", "schema", "references", "id", "prefix", "after", "records", "reader", "writer"]
)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(sorted(TOPICS)), st.dictionaries(names, values, max_size=4)), max_size=6))
def test_whatever_is_asked_there_is_one_answer(tmp_path_factory: Any, asked: list[tuple[str, dict[str, Any]]]) -> None:
    world = World(root=tmp_path_factory.mktemp("asked"))
    peer = world.connect()
    register(peer)
    for topic, fields in asked:
        answer = peer.ask(topic, fields)
        assert "error" not in answer or answer["error"]["code"] != "INTERNAL_ERROR"
    world.close()
