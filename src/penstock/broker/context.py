"""The desk: ids, answers and errors, the same for everything the broker does."""

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

_ID_TAIL_MAX: Final = 0x7FFFFFFFFFFF  # half of what the last group of an id holds: the rest is for counting up

Reply = Callable[[Any], list[Effect]]
"""What is to be done once something is known: a value, or the `PenstockError` in its place."""


def errors_to(reply: Reply, then: Callable[..., list[Effect]]) -> Reply:
    """Go on with what was waited for; an error, also one that is raised there, is the answer."""

    def go_on(outcome: Any) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        try:
            return then(outcome)
        except PenstockError as error:
            return reply(error)

    return go_on


class BrokerContext:
    """`now_ms` is a clock that only goes forward; the time of day, for people, comes from a `Clock`."""

    def __init__(self, clock: Clock, random: Random, now_ms: int, access: AccessPolicy | None = None) -> None:
        self._clock = clock
        self._random = random
        self.now_ms = now_ms
        self.access = access or AccessPolicy()
        self.metrics = Metrics()
        self.redactor = PathRedactor()
        self.address = ""
        """Where clients reach this broker, for MessageIDs."""

    def new_id(self) -> str:
        """A UUID4. There is room to count up its last group within one read of a socket."""
        bits = self._random.getrandbits(122)
        tail = bits & _ID_TAIL_MAX
        variant = 0x8000 | (bits >> 48 & 0x3FFF)
        return f"{bits >> 90:08x}-{bits >> 74 & 0xFFFF:04x}-4{bits >> 62 & 0xFFF:03x}-{variant:04x}-{tail:012x}"

    def unix_ms(self) -> int:
        """The time of day."""
        return clock_ms(self._clock)

    def unix_ms_of(self, at_ms: int) -> int:
        """The time of day when the clock that only goes forward showed this."""
        return self.unix_ms() - (self.now_ms - at_ms)

    def answer(self, client_id: str, head: Head, request_id: str | None, payload: bytes) -> Send:
        return Send(client_id, response(head.topic, head.version, request_id or self.new_id(), payload))

    def redact(self, error: PenstockError) -> PenstockError:
        """An error as clients are told it."""
        return self.redactor.redact(error, self.now_ms)

    def error(self, error: PenstockError) -> bytes:
        return error_payload(self.redact(error), self.unix_ms())

    def failure(self, client: Client, error: PenstockError, count: int = 1) -> bytes:
        """The payload of an error that is the client's."""
        client.errors += count
        self.metrics.add("router.message.error", count)
        return self.error(error)

    def reply(self, client: Client, header: Header, *, always: bool = False) -> Reply:
        """Answers one message: with what is known then, as JSON, where an answer was asked for; errors in any case."""

        def answer(result: Any) -> list[Effect]:
            if isinstance(result, PenstockError):
                self.metrics.count_error(header.action)
                return [self.answer(client.id, header.head, header.request_id, self.failure(client, result))]
            if header.request_id is None and not always:
                return []
            payload = result if isinstance(result, bytes) else json_bytes(result)
            return [self.answer(client.id, header.head, header.request_id, payload)]

        return answer
