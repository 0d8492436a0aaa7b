"""`penstock dlq`, with a real broker: the options; redriving itself is tested with the client."""

from __future__ import annotations

import re
import time

import pytest
from tests.cli.kit import Run, Start, ended

import penstock
from penstock.client.sync import Client

pytestmark = pytest.mark.usefixtures("at_keeper")


def fail(url: str, topic: str, *payloads: bytes, subscription: str = "s", reason: str = "bad", kind: str = "t") -> None:
    """Let messages fail, each at once for good, one after another."""
    with penstock.connect(url) as client:
        options = {"start": "latest", "redeliveries": 0}
        with client.consumer(topic, subscription, **options) as consumer, client.producer(topic, type=kind) as producer:
            for payload in payloads:
                producer.send(payload)
                message = consumer.receive(timeout=20)
                assert message is not None
                consumer.nack(message, reason=reason)
                settled(client, topic, subscription)


def settled(client: Client, topic: str, subscription: str) -> None:
    facts = {"topic": topic, "subscription": subscription}
    until = time.monotonic() + 20
    while client.ask("system.subscription.describe", facts)["lag"]:
        assert time.monotonic() < until


def test_dead_letters_are_listed_shown_sent_back_and_dropped(here: Run, at_keeper: str) -> None:
    fail(at_keeper, "/dead/orders", b"1", b"2", b"3", reason="no such customer")
    (row,) = [row for row in here("dlq", "ls", "--json").rows if row["topic"] == "/dead/orders"]
    assert (row["left"], row["messages"], row["dead_letters"]) == (3, 3, "/dead-dlq/orders")
    assert "/dead/orders" in here("dlq", "ls").out
    shown = here("dlq", "show", "/dead/orders", "--limit", "2").out
    assert shown.count("x-failure-reason: no such customer") == 2
    assert [row["payload"] for row in here("dlq", "show", "/dead/orders", "--json").rows] == ["1", "2", "3"]

    planned = here("dlq", "redrive", "/dead/orders", "--dry-run", "-n", "2")
    assert planned.out == "0  redrive  no such customer\n1  redrive  no such customer\n"
    assert [row["verdict"] for row in here("dlq", "redrive", "/dead/orders", "--dry-run", "--json").rows] == [
        "redrive"
    ] * 3
    assert here("sub", "ls", "/dead-dlq/orders", "--json").rows == []

    done = here("dlq", "redrive", "/dead/orders", "--limit", "1")
    assert done.out == "1 dead letter sent back to /dead/orders\n"
    assert here("consume", "/dead/orders", "--from", "3", "--format", "%s %h").out == '1 {"x-redrive-count": "1"}\n'
    (facts,) = here("dlq", "redrive", "/dead/orders", "-n", "1", "--rate", "1000", "--json").rows
    counts = {"redriven": 1, "repeated": 0, "too_often": 0, "strangers": 0, "refused": 0}
    assert facts == {"topic": "/dead/orders"} | counts

    asked = here("dlq", "drop", "/dead/orders", given=b"n\n")
    assert (asked.code, "1 dead letter of /dead/orders would be dropped. Drop? [y/N]" in asked.err) == (2, True)
    assert here("dlq", "drop", "/dead/orders", "--yes").out == "1 dead letter of /dead/orders dropped\n"
    assert here("dlq", "drop", "/dead/orders", "--json").rows == [{"topic": "/dead/orders", "dropped": 0}]
    assert here("dlq", "show", "/dead/orders").out == ""
    (row,) = [row for row in here("dlq", "ls", "--json").rows if row["topic"] == "/dead/orders"]
    assert (row["left"], row["messages"]) == (0, 3)


def test_filters_choose_and_the_rest_is_left(here: Run, at_keeper: str) -> None:
    fail(at_keeper, "/dead/filtered", b"1", reason="timeout of billing", kind="order.created")
    fail(at_keeper, "/dead/filtered", b"2", subscription="other", reason="bad", kind="order.paid")
    topic = "/dead/filtered"

    def seen(*options: str) -> list[str]:
        return [row["payload"] for row in here("dlq", "show", topic, "--json", *options).rows]

    assert seen("--only-type", "order.c*") == ["1"]
    assert seen("--reason", "*timeout*") == ["1"]
    assert seen("--subscription", "other") == ["2"]
    assert seen("--subscription", "other", "--only-type", "order.created") == []
    here("dlq", "drop", topic, "--subscription", "other", "-y")
    assert seen() == ["1"]
    assert here("dlq", "redrive", topic, "--reason", "none of them").out.startswith("0 dead letters")
    assert seen() == ["1"]


def test_a_letter_that_came_back_too_often_is_left(here: Run, at_keeper: str) -> None:
    with penstock.connect(at_keeper) as client:
        attributes = {"x-original-topic": "/dead/often", "x-redrive-count": "3"}
        with client.producer("/dead-dlq/often") as producer:
            producer.send(b"again", attributes=attributes)
            producer.send(b"stranger")
    here("topic", "create", "/dead/often")
    left = "1 left: sent back too often already, 1 left: not dead letters of this topic"
    assert here("dlq", "redrive", "/dead/often").out == f"0 dead letters sent back to /dead/often, {left}\n"
    planned = here("dlq", "redrive", "/dead/often", "--dry-run").out
    assert planned == "0  left: sent back too often  \n1  left: not a dead letter of this topic  \n"
    (facts,) = here("dlq", "redrive", "/dead/often", "--max-redrives", "4", "--json").rows
    assert (facts["redriven"], facts["strangers"]) == (1, 1)


def test_an_error_says_how_far_it_came(here: Run, at_keeper: str) -> None:
    fail(at_keeper, "/dead/gone", b"1")
    here("topic", "delete", "/dead/gone", "--yes")
    here("dlq", "redrive", "/dead/gone").refused(
        "there is no topic /dead/gone", "before that: 0 dead letters sent back"
    )


def test_a_letter_that_the_topic_refuses_is_named_with_what_to_do(here: Run, at_keeper: str) -> None:
    fail(at_keeper, "/dead/strict", b"1", b"2")
    here("dlq", "redrive", "/dead/strict", "--limit", "1")
    here("topic", "schema", "set", "/dead/strict", "--policy", "enforce")
    here("dlq", "redrive", "/dead/strict").refused(
        "SCHEMA_REJECTED: the dead letter at offset 1: the message names no schema, and",
        "`penstock topic schema set /dead/strict --default latest`",
        "`penstock dlq drop` gives up what is left; ",
        "all in all: 0 dead letters sent back to /dead/strict, 1 left: refused",
    )


def test_letters_that_the_topic_refuses_do_not_keep_the_others(here: Run, at_keeper: str) -> None:
    fail(at_keeper, "/dead/mixed", b"1", *[b"x" * 100] * 4, b"6")
    here("topic", "alter", "/dead/mixed", "--payload-bytes", "10")
    done = here("dlq", "redrive", "/dead/mixed", "--json")
    assert (done.code, done.out) == (2, "")
    error = done.error
    assert error["code"] == "PAYLOAD_TOO_LARGE"
    facts = error["details"]
    assert (facts["topic"], facts["redriven"], facts["refused"]) == ("/dead/mixed", 2, 4)
    assert [each["offset"] for each in facts["refusals"]] == [1, 2, 3, 4]
    assert [row["payload"] for row in here("dlq", "show", "/dead/mixed", "--json").rows] == ["x" * 100] * 4
    here("dlq", "redrive", "/dead/mixed").refused(
        "the dead letter at offset 1: ",
        "the dead letter at offset 3: ",
        "; 1 more; `penstock topic describe /dead/mixed` has its limits; ",
        "all in all: 0 dead letters sent back to /dead/mixed, 4 left: refused",
    )


def test_an_interrupted_redrive_says_how_far_it_came(here: Run, start: Start, at_keeper: str) -> None:
    with penstock.connect(at_keeper) as client, client.producer("/dead-dlq/slow") as producer:
        producer.send_many([b"x"] * 500, attributes={"x-original-topic": "/dead/slow"})
    here("topic", "create", "/dead/slow")
    with start("dlq", "redrive", "/dead/slow", "--rate", "10") as process:
        until = time.monotonic() + 30
        while here("topic", "describe", "/dead/slow", "--json").rows[0]["messages"] < 3:
            assert time.monotonic() < until
        code, out, err = ended(process)
    assert (code, out) == (130, b"")
    said = re.fullmatch(r"penstock: interrupted: (\d+) dead letters? sent back to /dead/slow\n", err.decode())
    assert said is not None
    sent = here("topic", "describe", "/dead/slow", "--json").rows[0]["messages"]
    assert sent - 1 <= int(said[1]) <= sent


@pytest.mark.parametrize("command", ["show", "redrive", "drop"])
def test_what_is_not_there_is_said(here: Run, command: str) -> None:
    here("dlq", command, "/dead/none").refused("/dead/none has no dead letters", "/dead-dlq/none")
    here("dlq", command, "a b").refused("topic")
    here("dlq", command, "/-dlq/t").refused()


@pytest.mark.parametrize(
    "options",
    [
        ["--limit", "0"],
        ["--rate", "0"],
        ["--max-redrives", "0"],
        ["--max-redrives", "1001"],
        ["--limit", "x"],
        ["--rate", "1.5"],
        ["--what"],
    ],
)
def test_a_number_that_cannot_be_is_a_wrong_command_line(here: Run, options: list[str]) -> None:
    done = here("dlq", "redrive", "/dead/none", *options)
    assert (done.code, done.out) == (2, "")
    assert options[0] in done.err
