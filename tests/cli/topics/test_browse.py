"""`penstock topic browse|get` and `penstock connection`, with a real broker."""

from __future__ import annotations

import pytest
from tests.cli.kit import Run

import penstock
from penstock.testing import RunningBroker

pytestmark = pytest.mark.usefixtures("at_keeper")


@pytest.fixture(scope="module")
def filled(keeper: RunningBroker) -> str:
    """A topic with twelve messages."""
    with penstock.connect(keeper.url) as client, client.producer("browse.orders") as producer:
        for number in range(12):
            kind = "order.paid" if number % 3 else "order.made"
            attributes = {"region": "eu" if number < 6 else "us"}
            producer.send(b"number %d" % number, type=kind, key=f"k{number % 2}", attributes=attributes)
    return "browse.orders"


def offsets(here: Run, *arguments: str) -> list[int]:
    done = here("topic", "browse", *arguments, "--json")
    assert done.code == 0, done.err
    return [row["offset"] for row in done.rows]


def test_messages_are_found_by_what_they_are(here: Run, filled: str) -> None:
    assert offsets(here, filled) == list(range(12))
    assert offsets(here, filled, "--type-regex", "made$") == [0, 3, 6, 9]
    assert offsets(here, filled, "--only-type", "*.made", "--attr", "region=us") == [6, 9]
    assert offsets(here, filled, "--only-key", "k0", "--contains", "number 1") == [10]
    assert offsets(here, filled, "--last", "2") == [10, 11]
    assert offsets(here, filled, "--from", "3", "--to", "5") == [3, 4]
    assert offsets(here, filled, "--limit", "3") == [0, 1, 2]


def test_people_see_the_messages_and_how_many_were_looked_at(here: Run, filled: str) -> None:
    done = here("topic", "browse", filled, "--only-type", "*.made")
    assert "number 9" in done.out
    assert "4 messages shown of 12 looked at" in done.err


def test_one_message_is_fetched_by_its_offset_or_id(here: Run, filled: str) -> None:
    (row,) = here("topic", "get", filled, "7", "--json").rows
    assert (row["payload"], row["type"]) == ("number 7", "order.paid")
    assert here("topic", "get", filled, row["id"], "--payload").raw == b"number 7"
    assert "number 7" in here("topic", "get", filled, "7").out


def test_what_is_wrong_is_refused_in_a_sentence(here: Run, filled: str) -> None:
    here("topic", "get", filled, "99").refused("OFFSET_OUT_OF_RANGE", "0 to 11")
    here("topic", "get", filled, "x").refused("message id")
    here("topic", "browse", "browse.nowhere").refused("TOPIC_NOT_SUPPORTED")


def test_connections_are_listed_and_closed(here: Run, at_keeper: str) -> None:
    with penstock.connect(at_keeper) as client:
        client.register("cli victim", "to be closed")
        (row,) = [each for each in here("connection", "ls", "--json").rows if each["name"] == "cli victim"]
        assert "cli victim" in here("connection", "ls").out
        assert (
            here("connection", "close", row["id"], "--reason", "a test").out == f"connection {row['id']} was closed\n"
        )
    here("connection", "close", row["id"]).refused("there is no connection")
