"""The audit of requests: names, no secrets, and a bounded number of them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.access.audit import TEXTS_MAX, audited_action
from penstock.broker.access.policy import NO_ACTION, AuditedAction, Operation, new_key
from penstock.broker.access.roles import SCOPE_CHARS_MAX

KEY = new_key(lambda size: bytes(size)).text
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"


def target(fields: dict[str, Any], operation: Operation = Operation.SERVER_MANAGE) -> dict[str, Any]:
    return dict(audited_action(operation, "x", fields).target)


def test_a_deed_says_what_was_named_in_the_order_of_the_table() -> None:
    fields = {"bindings": ["viewer", "admin@server"], "name": "shop", "expires_ms": 7}
    assert audited_action(Operation.SERVER_MANAGE, "system.key.create", fields) == AuditedAction(
        "system.key.create", (("name", "shop"), ("bindings", ("viewer", "admin@server")), ("expires_ms", "7"))
    )
    assert target({"version": 3, "permanent": True}, Operation.SCHEMA_DELETE) == {"version": "3", "permanent": "true"}


@pytest.mark.parametrize("operation", Operation)
def test_what_is_sent_is_not_told_but_for_names(operation: Operation) -> None:
    sent = {"payload": "mine", "token": "mine", "schema": "mine", "message": "mine"}
    assert audited_action(operation, "x", sent) == AuditedAction("x")


def test_the_key_of_a_message_is_no_name() -> None:
    assert target({"subscription": "billing", "key": "customer 7"}, Operation.MANAGE) == {"subscription": "billing"}


@pytest.mark.parametrize("secret", [KEY, f" {KEY}", JWT])
def test_a_secret_in_the_place_of_a_name_is_hidden(secret: str) -> None:
    assert target({"key": secret, "name": secret, "binding": [secret, "viewer"]}) == {
        "name": "(hidden)",
        "key": "(hidden)",
        "binding": ("(hidden)", "viewer"),
    }


@pytest.mark.parametrize("value", [None, "", [], [7, None], {}, 1.5, object(), False])
def test_what_is_no_text_is_left_out(value: object) -> None:
    assert target({"key": value}) == {}


def test_there_is_an_end_to_what_is_told() -> None:
    told = target({"key": "k" * 10_000, "binding": ["viewer"] * 10_000, "expires_ms": 10**5000})
    assert told == {"key": "k" * SCOPE_CHARS_MAX, "binding": ("viewer",) * TEXTS_MAX, "expires_ms": "(hidden)"}


def test_nothing_said_is_nothing() -> None:
    assert audited_action(Operation.PUBLISH, "", {}) is NO_ACTION
