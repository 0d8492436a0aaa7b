"""`penstock topic schema`, with a real broker."""

from __future__ import annotations

import pytest
from tests.cli.kit import Run

from penstock.cli.topics.topic_schema import has_open_content

pytestmark = pytest.mark.usefixtures("at_keeper")

SCHEMA = b'{"type": "object", "required": ["order"], "properties": {"order": {"type": "integer"}}}'


def test_a_topic_wants_nothing_until_it_is_told_to(here: Run) -> None:
    here("topic", "create", "/policies/none")
    assert here("topic", "schema", "show", "/policies/none", "--json").rows == [
        {
            "topic": "/policies/none",
            "policy": "none",
            "subjects": ["policies/none-value"],
            "payloads": False,
            "default": None,
            "deprecated": True,
        }
    ]
    shown = here("topic", "schema", "show", "/policies/none").out
    for words in ("none: schemas are not looked at", "policies/none-value (no version yet)", "not looked at"):
        assert words in shown


def test_every_wish_is_set_shown_and_taken_back(here: Run) -> None:
    here("topic", "create", "policies.all")
    here("schema", "register", "policies.b", "-", given=SCHEMA)
    wishes = ["--policy", "warn", "--subject", "policies.a", "--subject", "policies.b", "--payloads"]
    (found,) = here(
        "topic", "schema", "set", "policies.all", *wishes, "--default", "2", "--no-deprecated", "--json"
    ).rows
    assert found == {
        "topic": "/default/policies.all",
        "policy": "warn",
        "subjects": ["policies.a", "policies.b"],
        "payloads": True,
        "default": 2,
        "deprecated": False,
    }
    shown = here("topic", "schema", "show", "policies.all").out
    assert "subjects             policies.a (no version yet)\n" in shown
    assert "                     policies.b (latest version 1, id " in shown
    assert "default              version 2\n" in shown
    assert "deprecated versions  may not be named\n" in shown
    back = ["--subject", "none", "--no-payloads", "--default", "none", "--deprecated"]
    (found,) = here("topic", "schema", "set", "policies.all", *back, "--json").rows
    assert (found["policy"], found["subjects"], found["default"]) == ("warn", ["policies.all-value"], None)
    assert (found["payloads"], found["deprecated"]) == (False, True)


def test_enforcing_without_a_version_says_that_every_message_is_refused(here: Run) -> None:
    here("topic", "create", "policies.early")
    shown = here("topic", "schema", "set", "policies.early", "--policy", "enforce")
    assert shown.code == 0
    assert shown.err == (
        "every message is refused until there is a version: penstock schema register policies.early-value FILE\n"
    )
    refused = here("publish", "policies.early", '{"order": 1}')
    assert (refused.code, "SCHEMA_REJECTED" in refused.err) == (2, True)
    here("schema", "register", "policies.early-value", "-", given=SCHEMA)
    assert here("topic", "schema", "set", "policies.early", "--default", "latest", "--payloads").err == ""
    assert here("publish", "policies.early", '{"order": 1}').code == 0
    here("publish", "policies.early", '{"order": "one"}').refused("SCHEMA_REJECTED", "/order")


def test_a_default_that_is_not_there_is_said_and_what_is_set_is_described(here: Run) -> None:
    here("topic", "create", "policies.late")
    here("schema", "register", "policies.late-value", "-", given=SCHEMA)
    shown = here("topic", "schema", "set", "policies.late", "--policy", "warn", "--default", "77", "--payloads")
    assert shown.err.startswith("policies.late-value has no version 77: messages that name no schema get none")
    here("schema", "delete", "policies.late-value", "--yes")
    shown = here("topic", "schema", "set", "policies.late", "--default", "latest")
    assert shown.err.startswith("policies.late-value has no version: ")
    described = here("topic", "describe", "policies.late").out
    for words in (
        "schema policy      warn\n",
        "schema payloads    checked against the version they name\n",
        "schema default     latest\n",
    ):
        assert words in described


def test_enforcing_checks_payloads_unless_told_not_to(here: Run) -> None:
    here("topic", "create", "policies.checked")
    here("schema", "register", "policies.checked-value", "-", given=SCHEMA)
    shown = here("topic", "schema", "set", "policies.checked", "--policy", "enforce", "--default", "latest")
    assert "payloads             checked against the version they name\n" in shown.out
    assert shown.err == ""
    here("publish", "policies.checked", '{"order": "one"}').refused("SCHEMA_REJECTED", "/order")
    shown = here("topic", "schema", "set", "policies.checked", "--no-payloads")
    assert "payloads             not looked at: ids only (--payloads checks them)\n" in shown.out
    assert "schema payloads    not looked at: ids only" in here("topic", "describe", "policies.checked").out
    assert here("publish", "policies.checked", '{"order": "one"}').code == 0
    assert (
        here("topic", "schema", "set", "policies.checked", "--policy", "enforce", "--json").rows[0]["payloads"] is False
    )


def test_a_schema_that_takes_any_object_is_pointed_out(here: Run) -> None:
    here("topic", "create", "policies.open")
    here("schema", "register", "policies.open-value", "-", given=b'{"properties": {"order": {"type": "integer"}}}')
    told = here("topic", "schema", "set", "policies.open", "--policy", "enforce").err
    assert told.startswith("policies.open-value takes any object: it requires no property and allows others")
    assert here("topic", "schema", "set", "policies.open", "--no-payloads").err == ""


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("{}", True),
        ("true", True),
        ('{"type": "object", "properties": {"a": {}}, "additionalProperties": true}', True),
        ('{"type": "object", "additionalProperties": {}}', True),
        ("false", False),
        ('{"type": "integer"}', False),
        ('{"required": ["a"]}', False),
        ('{"additionalProperties": false}', False),
        ('{"additionalProperties": {"type": "string"}}', False),
        ('{"unevaluatedProperties": false}', False),
        ('{"$ref": "x"}', False),
    ],
)
def test_open_content_is_recognised(text: str, is_open: bool) -> None:
    assert has_open_content(text) is is_open


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "nothing to change: give at least one option, such as --policy enforce"),
        (["--policy", "strict"], "schema_policy"),
        (["--default", "first"], "--default: 'first' is no version"),
        (["--subject", ""], "subject"),
        (["--subject", "policies.a", "--subject", "none"], "--subject none means none at all: give it alone"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(here: Run, options: list[str], words: str) -> None:
    here("topic", "create", "policies.bad")
    here("topic", "schema", "set", "policies.bad", *options).refused(words)


def test_a_topic_that_is_not_there_is_named(here: Run) -> None:
    here("topic", "schema", "show", "policies.nowhere").refused("TOPIC_NOT_SUPPORTED", "policies.nowhere")
    here("topic", "schema", "set", "policies.nowhere", "--policy", "warn").refused("TOPIC_NOT_SUPPORTED")
