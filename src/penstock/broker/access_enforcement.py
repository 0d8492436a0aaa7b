"""The access enforcer: authenticates connections, and disconnects them when they lose access.

`AccessPolicy` decides who may do what. This module applies it to connections: it ends those that do not authenticate in
time and those whose credentials end, and removes consumers that may no longer consume. Time and the catalog are
arguments.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.broker.access.policy import ANONYMOUS, SERVER, AccessPolicy, Operation, Principal, Resource, unauthorized
from penstock.broker.base.effects import Close, Effect, RunInThread, Send
from penstock.broker.base.replies import response
from penstock.broker.context import BrokerContext
from penstock.broker.live.connections import Client, Clients
from penstock.broker.live.routing import LiveKind, Routes
from penstock.broker.permissions import LIVE_OPERATIONS
from penstock.broker.subscriptions.service import Subscriptions
from penstock.core.errors import InvalidRequest, PenstockError, Unauthorized
from penstock.core.names import TopicName
from penstock.protocol.header import NO_HEADER
from penstock.storage.catalog.access import AccessCatalog, AccessRows

UNKNOWN_MS_MAX: Final = 10_000
"""The time in which a connection must authenticate: long enough for a slow network, too short for idle connections to
pile up."""

READ_EVERY_MS: Final = 500
"""The interval at which keys and bindings are read, as other processes change them: a connection with a revoked key is
closed within a second."""

_LOG: Final = logging.getLogger(__name__)


class AccessEnforcer:
    """Access control, carried out on the connections of one broker."""

    def __init__(self, context: BrokerContext, clients: Clients, routes: Routes) -> None:
        self._context = context
        self._clients = clients
        self._routes = routes
        self._catalog: AccessCatalog | None = None
        self._subscriptions: Subscriptions | None = None
        self._next_read_ms = context.now_ms
        self._reading_catalog = False
        self._read_failed = False
        self.access.now_ms = context.unix_ms()
        if self.access.enabled:
            routes.allowed = self._may_receive

    @property
    def access(self) -> AccessPolicy:
        return self._context.access

    def attach(self, catalog: AccessCatalog, subscriptions: Subscriptions) -> None:
        """Set the catalog of keys and bindings, and the subscriptions whose consumers are removed when they lose
        access. If access control is on, the catalog is read at once."""
        self._catalog, self._subscriptions = catalog, subscriptions
        if self.access.enabled:
            self.access.load(catalog.load())

    def _may_receive(self, kind: LiveKind, client_id: str, topic: TopicName) -> bool:
        """Return whether a client may receive messages of a topic that it subscribed to. The routes cache the answer
        until `Routes.forget`."""
        client = self._clients.get(client_id)
        return client is not None and self.may_receive(client.principal, kind, topic)

    def may_receive(self, principal: Principal, kind: LiveKind, topic: TopicName) -> bool:
        return self.access.allows(principal, LIVE_OPERATIONS[kind], Resource.topic(topic))

    # authentication

    def authenticate(self, client: Client, token: str) -> Principal:
        """Authenticate a connection and return its principal. Raises `BadCredentials`, or `InvalidRequest` if the
        connection has authenticated as another principal before."""
        principal = self.access.authenticate(token, client.origin)
        before = client.principal
        if before.name != principal.name and (before.key_id or before.expires_ms is not None):
            raise InvalidRequest(f"this connection is {before}'s: connect once more to be {principal}", field="token")
        client.principal = principal
        self._routes.forget()
        _LOG.info("authenticated", extra={"client": client.id, "principal": principal.name})
        return principal

    # changes

    def load(self, rows: AccessRows) -> list[Effect]:
        """Replace keys and bindings. Returns the effects that end connections and subscriptions that lose access."""
        return self._enforce_again() if self.access.load(rows) and self.access.enabled else []

    def trust_changed(self) -> list[Effect]:
        """Check all connections again after another change of permissions, such as of the trusted token issuers.
        Returns the effects that end what is no longer allowed."""
        self.access.invalidate()
        return self._enforce_again() if self.access.enabled else []

    def _enforce_again(self) -> list[Effect]:
        self._routes.forget()
        effects: list[Effect] = []
        for client in list(self._clients):
            if client.principal is not ANONYMOUS and not self.access.is_live(client.principal):
                effects += self._disconnect(client, unauthorized(client.principal))
            else:
                effects += self._end_unpermitted(client)
        return effects

    def _end_unpermitted(self, client: Client) -> list[Effect]:
        """End the log and durable subscriptions that the client may no longer have. The connection stays open."""
        if client.log_filter is not None and not self.access.allows(client.principal, Operation.SERVER_VIEW, SERVER):
            self._clients.filter_logs(client, None)
        if self._subscriptions is None:
            return []
        return self._subscriptions.revoke(
            client, lambda topic: self.may_receive(client.principal, LiveKind.PUBLISH, topic)
        )

    def _disconnect(self, client: Client, reason: PenstockError) -> list[Effect]:
        last_frame = response(NO_HEADER.topic, NO_HEADER.version, self._context.new_id(), self._context.error(reason))
        return [Send(client.id, last_frame), Close(client.id, reason)]

    # time

    def next_due_ms(self, due_ms: int) -> int:
        """Return when `tick` must be called next: `due_ms`, or earlier if keys and bindings are to be read before
        that."""
        return min(due_ms, self._next_read_ms) if self.access.enabled and not self._reading_catalog else due_ms

    def tick(self) -> list[Effect]:
        self.access.now_ms = self._context.unix_ms()
        if not self.access.enabled:
            return []
        effects = [each for client in list(self._clients) for each in self._overdue(client)]
        if self._catalog is not None and not self._reading_catalog and self._next_read_ms <= self._context.now_ms:
            self._reading_catalog = True
            catalog, revision = self._catalog, self.access.stored_revision
            effects.append(RunInThread(lambda: _load_if_newer(catalog, revision), self._catalog_read, read_only=True))
        return effects

    def _overdue(self, client: Client) -> list[Effect]:
        if client.principal is not ANONYMOUS:
            live = self.access.is_live(client.principal)
            return [] if live else self._disconnect(client, unauthorized(client.principal))
        if self._context.now_ms - client.connected_ms < UNKNOWN_MS_MAX:
            return []
        silent = Unauthorized(f"nobody said within {UNKNOWN_MS_MAX // 1000} s who this is; closing the connection")
        return self._disconnect(client, silent)

    def _catalog_read(self, outcome: AccessRows | PenstockError | None) -> list[Effect]:
        self._reading_catalog = False
        self._next_read_ms = self._context.now_ms + READ_EVERY_MS
        if isinstance(outcome, PenstockError):
            if not self._read_failed:
                _LOG.warning("keys and bindings cannot be read", extra={"error": outcome.message})
            self._read_failed = True
            return []
        self._read_failed = False
        return [] if outcome is None else self.load(outcome)


def _load_if_newer(catalog: AccessCatalog, revision: int) -> AccessRows | None:
    """Load keys and bindings, or return None if they have not changed. Runs in another thread."""
    return None if catalog.revision() == revision else catalog.load()
