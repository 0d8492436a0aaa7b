"""The broker's context, which all its parts share: ids, clocks, metrics, and how replies and errors are framed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from penstock.broker.access.policy import AccessPolicy
from penstock.broker.base.effects import Effect, Send
from penstock.broker.base.metrics import Metrics
from penstock.broker.base.redaction import PathRedactor
from penstock.broker.base.replies import error_payload, json_bytes, response
from penstock.broker.live.connections import Client
from penstock.core.clock import Clock
from penstock.core.clock import now_ms as clock_ms
from penstock.core.errors import PenstockError
from penstock.protocol.header import Head, Header

_ID_TAIL_MAX: Final = 0x7FFFFFFFFFFF  # half of the last group's range: the rest is for counting up

Reply = Callable[[Any], list[Effect]]
"""A continuation: takes the outcome, which is a value or a `PenstockError`, and returns the effects that follow."""


def errors_to(reply: Reply, then: Callable[..., list[Effect]]) -> Reply:
    """Return a continuation that passes a value to `then`, and an error to `reply`. An error that `then` raises goes to
    `reply` too."""

    def go_on(outcome: Any) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        try:
            return then(outcome)
        except PenstockError as error:
            return reply(error)

    return go_on


class BrokerContext:
    """Shared state of one broker. `now_ms` is a monotonic clock; the time of day, which only people need, comes from a
    `Clock`."""

    def __init__(self, clock: Clock, random: Random, now_ms: int, access: AccessPolicy | None = None) -> None:
        self._clock = clock
        self._random = random
        self.now_ms = now_ms
        self.access = access or AccessPolicy()
        self.metrics = Metrics()
        self.redactor = PathRedactor()
        self.address = ""
        """The address at which clients reach this broker. Message ids sent to consumers contain it."""

    def new_id(self) -> str:
        """Create a UUID4. Its last group leaves room for counting up: the messages of one read get consecutive ids."""
        bits = self._random.getrandbits(122)
        tail = bits & _ID_TAIL_MAX
        variant = 0x8000 | (bits >> 48 & 0x3FFF)
        return f"{bits >> 90:08x}-{bits >> 74 & 0xFFFF:04x}-4{bits >> 62 & 0xFFF:03x}-{variant:04x}-{tail:012x}"

    def unix_ms(self) -> int:
        """Return the time of day, in ms since 1970."""
        return clock_ms(self._clock)

    def unix_ms_of(self, at_ms: int) -> int:
        """Convert a time of the monotonic clock to the time of day, in ms since 1970."""
        return self.unix_ms() - (self.now_ms - at_ms)

    def answer(self, client_id: str, head: Head, request_id: str | None, payload: bytes) -> Send:
        return Send(client_id, response(head.topic, head.version, request_id or self.new_id(), payload))

    def redact(self, error: PenstockError) -> PenstockError:
        """Return the error as clients may see it: without paths of the server."""
        return self.redactor.redact(error, self.now_ms)

    def error(self, error: PenstockError) -> bytes:
        return error_payload(self.redact(error), self.unix_ms())

    def failure(self, client: Client, error: PenstockError, count: int = 1) -> bytes:
        """Count `count` errors of a client, and return the payload that tells it of the error."""
        client.errors += count
        self.metrics.add("router.message.error", count)
        return self.error(error)

    def reply(self, client: Client, header: Header, *, always: bool = False) -> Reply:
        """Return the reply to one message. It answers a result, as JSON unless it is bytes, if the message has a
        request id or with `always`; it answers an error in any case."""

        def answer(result: Any) -> list[Effect]:
            if isinstance(result, PenstockError):
                self.metrics.count_error(header.action)
                return [self.answer(client.id, header.head, header.request_id, self.failure(client, result))]
            if header.request_id is None and not always:
                return []
            payload = result if isinstance(result, bytes) else json_bytes(result)
            return [self.answer(client.id, header.head, header.request_id, payload)]

        return answer
