"""The state of operations: the last metrics, and the count of HTTP responses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from typing import Final, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.broker.reads.publish_times import published_ms
from penstock.server.api.routing import SCOPE_ROUTE
from penstock.server.operations.health import Health, HealthConditions, append_failures
from penstock.server.operations.metrics import measured, render
from penstock.server.operations.process import process_figures
from penstock.server.operations.snapshot import BrokerSnapshot, SessionSource, SnapshotCollector, SubscriptionSnapshot
from penstock.storage.store import Store

_CACHE_MS: Final = 1_000
"""The milliseconds for which metrics are reused, so that several scrapers in the same second cost no more than one."""
NO_ROUTE: Final = "none"
"""The route label, in metrics, of requests that match no route. Their paths are not shown, since clients can send any
number of different ones."""


class OpenStreams(Protocol):
    """The event streams as the metrics need them."""

    @property
    def streams(self) -> int:
        """The number of open streams."""
        ...

    @property
    def queued_bytes(self) -> int:
        """The bytes that these streams' readers have not taken yet."""
        ...


class OperationsState:
    """The health checks and metrics of one server. `answered` counts HTTP responses by method, route and status."""

    def __init__(self, hub: SessionSource, store: Store, conditions: HealthConditions, streams: OpenStreams) -> None:
        self._hub = hub
        self._streams = streams
        self._store = store
        self._collector = SnapshotCollector(hub, store)
        self._conditions = conditions
        self._turn = asyncio.Lock()
        self._text = b""
        self._rendered_ms = 0
        self.answered: Counter[tuple[str, str, str]] = Counter()

    # health

    def alive(self) -> Health:
        return self._conditions.alive()

    async def ready(self) -> Health:
        return await asyncio.to_thread(self._conditions.ready, append_failures(self._hub.broker))

    # measurements

    async def metrics(self) -> bytes:
        """Return the metrics in the text format of Prometheus; they are at most a second old."""
        async with self._turn:
            if not self._text or self._hub.now_ms() - self._rendered_ms >= _CACHE_MS:
                snapshot = replace(
                    await self._collector.collect(),
                    http=dict(self.answered),
                    http_streams=self._streams.streams,
                    http_streams_queued=self._streams.queued_bytes,
                )
                self._text = await asyncio.to_thread(self._render, snapshot)
                self._rendered_ms = self._hub.now_ms()
            return self._text

    def _render(self, snapshot: BrokerSnapshot) -> bytes:
        """Return the metrics as text. It runs in a thread, because it reads files and encodes much text."""
        health = self._conditions.ready(snapshot.storage.failed if snapshot.storage is not None else ())
        return render(
            measured(
                replace(
                    snapshot,
                    lags=self._lags(snapshot),
                    free=self._store.free_bytes(),
                    checks={check.name: check.ok for check in health.checks},
                    process=process_figures(),
                )
            )
        )

    def _lags(self, snapshot: BrokerSnapshot) -> dict[tuple[str, str], float]:
        return {
            (sub.topic, sub.name): _lag(sub, snapshot.unix_ms) for sub in snapshot.shown_subscriptions if sub.floors
        }


def _lag(sub: SubscriptionSnapshot, unix_ms: int) -> float:
    """Return the age in seconds of the oldest message that the subscription has not acknowledged; 0 if there is none
    that can be read."""
    times = [time for log, floor in sub.floors if (time := published_ms(log, floor)) is not None]
    return max(0.0, (unix_ms - min(times)) / 1000) if times else 0.0


class RequestCounter:
    """ASGI middleware that counts responses by method, route and status."""

    def __init__(self, app: ASGIApp, operations: OperationsState) -> None:
        self._app = app
        self._answered = operations.answered

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        def counting(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                route = scope.get(SCOPE_ROUTE, NO_ROUTE)
                method = scope["method"] if route != NO_ROUTE else NO_ROUTE
                self._answered[method, route, str(message["status"])] += 1
            return send(message)

        return self._app(scope, receive, counting)
