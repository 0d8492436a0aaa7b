"""Clients: what the broker knows of each connection, and how long it may stay silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.broker.access.policy import ANONYMOUS, NO_ORIGIN, Origin, Principal
from penstock.broker.live.rate_limits import TokenBucket
from penstock.broker.live.routing import LiveKind
from penstock.core.names import TopicPattern

if TYPE_CHECKING:
    from penstock.broker.access.audit import AuditTrail
    from penstock.broker.topics.topics import TopicState


class Pattern(Protocol):
    """A regular expression of a safe engine: linear in the text, whatever it says."""

    def search(self, text: str, /) -> object | None: ...


@dataclass(frozen=True, slots=True)
class LogFilter:
    levels: frozenset[str]
    pattern: Pattern | None

    def matches(self, level: str, text: str) -> bool:
        return level in self.levels and (self.pattern is None or self.pattern.search(text) is not None)


@dataclass(slots=True, kw_only=True)
class Client:
    """One connection. Its id is the `serviceId` of the system topics."""

    id: str
    address: str
    connected_ms: int
    heard_ms: int
    heartbeat_pending: bool = False
    """A heartbeat was asked for and nothing has come since."""

    name: str = ""
    description: str = ""
    subscriptions: dict[tuple[LiveKind, TopicPattern], int] = field(default_factory=dict)
    log_filter: LogFilter | None = None
    bucket: TokenBucket | None = None
    errors: int = 0
    connected: bool = True
    """Whether what is answered later still reaches anybody."""

    principal: Principal = ANONYMOUS
    """Who it is, as far as it has said."""

    surface: str = ""
    """What it came through; nothing where it came through none."""

    request_alive: Callable[[], bool] | None = None
    """It is no connection, but somebody who asks once: whether the answer is still waited for."""

    trail: AuditTrail | None = None
    """While it is looked at what it asks: what of that belongs into the audit log."""

    producer_topics: set[TopicState] = field(default_factory=set)
    """Topics of which it has registered a producer."""

    @property
    def awaits_answer(self) -> bool:
        """Whether an answer still reaches anybody: what takes long is given up if not."""
        return self.connected or (self.request_alive is not None and self.request_alive())

    @property
    def signature(self) -> str:
        """What is written beside something that it made: its name as a service, or who it has shown itself to be."""
        return self.name or self.principal.signature

    @property
    def origin(self) -> Origin:
        """For the audit log."""
        return Origin(self.surface, self.address, self.name) if self.surface else NO_ORIGIN


class Clients:
    """All of them, by id."""

    def __init__(self, *, retry_ms: int, deregister_ms: int) -> None:
        self._retry_ms = retry_ms
        self._deregister_ms = deregister_ms
        self._clients: dict[str, Client] = {}
        self.loggers: dict[str, Client] = {}
        """Those with a log filter: nearly always none."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def add(self, client: Client) -> None:
        self._clients[client.id] = client

    def get(self, client_id: str) -> Client | None:
        return self._clients.get(client_id)

    def remove(self, client_id: str) -> Client | None:
        self.loggers.pop(client_id, None)
        return self._clients.pop(client_id, None)

    def filter_logs(self, client: Client, wanted: LogFilter | None) -> None:
        client.log_filter = wanted
        self.loggers.pop(client.id, None)
        if wanted is not None:
            self.loggers[client.id] = client

    def silent(self, now_ms: int) -> tuple[list[Client], list[Client]]:
        """Those to ask whether they are there, and those that were asked and are not."""
        silence = [(client, now_ms - client.heard_ms) for client in self if now_ms - client.heard_ms >= self._retry_ms]
        ask = [client for client, _ in silence if not client.heartbeat_pending]
        gone = [client for client, ms in silence if client.heartbeat_pending and ms >= self._deregister_ms]
        return ask, gone
