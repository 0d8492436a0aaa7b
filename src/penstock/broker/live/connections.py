"""Clients: what the broker knows of each connection, and when a silent one is closed."""

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
    """A compiled regular expression whose matching time is linear in the text, whatever the expression."""

    def search(self, text: str, /) -> object | None: ...


@dataclass(frozen=True, slots=True)
class LogFilter:
    levels: frozenset[str]
    pattern: Pattern | None

    def matches(self, level: str, text: str) -> bool:
        return level in self.levels and (self.pattern is None or self.pattern.search(text) is not None)


@dataclass(slots=True, kw_only=True)
class Client:
    """A connection. System topics call its id `serviceId`."""

    id: str
    address: str
    connected_ms: int
    heard_ms: int
    heartbeat_pending: bool = False
    """True if a heartbeat was requested and nothing has come from the client since."""

    name: str = ""
    description: str = ""
    subscriptions: dict[tuple[LiveKind, TopicPattern], int] = field(default_factory=dict)
    log_filter: LogFilter | None = None
    bucket: TokenBucket | None = None
    errors: int = 0
    connected: bool = True
    """False once the connection is closed, so that no answer can reach the client."""

    principal: Principal = ANONYMOUS
    """The authenticated principal, or `ANONYMOUS`."""

    surface: str = ""
    """The listener through which the client connected, such as `tcp`; empty if there is none."""

    request_alive: Callable[[], bool] | None = None
    """For a single request without a connection: a function that returns whether its answer is still awaited."""

    trail: AuditTrail | None = None
    """The audit trail of the request that is being handled; None between requests."""

    producer_topics: set[TopicState] = field(default_factory=set)
    """Topics on which the client has registered a producer."""

    @property
    def awaits_answer(self) -> bool:
        """True while an answer can still reach the client. Long tasks end when it is False."""
        return self.connected or (self.request_alive is not None and self.request_alive())

    @property
    def signature(self) -> str:
        """The name that is stored with objects that the client creates: its service name, or else its principal."""
        return self.name or self.principal.signature

    @property
    def origin(self) -> Origin:
        """The place that its requests come from, for the audit log."""
        return Origin(self.surface, self.address, self.name) if self.surface else NO_ORIGIN


class Clients:
    """The clients of a broker, by id."""

    def __init__(self, *, retry_ms: int, deregister_ms: int) -> None:
        self._retry_ms = retry_ms
        self._deregister_ms = deregister_ms
        self._clients: dict[str, Client] = {}
        self.loggers: dict[str, Client] = {}
        """The clients that receive lines of the log; usually none."""

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
        """Return two lists of silent clients: those to send a heartbeat request to, and those to close, as they have
        not answered theirs in time."""
        silence = [(client, now_ms - client.heard_ms) for client in self if now_ms - client.heard_ms >= self._retry_ms]
        ask = [client for client, _ in silence if not client.heartbeat_pending]
        gone = [client for client, ms in silence if client.heartbeat_pending and ms >= self._deregister_ms]
        return ask, gone
