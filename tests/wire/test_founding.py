"""The founding system's own conversations, as they were recorded, held again with a real broker.

The recordings are not part of this project: they lie in `shared/conformance` beside it, or where
`FOUNDING_CONVERSATIONS` says. What they teach is also in the transcripts beside this file, which are. Where we differ
on purpose, the row below says what we answer instead; `docs/protocol.md` gives the reasons.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from tests.beside import files_beside
from tests.wire.kit import UUID, Party, normalised

from penstock.testing import RunningBroker

_FILES: Final = files_beside("conformance/*.jsonl", "FOUNDING_CONVERSATIONS")
_SUCCESS: Final = '\n{"status":"success"}'

DIFFERENT: Final = {
    "system topics: case of the topic": _SUCCESS,
    "register with an empty payload": '"code":"INVALID_REQUEST","message":"Missing or invalid name or description"',
    'action "both" (in the docs)': _SUCCESS,
    'action "response"': '"code":"INVALID_REQUEST","message":"Missing or invalid action"',
    "single-level wildcard (in the docs)": _SUCCESS,
    "multi-level wildcard (in the docs)": _SUCCESS,
    "payload is JSON null": '"code":"INVALID_REQUEST","message":"Missing or invalid action"',
    "own subscriptions": '{"action":"publish","topic":"events.+"}',
    "topic list": '{"topics":[{"action":"publish","topic":"events.#"',
    "topic subscriptions": '{"subscriptions":[{"action":"publish","topic":"events.#"',
    "metrics": '"router.message.count":',
    "payload that is not UTF-8 (WS: in a binary frame): delivered with U+FFFD": _SUCCESS,
    "nothing is said at once when the server of an open request disconnects": '"code":"SERVICE_UNAVAILABLE"',
}
"""By the note of the exchange: what our answer contains where it is not theirs."""


def conversations() -> list[Any]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for file in _FILES:
        for line in file.read_text().splitlines():
            exchange = json.loads(line)
            found[exchange["transport"], exchange["scenario"]].append(exchange)
    return [pytest.param(*key, exchanges, id="-".join(key)) for key, exchanges in found.items()]


class Conversation:
    def __init__(self, broker: RunningBroker, transport: str) -> None:
        self._make: Callable[[], Party] = partial(Party, broker, transport)
        self.connections: dict[str, Party] = {}
        self._asked: dict[str, str] = {}

    def connection(self, name: str) -> Party:
        if name not in self.connections:
            self.connections[name] = self._make()
        return self.connections[name]

    def send(self, name: str, exchange: dict[str, Any]) -> None:
        """An answer goes under the id that our broker made, not under the recorded one."""
        hexed = exchange.get("sent_hex")
        message = bytes.fromhex(hexed) if hexed else str(exchange["sent"]).encode()
        own = UUID.search(message.decode(errors="replace"))
        if own is not None and not own[0].startswith("00000000-0000-4000"):
            message = message.replace(own[0].encode(), self._asked[name].encode())
        self.connection(name).send(message)

    def hear(self, name: str) -> str:
        message = self.connection(name).receive()
        assert message is not None
        found = UUID.search(message.decode(errors="replace"))
        if message.startswith(b"request:") and found is not None:
            self._asked[name] = found[0]
        return normalised(message)


@pytest.mark.skipif(not _FILES, reason="there are no recordings beside the repository")
@pytest.mark.parametrize(("transport", "scenario", "exchanges"), conversations() or [("", "", [])])
def test_a_recorded_conversation_goes_the_same_way_here(
    broker: RunningBroker, transport: str, scenario: str, exchanges: list[dict[str, Any]]
) -> None:
    talk = Conversation(broker, transport)
    try:
        for exchange in exchanges:
            hold(talk, exchange)
    finally:
        for connection in talk.connections.values():
            connection.close()


def hold(talk: Conversation, exchange: dict[str, Any]) -> None:
    note, name = exchange["note"], exchange["conn"]
    if note == "nothing is said at once when the server of an open request disconnects":
        talk.connections.pop("B").close()
        assert DIFFERENT[note] in talk.hear(name)
        return
    if exchange["sent"] is not None:
        talk.send(name, exchange)
    for recorded in exchange["received"]:
        agree(note, talk.hear(name), recorded)
    for other, messages in exchange["others"].items():
        for recorded in messages:
            heard = talk.hear(other)
            if note not in DIFFERENT:
                assert heard == recorded, note


def agree(note: str, heard: str, recorded: str) -> None:
    if note in DIFFERENT:
        assert DIFFERENT[note] in heard, note
        return
    if re.match(r"response:system\.service\.list", recorded):  # other tests are connected too
        assert '"name":"svc","description":"d","connectedAt":"<time>","lastHeartbeat":"<time>"' in heard
        return
    assert heard == recorded, note
