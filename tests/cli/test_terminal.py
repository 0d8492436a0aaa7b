"""Text from messages, on a terminal and in a pipe: it never moves the cursor, and nothing of it is lost."""

from __future__ import annotations

import os
import pty

import pytest
from tests.cli.kit import Run, Start
from tests.cli.registry.test_schema import all_of

import penstock
from penstock.testing import RunningBroker

pytestmark = pytest.mark.usefixtures("at_keeper")

HOSTILE = b"a\x1b[2Jb\x9b31m\x07c\xc2\x9bd"
TYPE = "t\x1b]0;gone\x07"


def on_a_terminal(start: Start, *arguments: str) -> bytes:
    ours, theirs = pty.openpty()
    with start(*arguments, stdout=theirs) as process:
        assert process.wait(60) == 0
    os.close(theirs)
    return all_of(ours)


def obeyed(shown: bytes) -> list[str]:
    """Return characters that a terminal obeys, except line ends and our own colours."""
    for style in (b"\x1b[0m", b"\x1b[1m", b"\x1b[2m", b"\x1b[36m"):
        shown = shown.replace(style, b"")
    return [each for each in shown.decode() if not each.isprintable() and each not in "\r\n"]


@pytest.fixture
def topic(here: Run) -> str:
    """Produce one more hostile message, and return its topic."""
    made = here("produce", "terminal.hostile", "-", "--whole", "--key", "k\x1b[31m", "--type", TYPE, given=HOSTILE)
    assert made.code == 0
    return "terminal.hostile"


@pytest.mark.parametrize(
    "how",
    [
        ("consume", "{}", "--format", "%t %k %s %h %n"),
        ("consume", "{}", "--payload"),
        ("consume", "{}", "--json"),
        ("topic", "get", "{}", "0", "--payload"),
    ],
    ids=lambda how: " ".join(how),
)
def test_on_a_terminal_nothing_of_a_message_is_obeyed(start: Start, topic: str, how: tuple[str, ...]) -> None:
    shown = on_a_terminal(start, *(each.format(topic) for each in how))
    assert shown
    assert obeyed(shown) == []


def test_the_reason_that_a_consumer_gave_is_not_obeyed_where_another_waits(start: Start, keeper: RunningBroker) -> None:
    with penstock.connect(keeper.url) as client:
        client.publish("terminal.blocked", b"poison")
        options = {"start": "earliest", "redeliveries": 0, "exhausted": "block"}
        with client.consumer("terminal.blocked", "s", **options) as consumer:
            consumer.nack(consumer.receive(timeout=30), reason=HOSTILE.decode("latin-1"))
    with start("consume", "terminal.blocked", "--subscription", "s") as process:
        assert process.stderr is not None
        shown = next(line for line in process.stderr if b"waiting: " in line)
        process.terminate()
    assert rb"\x1b[2J" in shown
    assert obeyed(shown) == []


def test_who_wants_the_bytes_has_them_there_too(start: Start, topic: str) -> None:
    assert HOSTILE in on_a_terminal(start, "consume", topic, "--raw", "--payload")


def test_a_pipe_has_the_bytes_as_they_are(here: Run, topic: str) -> None:
    assert set(here("consume", topic, "--payload").raw.splitlines()) == {HOSTILE}
    assert TYPE.encode() in here("consume", topic, "--format", "%t").raw
    assert here("topic", "get", topic, "0", "--payload").raw == HOSTILE
