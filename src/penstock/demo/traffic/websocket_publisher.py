"""Events over a WebSocket: the wire protocol itself, one message at a time, as a page in a browser would speak it.

Each message has its producer's number, so that it can be sent again on the next connection and is stored once.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from contextlib import suppress
from typing import Any, Final

from picows import WSError, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from penstock.core.errors import QuotaExceeded, ServiceUnavailable, Timeout
from penstock.demo.base.ledger import Ledger, LogPosition
from penstock.demo.base.orders import TOPIC, Orders, Transport
from penstock.demo.traffic.schemas import SchemaVersion

NAME: Final = "web-page"
_AT_ONCE: Final = 500
"""Messages in flight: enough to share a commit, and few enough to be recognised afterwards."""
_RETRIABLE: Final = frozenset(each.code.value for each in (ServiceUnavailable, Timeout, QuotaExceeded))
_PAUSE_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 60.0
"""The time without progress after which it gives up."""


class WebSocketPublisher:
    """A publisher that sends every event of its transport, and notes every answer; it reconnects when the connection
    breaks."""

    transport: Final = Transport.WEBSOCKET

    def __init__(self, url: str, orders: Orders, ledger: Ledger, schema: SchemaVersion) -> None:
        self._url = url
        self._orders = orders
        self._ledger = ledger
        self._schema = schema
        numbers = orders.of(self.transport)
        self._sequence = {number: place for place, number in enumerate(numbers, 1)}
        self._waiting = deque(numbers)
        self._again: deque[int] = deque()
        """Answered events that are to be sent a second time."""

        self._stopped = False
        self.total = len(numbers)
        self.done = 0

    def run(self) -> None:
        """Send all events. Raises `ServiceUnavailable` if the broker does not come back."""
        asyncio.run(self._run())

    def stop(self) -> None:
        self._stopped = True

    async def _run(self) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        while self._waiting or self._again:
            before = self.done
            with suppress(OSError, WSError, _Broken):
                await self._talk()
            until = time.monotonic() + _PATIENCE_SECONDS if self.done > before else until
            if self._stopped or time.monotonic() > until:
                raise ServiceUnavailable("the WebSocket is closed, and the broker did not come back")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _talk(self) -> None:
        """Send over one connection until it breaks or all is sent. After each round, the events of it that are sent
        twice on purpose are sent again."""
        transport, listener = await ws_connect(_Conversation, self._url)
        assert isinstance(listener, _Conversation)  # noqa: S101 - we made it
        try:
            producer_id = await self._register(listener)
            while (self._waiting or self._again) and not self._stopped:
                turn = self._again or self._waiting
                await self._round(listener, turn, producer_id, again=turn is self._again)
        finally:
            transport.disconnect()

    async def _register(self, listener: _Conversation) -> int:
        asked = str(uuid.uuid4())
        facts = {"topic": TOPIC, "name": NAME}
        listener.send(f"request:system.producer.register:1.0.0:{asked}\n{json.dumps(facts)}".encode())
        while True:
            request_id, answer = await listener.next()
            if request_id == asked:
                return int(answer["producer_id"])

    async def _round(self, listener: _Conversation, turn: deque[int], producer_id: int, *, again: bool) -> None:
        """Send up to `_AT_ONCE` events from the queue `turn`, and wait for all their answers.

        `again` says that they were stored before and are sent a second time on purpose. Events without an answer, or
        with an error that a retry may cure, go back to the front of the queue in order, since a producer's numbers must
        rise.
        """
        asked = {str(uuid.uuid4()): turn.popleft() for _ in range(min(_AT_ONCE, len(turn)))}
        retry: list[int] = []
        try:
            for request_id, number in asked.items():
                listener.send(self._message(number, request_id, producer_id))
            while asked:
                request_id, answer = await listener.next()
                number = asked.pop(request_id)
                if answer.get("error", {}).get("code") in _RETRIABLE:
                    retry.append(number)
                else:
                    self._note(number, answer, again=again)
        finally:
            turn.extendleft(sorted([*retry, *asked.values()], reverse=True))

    def _message(self, number: int, request_id: str, producer_id: int) -> bytes:
        facts = {
            "type": self._orders.types[number],
            "key": self._orders.keys[number],
            "schema_id": self._schema.id,
            "schema_version": self._schema.version,
            "producer_id": producer_id,
            "producer_name": NAME,
            "request_id": self._sequence[number],
        }
        header = f"message:{TOPIC}:1.0.0:{request_id}\n{json.dumps(facts)}\n"
        return header.encode() + self._orders.payloads[number]

    def _note(self, number: int, answer: dict[str, Any], *, again: bool) -> None:
        error = answer.get("error")
        if again:
            self._note_again(number, answer)
        elif error is None:
            place = LogPosition(answer["partition"], answer["offset"])
            self._ledger.store(number, place, duplicate=answer["duplicate"])
            if self._orders.retried[number]:
                self._again.append(number)
        else:
            self._ledger.refuse(number, str(error["message"]))
        self.done += not again

    def _note_again(self, number: int, answer: dict[str, Any]) -> None:
        if "error" in answer:
            self._ledger.complain(f"event {number} was stored, and refused when it came again: {answer['error']}")
        else:
            place = LogPosition(answer["partition"], answer["offset"])
            self._ledger.repeat(number, place, duplicate=answer["duplicate"])


class _Broken(Exception):
    """The connection is over."""


class _Conversation(WSListener):
    """The receiving side of one connection: keeps answers in the order of their arrival, and answers heartbeats."""

    def __init__(self) -> None:
        self._answers: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue()
        self._transport: WSTransport | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        self._transport = None
        self._answers.put_nowait(None)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
        elif frame.msg_type in (WSMsgType.TEXT, WSMsgType.BINARY):
            self._take(frame.get_payload_as_bytes())

    def _take(self, data: bytes) -> None:
        header, _, payload = data.partition(b"\n")
        action, topic, _, *ids = header.decode().split(":")
        if action == "response" and ids:
            self._answers.put_nowait((ids[0], json.loads(payload)))
        elif topic == "system.heartbeat" and ids:
            self.send(f"response:{topic}:1.0.0:{ids[0]}\n".encode())

    def send(self, data: bytes) -> None:
        if self._transport is None:
            raise _Broken
        self._transport.send(WSMsgType.TEXT, data)

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return the next answer. Raises `_Broken` when the connection is over."""
        found = await self._answers.get()
        if found is None:
            raise _Broken
        return found
