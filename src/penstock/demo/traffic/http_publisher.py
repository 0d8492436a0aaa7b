"""Events over HTTP, as any language can send them.

One POST is one message, or many as lines of JSON; each POST has a key of its own, so that it can be sent again and is
stored once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import urlencode

from penstock.core.errors import ServiceUnavailable
from penstock.demo.base.ledger import Ledger, LogPosition
from penstock.demo.base.orders import TOPIC, EventKind, Orders, Transport

PATH: Final = "/api/events"
_LINES: Final = 50
"""The most events of one POST. A POST is stored whole or not at all, so a malformed event, or one that is sent twice,
has a POST of its own."""
_TIMEOUT_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 60.0
"""The time that a POST is tried."""
_RETRIABLE: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)


class HttpPublisher:
    """A publisher that sends every event of its transport, and notes every answer; unanswered events are sent again."""

    transport: Final = Transport.HTTP

    def __init__(self, host: str, port: int, orders: Orders, ledger: Ledger) -> None:
        self._connection = HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        self._orders = orders
        self._ledger = ledger
        self._numbers = orders.of(self.transport)
        self._stopped = threading.Event()
        self.total = len(self._numbers)
        self.done = 0

    def run(self) -> None:
        """Send all events. Raises `ServiceUnavailable` if the broker does not come back."""
        with closing(self._connection):
            for start in range(0, self.total, _LINES):
                self._send(self._numbers[start : start + _LINES])

    def stop(self) -> None:
        self._stopped.set()

    def _send(self, numbers: list[int]) -> None:
        alone = [
            each for each in numbers if self._orders.retried[each] or self._orders.kinds[each] == EventKind.MALFORMED
        ]
        together = [each for each in numbers if each not in alone]
        if together:
            self._send_lines(together)
        for number in alone:
            self._send_one(number)

    def _send_lines(self, numbers: list[int]) -> None:
        body = b"\n".join(self._line(each) for each in numbers)
        address = f"{PATH}?{urlencode({'topic': TOPIC})}"
        status, answer = self._post(address, body, f"lines-{numbers[0]}", "application/x-ndjson")
        if status != HTTPStatus.OK:
            raise ServiceUnavailable(f"{len(numbers)} events over HTTP were refused together: {_message(answer)}")
        for number, stored in zip(numbers, answer["events"], strict=True):
            self._ledger.store(number, _position(stored), duplicate=stored.get("duplicate", False))
        self.done += len(numbers)

    def _line(self, number: int) -> bytes:
        facts = json.dumps({"type": self._orders.types[number], "key": self._orders.keys[number]})
        return b'%s,"payload":%s}' % (facts[:-1].encode(), self._orders.payloads[number])

    def _send_one(self, number: int) -> None:
        status, answer = self._post_one(number)
        if status == HTTPStatus.OK:
            self._ledger.store(number, _position(answer), duplicate=answer.get("duplicate", False))
        else:
            self._ledger.refuse(number, _message(answer))
        if self._orders.retried[number]:
            self._repeat(number)
        self.done += 1

    def _repeat(self, number: int) -> None:
        """Send an event again, as if the answer had been lost."""
        status, answer = self._post_one(number)
        if status == HTTPStatus.OK:
            self._ledger.repeat(number, _position(answer), duplicate=answer.get("duplicate", False))
        else:
            self._ledger.complain(f"event {number} was stored, and refused when it came again: {_message(answer)}")

    def _post_one(self, number: int) -> tuple[int, dict[str, Any]]:
        facts = {"topic": TOPIC, "type": self._orders.types[number], "key": self._orders.keys[number]}
        return self._post(f"{PATH}?{urlencode(facts)}", self._orders.payloads[number], f"event-{number}")

    def _post(self, address: str, body: bytes, key: str, media: str = "application/json") -> tuple[int, dict[str, Any]]:
        """Return the status and the answer, trying again for up to a minute. Raises `ServiceUnavailable` if none comes
        by then."""
        headers = {"Content-Type": media, "Idempotency-Key": key}
        for _ in self._attempts():
            with suppress(OSError, HTTPException):
                self._connection.request("POST", address, body, headers)
                response = self._connection.getresponse()
                answer = json.loads(response.read())
                if response.status not in _RETRIABLE:
                    return response.status, answer
            self._connection.close()
        raise ServiceUnavailable("HTTP is not answered, and the broker did not come back")

    def _attempts(self) -> Iterator[None]:
        until = time.monotonic() + _PATIENCE_SECONDS
        while not self._stopped.is_set() and time.monotonic() < until:
            yield
            self._stopped.wait(_PAUSE_SECONDS)


def _position(stored: dict[str, Any]) -> LogPosition:
    return LogPosition(stored["partition"], stored["offset"])


def _message(answer: dict[str, Any]) -> str:
    return str(answer["error"]["message"])
