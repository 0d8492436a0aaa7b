"""The application: opens the data directory, listens, says when it is ready, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import resource
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from penstock.broker.broker import Broker
from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidRequest
from penstock.protocol.blocks import rehearse
from penstock.record import kernel_cache
from penstock.server import logs, tcp, websocket
from penstock.server.hub import Hub
from penstock.server.probe import Probe
from penstock.server.settings import Settings
from penstock.server.tls import Tls
from penstock.storage.store import Store

_LOG: Final = logging.getLogger(__name__)
_CERTIFICATES_SECONDS: Final = 5.0
_FILES_BESIDE_CONNECTIONS: Final = 2200  # logs, catalog, listeners


@dataclass(frozen=True, slots=True)
class Ready:
    """What is known once connections are accepted; None for what is off."""

    pid: int
    data: str
    tcp_port: int | None
    ws_port: int | None
    http_port: int | None = None

    def write(self, file: Path) -> None:
        """All at once: whoever sees the file sees the whole of it."""
        part = file.with_name(f".{file.name}.{self.pid}")
        try:
            part.write_bytes(msgspec.json.encode(asdict(self)))
            part.replace(file)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise InvalidRequest(f"the ready file {file} cannot be written: {error.strerror}") from None


def serve(settings: Settings, *, ready: Callable[[Ready], None]) -> int:
    """Run until told to stop; the signal that did it. Raises what keeps it from starting."""
    kernel_cache.load_all()
    rehearse()
    with (
        Store.open(settings.data, create=True) as store,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_serve(settings, store, ready))


async def _serve(settings: Settings, store: Store, ready: Callable[[Ready], None]) -> int:
    allow_files(settings.limits.connections_max + _FILES_BESIDE_CONNECTIONS)
    hub = Hub(_broker(settings), settings.limits, now_ms)
    asyncio.get_running_loop().set_exception_handler(_unhandled(hub))
    stop = _signals()
    async with AsyncExitStack() as stack:
        stack.callback(logs.add_tap(_tap(hub)))
        tls = None if settings.tls is None else Tls(settings.tls)
        servers = await _listen(hub, settings, tls)
        stack.callback(_close, servers)
        watching = asyncio.create_task(_watch(tls, _hangups()))
        stack.callback(watching.cancel)
        found = Ready(os.getpid(), str(store.root), *(_port(server) for server in servers))
        _LOG.info("listening", extra={"host": settings.host, **asdict(found), "tls": tls is not None})
        ready(found)
        caught = await stop
        _LOG.info("stopping", extra={"signal": signal.Signals(caught).name, "grace_ms": settings.limits.drain_ms})
        _close(servers)
        await hub.drain(settings.limits.drain_ms)
    _LOG.info("stopped")
    return caught


def _broker(settings: Settings) -> Broker:
    # Ids must be unique, not secret: an answer counts only if it comes from the connection that was asked.
    chance = random.Random(secrets.randbits(256))  # noqa: S311
    return Broker(settings.limits, SystemClock(), chance, now_ms=now_ms(), probe=Probe())


def now_ms() -> int:
    """A clock that only goes forward."""
    return time.monotonic_ns() // 1_000_000


def _signals() -> asyncio.Future[int]:
    """Done with the first signal to stop. A second one does not wait."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def caught(number: int) -> None:
        if stop.done():
            os._exit(128 + number)
        stop.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, caught, number)
    return stop


def _tap(hub: Hub) -> logs.Tap:
    """Log lines of the event loop's own thread go to those who subscribed; those of others by way of it."""
    loop = asyncio.get_running_loop()

    def tell(level: str, text: str, facts: dict[str, Any]) -> None:
        hub.apply(hub.broker.log(level, text, facts))

    def tap(level: str, text: str, facts: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(tell, level, text, facts)

    return tap


async def _listen(hub: Hub, settings: Settings, tls: Tls | None) -> list[asyncio.Server | None]:
    context = None if tls is None else tls.context
    host = settings.host
    servers: list[asyncio.Server | None] = []
    try:
        port = settings.tcp_port
        servers.append(None if port is None else await tcp.listen(hub, host, port, context))
        port = settings.ws_port
        opened = None if port is None else await websocket.listen(hub, host, port, context, origins=settings.ws_origins)
        servers.append(opened)
    except OSError as error:
        _close(servers)
        raise InvalidRequest(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return servers


def _close(servers: list[asyncio.Server | None]) -> None:
    for server in servers:
        if server is not None:
            server.close()


def _port(server: asyncio.Server | None) -> int | None:
    return None if server is None else int(server.sockets[0].getsockname()[1])


def _hangups() -> asyncio.Event:
    """Set on SIGHUP, which ends no broker."""
    again = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again.set)
    return again


async def _watch(tls: Tls | None, again: asyncio.Event) -> None:
    """Look for new certificates now and then, and at once when told."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CERTIFICATES_SECONDS):
                await again.wait()
        again.clear()
        if tls is not None:
            tls.reload_if_changed()


def _unhandled(hub: Hub) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """What a connection does wrong is its own affair; anything else that nobody caught is a defect."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or isinstance(error, OSError | TimeoutError | asyncio.CancelledError):
            hub.broker.metrics.add("connection.failed")
            _LOG.info("connection failed", extra={"error": str(error or context.get("message"))})
        else:
            _LOG.error("a defect in the server", exc_info=error)

    return handle


def allow_files(wanted: int) -> None:
    """As many open files as the machine allows: connections that are only beginning need them too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(wanted, soft) if hard == resource.RLIM_INFINITY else hard
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        _LOG.warning("fewer files than connections", extra={"open_files_max": most, "wanted": wanted})
