"""The start and stop of the server: opens the data directory, listens, reports readiness, and shuts down in order."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvloop

from penstock import __version__
from penstock.broker.access.policy import AccessPolicy
from penstock.broker.broker import Broker
from penstock.core.clock import SteadyClock, SystemClock
from penstock.core.clock import now_ms as clock_ms
from penstock.core.errors import InvalidRequest
from penstock.protocol.batch_reader import warm_up
from penstock.record.kernels import kernel_cache
from penstock.server import logs
from penstock.server.hub import Hub
from penstock.server.operations.health import HealthConditions, watch_health
from penstock.server.operations.process import ProcessProbe
from penstock.server.resources.file_descriptors import process_descriptors, raise_descriptor_limit
from penstock.server.resources.memory import freeze_startup_objects, keep_freed_buffers, trim_regularly
from penstock.server.security.access_watch import AccessWatcher
from penstock.server.settings import Settings
from penstock.server.tls import ReloadingTls
from penstock.server.transports import tcp, websocket
from penstock.server.transports.listener import Listener
from penstock.storage.log.group_commit import PendingAppend, release_all
from penstock.storage.store import Store

if TYPE_CHECKING:
    from penstock.server.transports.http import HttpServer

_LOG: Final = logging.getLogger(__name__)
_CLOCK: Final = SteadyClock()
"""The clock for the publishing times of messages and for the times in reports about them."""
_SWITCH_SECONDS: Final = 0.0005
"""The interpreter's switch interval in seconds, for `sys.setswitchinterval`. It is short because the writer thread
comes back from the disk with a whole group of appends, and should not wait long for the event loop to let it run."""
_CERTIFICATES_SECONDS: Final = 5.0
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Ready:
    """The facts about a running server, as written to the ready file. A port is None if it is turned off."""

    pid: int
    data: str
    tcp_port: int | None
    ws_port: int | None
    http_port: int | None

    def write(self, file: Path) -> None:
        """Write the facts as JSON to `file`, atomically: a reader sees all of it or nothing.

        Raises `InvalidRequest` if the file cannot be written.
        """
        part = file.with_name(f".{file.name}.{self.pid}")
        try:
            part.write_bytes(msgspec.json.encode(asdict(self)))
            part.replace(file)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise InvalidRequest(f"the ready file {file} cannot be written: {error.strerror}") from None


def serve(settings: Settings, *, ready: Callable[[Ready], None]) -> int:
    """Run the server until a stop signal ends it, and return the number of that signal. `ready` is called once
    connections are accepted.

    Raises the error that keeps the server from starting.
    """
    keep_freed_buffers()
    storage = raise_descriptor_limit(settings.limits.connections_max, settings.storage)
    sys.setswitchinterval(_SWITCH_SECONDS)
    kernel_cache.load_all()
    warm_up()
    relay = _CommitRelay()
    with (
        _restored_signal_handlers(),
        Store.open(
            settings.data,
            create=True,
            clock=_CLOCK,
            limits=storage,
            durability=settings.durability,
            deliver=relay,
        ) as store,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_serve(settings, store, relay, ready))


@contextmanager
def _restored_signal_handlers() -> Iterator[None]:
    """Restore, at the end of the context, the signal handlers that were set when it began. A closed event loop leaves
    handlers that ignore every signal, and the process may go on after the server has ended."""
    before = {number: signal.getsignal(number) for number in (*_STOPS, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _CommitRelay:
    """Passes each group of finished appends from the writer thread to the hub. It exists because the hub is created
    after the writer: the hub's `committed` is set as `target` as soon as there is one."""

    def __init__(self) -> None:
        self.target: Callable[[Sequence[PendingAppend]], None] | None = None

    def __call__(self, pending_appends: Sequence[PendingAppend]) -> None:
        release_all(pending_appends)
        if self.target is not None:
            self.target(pending_appends)


async def _serve(settings: Settings, store: Store, relay: _CommitRelay, ready: Callable[[Ready], None]) -> int:
    watch = AccessWatcher(settings, store.root, unix_ms)
    hub = Hub(_broker(settings, store, watch.access), settings.limits, now_ms, store.writer)
    watch.warn_if_unreachable(settings)
    relay.target = hub.committed
    asyncio.get_running_loop().set_exception_handler(_exception_handler(hub))
    stop = _stop_signal()
    async with AsyncExitStack() as stack:
        stack.callback(logs.add_tap(_log_tap(hub)))
        tls = None if settings.tls is None else ReloadingTls(settings.tls)
        servers = await _listen(hub, settings, tls)
        stack.callback(_close, servers)
        reloading = asyncio.create_task(_reload_certificates(tls, _reload_signal()))
        stack.callback(reloading.cancel)
        stack.callback(asyncio.create_task(trim_regularly()).cancel)
        stack.callback(watch.close)
        stack.callback(asyncio.create_task(watch.run(hub)).cancel)
        listeners = {name: server for name, server in zip(("tcp", "ws"), servers, strict=True) if server is not None}
        conditions = HealthConditions(store=store, listeners=listeners, is_stopping=lambda: hub.broker.is_draining)
        health = asyncio.create_task(watch_health(conditions, hub.broker))
        stack.callback(health.cancel)
        http = await _open_http(hub, store, settings, tls, conditions)
        if http is not None:
            stack.push_async_callback(http.close)
        ports = (*(_port(server) for server in servers), None if http is None else http.port)
        server_info = Ready(os.getpid(), str(store.root), *ports)
        hub.broker.context.address = f"{settings.host}:{server_info.tcp_port or server_info.ws_port}"
        fields = {"host": settings.host, **asdict(server_info), "tls": tls is not None, "auth": settings.auth}
        freeze_startup_objects()
        _LOG.info("listening", extra=fields | _recovery_fields(store))
        ready(server_info)
        caught = await stop
        health.cancel()
        _LOG.info("stopping", extra={"signal": signal.Signals(caught).name, "grace_ms": settings.limits.drain_ms})
        _close(servers)
        if http is not None:
            await http.close()
        await hub.drain(settings.limits.drain_ms)
    _LOG.info("stopped")
    return caught


def _broker(settings: Settings, store: Store, access: AccessPolicy) -> Broker:
    # Ids must be unique, not secret: an answer counts only if it comes from the connection that the request went to.
    chance = random.Random(secrets.randbits(256))  # noqa: S311
    return Broker(
        settings.limits,
        _CLOCK,
        chance,
        now_ms=now_ms(),
        probe=ProcessProbe(),
        store=store,
        auto_create=settings.auto_create,
        access=access,
    )


def unix_ms() -> int:
    """Return the machine's wall clock in milliseconds, which decides whether keys and tokens have expired. If this
    clock is set ahead, they expire too early."""
    return clock_ms(SystemClock())


def now_ms() -> int:
    """Return the time in milliseconds of a clock that only goes forward."""
    return time.monotonic_ns() // 1_000_000


def _stop_signal() -> asyncio.Future[int]:
    """Return a future whose result is the number of the first stop signal, once that comes. A second stop signal ends
    the process at once."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def caught(number: int) -> None:
        if stop.done():
            os._exit(128 + number)
        stop.set_result(number)

    for number in _STOPS:
        loop.add_signal_handler(number, caught, number)
    return stop


def _log_tap(hub: Hub) -> logs.Tap:
    """Return a tap (see `logs.add_tap`) that passes log lines to the clients that subscribe to the broker's log. It may
    be called in any thread: the event loop passes the lines on."""
    loop = asyncio.get_running_loop()

    def tell(level: str, text: str, fields: dict[str, Any]) -> None:
        hub.apply(hub.broker.log(level, text, fields))

    def tap(level: str, text: str, fields: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the event loop is closed: no subscriber is left
            loop.call_soon_threadsafe(tell, level, text, fields)

    return tap


async def _listen(hub: Hub, settings: Settings, tls: ReloadingTls | None) -> list[Listener | None]:
    context = None if tls is None else tls.context
    host, files = settings.host, process_descriptors(settings.storage.open_logs_max)
    servers: list[Listener | None] = []
    try:
        port = settings.tcp_port
        servers.append(None if port is None else await tcp.listen(hub, host, port, context, files))
        port = settings.ws_port
        origins = settings.ws_origins
        opened = None if port is None else await websocket.listen(hub, host, port, context, files, origins=origins)
        servers.append(opened)
    except OSError as error:
        _close(servers)
        raise InvalidRequest(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return servers


async def _open_http(
    hub: Hub, store: Store, settings: Settings, tls: ReloadingTls | None, conditions: HealthConditions
) -> HttpServer | None:
    port = settings.http_port
    if port is None:
        return None
    # Imported here because they take a tenth of a second.
    from penstock.server.api.app import Api
    from penstock.server.events.state import EventService
    from penstock.server.files.log_files import LogFiles
    from penstock.server.operations.state import OperationsState, RequestCounter
    from penstock.server.registry.cache import SchemaAnswerCache
    from penstock.server.routes import ROUTE_TABLE
    from penstock.server.security.credentials import audit_denied_page
    from penstock.server.transports.http import HttpServer

    events = EventService(hub)
    operations = OperationsState(hub, store, conditions, events)
    services = [SchemaAnswerCache(), events, operations, *([LogFiles(settings.data)] if settings.http_logs else [])]
    app = Api(hub, ROUTE_TABLE, *services, redact=hub.broker.context.redact)
    try:
        context = None if tls is None else tls.context
        return await HttpServer.open(
            RequestCounter(app, operations),
            settings.host,
            port,
            context,
            origins=settings.ws_origins,
            each_max=settings.limits.http_address_connections_max,
            denied=partial(audit_denied_page, hub.access),
            closing=events.close,
        )
    except OSError as error:
        raise InvalidRequest(f"cannot listen on {settings.host} port {port}: {error.strerror or error}") from None


def _recovery_fields(store: Store) -> dict[str, object]:
    """Return the facts that opening the data directory found, as fields of a log line."""
    damaged = sum(len(damage.offsets) for log in store.logs for damage in log.damages)
    return {"version": __version__, "logs": len(store.logs), "damaged_messages": damaged}


def _close(servers: list[Listener | None]) -> None:
    for server in servers:
        if server is not None:
            server.close()


def _port(server: Listener | None) -> int | None:
    return None if server is None else int(server.sockets[0].getsockname()[1])


def _reload_signal() -> asyncio.Event:
    """Return an event that is set when the process gets SIGHUP. The signal no longer ends the process."""
    again = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again.set)
    return again


async def _reload_certificates(tls: ReloadingTls | None, again: asyncio.Event) -> None:
    """Reload the certificates if their files have changed: checked every few seconds, and at once when `again` is set.
    Runs until cancelled; without TLS it only waits."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CERTIFICATES_SECONDS):
                await again.wait()
        again.clear()
        if tls is not None:
            tls.reload_if_changed()


def _exception_handler(hub: Hub) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return the event loop's handler of uncaught errors. It logs a failed connection in one line, and any other error
    with its traceback."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or isinstance(error, OSError | TimeoutError | asyncio.CancelledError):
            hub.broker.metrics.add("connection.failed")
            _LOG.info("connection failed", extra={"error": str(error or context.get("message"))})
        else:
            _LOG.error("unhandled error in the event loop", extra={"during": context.get("message")}, exc_info=error)

    return handle
