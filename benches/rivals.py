"""Rivals: other servers to which messages are published durably in the same run: Redis streams, and NATS JetStream.

Each rival is its own released server, started for the measurement and stopped after it, with the settings that suit it
best: a handicapped rival proves nothing. The client is a bare socket with frames encoded beforehand and confirmations
counted by the byte, so that what is measured is the server. A `PackageClient` does what a Python program would do
instead: publish by the package that is made for the server.

They promise different things. Redis with `appendfsync always` confirms what is on the disk, as Penstock does.
JetStream confirms what the kernel has, and syncs every two minutes: what it confirmed can be lost with the power.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import uvloop

from penstock.bench.connection import PublishConnection, publish_all, single_publish_rate
from penstock.bench.stream import Contenders
from penstock.core.errors import InvalidRequest, ServiceUnavailable
from penstock.core.limits import GIB

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0
_ANSWER_SECONDS: Final = 30.0
_MEASURED_BYTES_MAX: Final = GIB  # Redis keeps all of it in memory, and both on the disk
_WARM_UP_WINDOWS: Final = 8
_SLOWEST: Final = 1000
"""Messages a second of the slowest server: below that it is taken for dead."""
_STREAM: Final = "BENCH"
_SUBJECT: Final = "bench"


class RedisConnection(PublishConnection):
    """A connection to Redis: every confirmation is an id in two lines, its length and itself."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._lines = 0
        self._last = b"\n"

    def encode(self, payload: bytes) -> bytes:
        return command(b"XADD", _STREAM.encode(), b"*", b"p", payload)

    def count_confirmations(self, data: bytes) -> int:
        if b"\n-" in self._last + data:
            raise InvalidRequest(f"Redis refused a message: {data[-200:]!r}")
        self._last = data[-1:]
        messages, self._lines = divmod(self._lines + data.count(b"\n"), 2)
        return messages

    def ask(self, *words: bytes) -> bytes:
        """Send one command; return its answer, which must be one line."""
        self.socket.sendall(command(*words))
        answer = b""
        while not answer.endswith(b"\r\n"):
            answer += self.receive()
        return answer[:-2]


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class JetStreamConnection(PublishConnection):
    """A connection to JetStream: every confirmation is JSON without an inner object, and ends in the only brace."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._tail = b""
        self._inbox = (
            b"i.%d" % self.socket.getsockname()[1]
        )  # a shared one would bring the other connections' confirmations, too
        options = {"verbose": False, "pedantic": False, "lang": "python", "version": "0", "protocol": 1}
        self.socket.sendall(b"CONNECT %b\r\nSUB %b 1\r\nPING\r\n" % (json.dumps(options).encode(), self._inbox))
        greeting = b""
        while not greeting.endswith(b"PONG\r\n"):
            greeting += self.receive()

    def encode(self, payload: bytes) -> bytes:
        return self._published(_SUBJECT, payload)

    def _published(self, subject: str, payload: bytes) -> bytes:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), self._inbox, len(payload), payload)

    def count_confirmations(self, data: bytes) -> int:
        seen = self._tail + data  # a word may have been cut in two
        if b'"error"' in seen or b"-ERR" in seen:
            raise InvalidRequest(f"JetStream refused a message: {seen[-400:]!r}")
        if b"PING\r\n" in seen:
            self.socket.sendall(b"PONG\r\n")  # sent twice at worst, which the server tolerates
        self._tail = data[-6:]
        return data.count(b"}")

    def ask(self, subject: str, request: dict[str, object]) -> dict[str, Any]:
        """Send one request of its JSON interface. Raises `InvalidRequest` with the server's own words."""
        body = json.dumps(request).encode() if request else b""
        self.socket.sendall(self._published(f"$JS.API.{subject}", body))
        answer = self._message()
        if "error" in answer:
            raise InvalidRequest(f"JetStream, asked for {subject}: {answer['error']}")
        return answer

    def _message(self) -> dict[str, Any]:
        data = b""
        while True:
            data += self.receive()
            head, _, rest = data[max(0, data.find(b"MSG ")) :].partition(b"\r\n")
            if head.startswith(b"MSG ") and rest.endswith(b"\r\n") and len(rest) >= int(head.split()[-1]) + 2:
                answer: dict[str, Any] = json.loads(rest[: int(head.split()[-1])])
                return answer


# ---- by the servers' own packages

Publish = Callable[[int, bytes, int, int], float]
"""A function that publishes a payload so many times to the server at a port, within a window; returns the seconds until
all are confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageClient:
    """A Python package that publishes to a rival."""

    name: str
    package: str
    windows: tuple[int, ...]
    """Windows to try; one of these is its fastest."""
    publish: Publish

    @property
    def available(self) -> bool:
        return find_spec(self.package) is not None


def redis_py(port: int, payload: bytes, count: int, window: int) -> float:
    """Publish pipelines of `window` commands, one after the other."""
    import redis

    with redis.Redis(host=_HOST, port=port) as client:
        began = time.perf_counter()
        for sent in range(0, count, window):
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(min(window, count - sent)):
                    pipeline.xadd(_STREAM, {"p": payload})
                pipeline.execute()
        return time.perf_counter() - began


async def _by_futures(connection: Client, payload: bytes, count: int, window: int) -> None:
    """Publish as its documentation shows: with a future for every message."""
    stream = connection.jetstream(publish_async_max_pending=window)
    for _ in range(count):
        await stream.publish_async(_SUBJECT, payload)
    await stream.publish_async_completed()


async def _by_counting(connection: Client, payload: bytes, count: int, window: int) -> None:
    """Publish without futures: confirmations are only counted."""
    room, done, left = asyncio.Semaphore(window), asyncio.Event(), count

    async def confirmed(_message: Msg) -> None:
        nonlocal left
        left -= 1
        room.release()
        if left == 0:
            done.set()

    inbox = connection.new_inbox()
    await connection.subscribe(inbox, cb=confirmed)
    for _ in range(count):
        await room.acquire()
        await connection.publish(_SUBJECT, payload, reply=inbox)
    await done.wait()


def nats_py(
    work: Callable[[Client, bytes, int, int], Any], port: int, payload: bytes, count: int, window: int
) -> float:
    async def run() -> float:
        import nats

        connection = await nats.connect(f"nats://{_HOST}:{port}", connect_timeout=int(_ANSWER_SECONDS))
        try:
            began = time.perf_counter()
            async with asyncio.timeout(_ANSWER_SECONDS + count / _SLOWEST):
                await work(connection, payload, count, window)
            return time.perf_counter() - began
        finally:
            await connection.close()

    return uvloop.run(run())


class Rival(ABC):
    """A server in a temporary directory within `folder`, so on its disk, and a client for it. Use it with `with`.

    `window`, `connections` and `batch_share` are the fastest settings that were found.
    """

    name: ClassVar[str]
    binary: ClassVar[str]
    window: ClassVar[int]
    connections: ClassVar[int]
    batch_share: ClassVar[int]
    """The part of its window that must be free before a connection sends."""
    clients: ClassVar[tuple[PackageClient, ...]]

    def __init__(self, folder: Path, *, connections: int | None = None) -> None:
        self._parent = folder.absolute()  # the server has a working directory of its own
        self._connections = connections or self.connections
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @classmethod
    def path(cls) -> str | None:
        """Return the path of the server; Debian keeps servers where only root's PATH looks."""
        return shutil.which(cls.binary, path=os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin")

    @classmethod
    def available(cls) -> bool:
        return cls.path() is not None

    def __enter__(self) -> Self:
        """Start the server; it accepts messages on return. Raises `ServiceUnavailable` if it is not installed or does
        not start."""
        binary = self.path()
        if binary is None:
            raise ServiceUnavailable(f"{self.binary} is not installed")
        self._folder = tempfile.TemporaryDirectory(prefix=f"rival-{self.binary}-", dir=self._parent)
        folder = Path(self._folder.name)
        self.port = free_port()
        try:
            with (folder / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [binary, *self._arguments(folder)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
                )
            self._wait(folder / "log")
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._folder.cleanup()

    def _wait(self, log: Path) -> None:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and self._process is not None and self._process.poll() is None:
            try:
                socket.create_connection((_HOST, self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise ServiceUnavailable(f"{self.binary} did not start: {log.read_text(errors='replace')[-2000:]}")

    def publish(self, payload: bytes, count: int, window: int | None = None, *, batch: int | None = None) -> float:
        """Publish messages; return the seconds until every one is confirmed, with at most `window` unconfirmed at a
        time."""
        window = window or self.window
        with ExitStack() as stack:
            connections = [stack.enter_context(self._connect()) for _ in range(min(self._connections, window))]
            wanted = batch or window // len(connections) // self.batch_share
            return publish_all(connections, payload, count, window=window, batch=wanted)

    def publish_rates(self, size: int, count: int) -> Contenders:
        """Return rates of durable publishing, by each package that is installed and by a bare socket."""
        clients = {
            client.name: partial(measure_package, self, client, size, count)
            for client in self.clients
            if client.available
        }
        return {**clients, f"{type(self).__name__} by a bare socket": partial(self._bare_rate, size, count)}

    def single_publish_rates(self, count: int, in_flight: int, batches: Sequence[int]) -> Contenders:
        """Return rates of messages that are published one at a time; empty unless the server syncs each as Penstock
        does."""
        _ = count, in_flight, batches
        return {}

    def _bare_rate(self, size: int, count: int) -> float:
        self.clear()
        return count / self.publish(b"x" * size, count)

    @abstractmethod
    def stored(self) -> int:
        """Return how many messages the server says it has."""

    @abstractmethod
    def clear(self) -> None:
        """Delete every message."""

    @abstractmethod
    def _arguments(self, folder: Path) -> list[str]: ...

    @abstractmethod
    def _prepare(self) -> None:
        """Create what the server needs before it accepts messages."""

    @abstractmethod
    def _connect(self) -> PublishConnection: ...


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind((_HOST, 0))
        port: int = chosen.getsockname()[1]
        return port


class Redis(Rival):
    """A Redis stream with `appendfsync always`: one sync for all messages that a turn of its loop has read.

    A turn reads some 16 KiB of each connection, so it takes many of them to fill a sync: with one it is half as fast at
    100 B, and a quarter at 1 KiB, however large the window.

    The file is never rewritten: a rewrite in the middle of a short run would be charged to Redis in full.
    """

    name = "Redis stream, appendfsync always"
    binary = "redis-server"
    window = 4096
    connections = 32
    batch_share = 1
    clients = (PackageClient(name="Redis by redis-py", package="redis", windows=(100, 1000, 5000), publish=redis_py),)

    def _arguments(self, folder: Path) -> list[str]:
        listening = ["--bind", _HOST, "--port", str(self.port), "--dir", str(folder), "--loglevel", "warning"]
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        return [*listening, *durable, "--auto-aof-rewrite-percentage", "0"]

    def _prepare(self) -> None:
        with self._connect() as connection:
            connection.ask(b"PING")

    def single_publish_rates(self, count: int, in_flight: int, batches: Sequence[int]) -> Contenders:
        clients = {
            client.name: partial(measure_package, self, client, 100, count, windows=(in_flight,))
            for client in self.clients
            if client.available
        }
        bare = partial(single_publish_rate, RedisConnection, self.port, count, in_flight, batches)
        return {**clients, "Redis by a bare socket": bare}

    def _connect(self) -> RedisConnection:
        return RedisConnection(self.port)

    def stored(self) -> int:
        with self._connect() as connection:
            return int(connection.ask(b"XLEN", _STREAM.encode())[1:])

    def clear(self) -> None:
        with self._connect() as connection:
            connection.ask(b"DEL", _STREAM.encode())


class JetStream(Rival):
    """A JetStream stream in files, synced every two minutes as the server does by default."""

    name = "NATS JetStream, not synced"
    binary = "nats-server"
    window = 512
    connections = 1
    batch_share = 16
    clients = (
        PackageClient(
            name="JetStream by nats-py", package="nats", windows=(256, 4000), publish=partial(nats_py, _by_futures)
        ),
        PackageClient(
            name="JetStream by confirmations counted in nats-py",
            package="nats",
            windows=(256, 4000),
            publish=partial(nats_py, _by_counting),
        ),
    )

    def _arguments(self, folder: Path) -> list[str]:
        return ["--addr", _HOST, "--port", str(self.port), "--jetstream", "--store_dir", str(folder / "store")]

    def _prepare(self) -> None:
        with self._connect() as connection:
            connection.ask(
                f"STREAM.CREATE.{_STREAM}",
                {"name": _STREAM, "subjects": [_SUBJECT], "storage": "file", "retention": "limits", "num_replicas": 1},
            )

    def _connect(self) -> JetStreamConnection:
        return JetStreamConnection(self.port)

    def stored(self) -> int:
        with self._connect() as connection:
            return int(connection.ask(f"STREAM.INFO.{_STREAM}", {})["state"]["messages"])

    def clear(self) -> None:
        with self._connect() as connection:
            connection.ask(f"STREAM.PURGE.{_STREAM}", {})


RIVALS: Final[tuple[type[Rival], ...]] = (Redis, JetStream)


def measure(rival: Rival, payload_bytes: int, seconds: float) -> float:
    """Return messages a second of one run of about `seconds`, or of a GiB if that comes first, after a short
    warm-up."""
    rival.clear()
    payload = b"x" * payload_bytes
    first = _WARM_UP_WINDOWS * rival.window
    rate = first / rival.publish(payload, first)
    count = max(rival.window, min(int(rate * seconds), _MEASURED_BYTES_MAX // max(1, payload_bytes)))
    return count / rival.publish(payload, count)


def measure_package(
    rival: Rival, client: PackageClient, payload_bytes: int, count: int, *, windows: tuple[int, ...] | None = None
) -> float:
    """Return messages a second with the best window. Raises `InvalidRequest` if the server lost messages, or has too
    many."""
    return max(_rate(rival, client, b"x" * payload_bytes, count, window) for window in windows or client.windows)


def _rate(rival: Rival, client: PackageClient, payload: bytes, count: int, window: int) -> float:
    rival.clear()
    took = client.publish(rival.port, payload, count, window)
    if rival.stored() != count:
        raise InvalidRequest(f"{client.name}: {rival.stored()} of {count} messages are there")
    return count / took
