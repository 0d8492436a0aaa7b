"""The conversations of the protocol's page are held with a real broker, word by word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

import pytest
from tests.docs.test_docs import DOCS, blocks
from tests.wire.kit import TIME, Party

from penstock.testing import RunningBroker

PAGE: Final = DOCS / "protocol.md"
ASKED, STREAMED = (block for block in blocks(PAGE, "text") if block.startswith("> "))
REMARK: Final = re.compile(r" {2,}.*")
ID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
STAMPED: Final = re.compile(r'(?<="id":")[^"]*')
"""What the broker makes up: the id of a message."""
CUT: Final = re.compile(r"[0-9a-f]+\.\.\.")
PORT: Final = re.compile(r"(?<=127\.0\.0\.1:)\d+")
MESSAGES: Final = re.compile(r"\n(?=(?:response|message):)")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """One for all who leave nothing behind."""
    with RunningBroker() as running:
        yield running


@pytest.fixture(params=["tcp", "ws"])
def party(broker: RunningBroker, request: pytest.FixtureRequest) -> Iterator[Party]:
    yield from joined(broker, request.param)


def joined(broker: RunningBroker, transport: str) -> Iterator[Party]:
    found = Party(broker, transport)
    assert found.receive() == b"publish:system.initialize:1.0.0\n{}"
    yield found
    found.close()


def turns(transcript: str) -> Iterator[tuple[str, list[str]]]:
    """Who speaks, and the messages of it: a header and what follows."""
    for mark, lines in groupby(transcript.splitlines(), key=lambda line: line[0]):
        said = "\n".join(REMARK.sub("", line[2:]) for line in lines)
        yield mark, MESSAGES.split(said)


def agrees(wanted: str, heard: str) -> bool:
    """`...` stands for anything, an id that the broker gives for any, and its port for the one it has."""
    wanted = PORT.sub("PORT", STAMPED.sub("ID", CUT.sub("...", wanted.replace(", ...", ",..."))))
    pattern = re.escape(wanted).replace(r"\.\.\.", ".*").replace("PORT", r"\d+").replace('"ID"', f'"{ID}"')
    return re.fullmatch(pattern, heard, re.DOTALL) is not None


def held(party: Party, transcript: str) -> None:
    for mark, messages in turns(transcript):
        for message in messages:
            if mark == ">":
                party.send(message.encode())
            else:
                heard = (party.receive() or b"").decode()
                assert agrees(message, heard), (message, heard)


@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_the_conversation_about_streams_is_one(transport: str) -> None:
    with RunningBroker() as fresh:
        for party in joined(fresh, transport):
            held(party, STREAMED)


def test_the_question_of_the_page_is_answered_as_it_says(broker: RunningBroker, party: Party) -> None:
    service = Party(broker, "tcp")
    service.receive()
    service.send(
        b'request:system.topic.subscribe:1.0.0:00000000-0000-4000-8000-000000000001\n{"topic":"prices.quote","action":"request"}'
    )
    assert b'"status":"success"' in (service.receive() or b"")
    (_, (question,)), (_, (answer,)) = turns(ASKED)
    party.send(question.encode())
    heard = (service.receive() or b"").decode()
    head, _, payload = heard.partition("\n")
    assert (head.split(":")[:3], json.loads(payload)) == (["request", "prices.quote", "1.0.0"], {"item": 7})
    service.send(f'response:prices.quote:1.0.0:{head.split(":")[3]}\n{{"price": 12.5}}'.encode())
    assert (party.receive() or b"").decode() == answer
    service.close()


def test_the_error_of_the_page_is_the_one_that_is_sent(party: Party) -> None:
    (told,) = blocks(PAGE, "json", below="Errors")
    party.send(b"publish:orders.created:v1\n{}")
    _, _, payload = (party.receive() or b"").partition(b"\n")
    found, wanted = json.loads(payload)["error"], json.loads(told)["error"]
    assert all(TIME.fullmatch(each.pop("timestamp")) for each in (found, wanted))
    assert found == wanted
