"""The speed of live messages through a broker, compared with minimal uvloop programs that get the same frames from the
same client."""

from __future__ import annotations

import os
import shlex
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self

from penstock.bench import Figure, best_seconds
from penstock.core.errors import InvalidRequest, Timeout
from penstock.protocol.batch_reader import BatchReader, Scratch
from penstock.protocol.frames import FrameLimits
from penstock.record.kernels import kernel_cache
from penstock.testing import RunningBroker

_CHUNK_BYTES: Final = 64 * 1024
_START_SECONDS: Final = 60.0
_SIZES: Final = ((100, "100 B"), (1024, "1 KiB"))
_TOPIC: Final = "bench.messages"
_SERVED: Final = "bench.requests"
_ID: Final = "00000000-0000-4000-8000-000000000001"


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


class WireClient:
    """A minimal client on a blocking socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.socket.close()

    def receive(self) -> bytes:
        """Wait for one message and return it, without its length. Raises `Timeout` if the connection ends."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = self.socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise Timeout("the connection ended in the middle of a message")
        return data

    def ask(self, message: bytes) -> bytes:
        self.socket.sendall(framed(message))
        return self.receive()

    def skip(self, size: int) -> None:
        """Receive and discard `size` bytes. Raises `Timeout` if the connection ends before."""
        buffer = bytearray(4 * _CHUNK_BYTES)
        while size:
            got = self.socket.recv_into(buffer, min(size, len(buffer)))
            if got == 0:
                raise Timeout("the connection ended before all messages had come")
            size -= got


CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@contextmanager
def pinned_to(cores: list[int]) -> Iterator[None]:
    """Run this process, and those that it starts in the context, only on these cores. Does nothing on a machine with
    one core.

    A round trip takes five times as long between two cores as within one. Otherwise the scheduler could choose one core
    for one server and two for the other. Servers run on one core, the client on another.
    """
    if len(CORES) < 2:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def broker() -> Iterator[int]:
    """Run `penstock serve` in another process, with live topics; yield its TCP port."""
    with RunningBroker("--ws-port", "off", "--log-level", "error", "--auto-create", "live") as running:
        yield running.tcp_port


@contextmanager
def _process(command: list[str], stdout: int) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=stdout, text=True) as process:  # noqa: S603 - ours, or what the user gave
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


@contextmanager
def _peer(*arguments: str) -> Iterator[str]:
    """Run one of `uvloop_peers` in another process; yield the first line that it prints."""
    with _process([sys.executable, "-m", "penstock.bench.uvloop_peers", *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None  # noqa: S101
        yield process.stdout.readline().strip()


@contextmanager
def started(founding: ReferenceServer) -> Iterator[int]:
    """Run another server of the same protocol; yield its port once it listens. Raises `InvalidRequest` if it does not
    within a minute."""
    port = founding.port
    with _process(shlex.split(founding.command), stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                yield port
                return
        raise InvalidRequest(f"{founding.command!r} does not listen on port {port}")


# ---- throughput


def _published(size: int) -> bytes:
    return framed(f"publish:{_TOPIC}:1.0.0\n".encode() + b"x" * size)


def _delivered_bytes(size: int) -> int:
    return len(framed(f"publish:{_TOPIC}:1.0.0:{_ID}\n".encode() + b"x" * size))


def _pump(sender: WireClient, receiver: WireClient, frame: bytes, count: int, received_bytes: int) -> float:
    """Send `count` frames, rounded down to whole chunks; return the messages per second, from the first sent to the
    last received. `received_bytes` is the size of one received frame."""
    at_once = max(1, _CHUNK_BYTES // len(frame))
    chunk = frame * at_once

    def send() -> None:
        for _ in range(count // at_once):
            sender.socket.sendall(chunk)

    total = count // at_once * at_once
    thread = threading.Thread(target=send)
    began = time.perf_counter()
    thread.start()
    receiver.skip(total * received_bytes)
    seconds = time.perf_counter() - began
    thread.join()
    return total / seconds


def route_rate(port: int, size: int, count: int) -> float:
    """Return the live messages per second through a broker, from one producer to one subscriber."""
    with WireClient(port) as producer, WireClient(port) as subscriber:
        for wire in (producer, subscriber):
            wire.receive()  # the greeting
        wanted = f'{{"action":"publish","topic":"{_TOPIC}"}}'
        subscriber.ask(f"request:system.topic.subscribe:1.0.0:{_ID}\n{wanted}".encode())
        return _pump(producer, subscriber, _published(size), count, _delivered_bytes(size))


def echo_rate(port: int, size: int, count: int) -> float:
    with WireClient(port) as wire:
        frame = _published(size)
        return _pump(wire, wire, frame, count, len(frame))


# ---- latency


def _round_trip_ms(wire: WireClient, message: bytes, count: int) -> float:
    """Return the median time of `count` round trips, in milliseconds."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        wire.ask(message)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


# ---- figures


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceServer:
    """Another server of the same protocol, that of the founding system: the command that starts it, and the port on
    which it then listens."""

    command: str
    port: int


def measure(
    *, messages: int = 1_000_000, rounds: int = 3, trips: int = 5000, founding: ReferenceServer | None = None
) -> Iterator[Figure]:
    yield from headers(rounds=rounds)
    with ExitStack() as stack:
        with pinned_to(CORES[1:]):
            port = stack.enter_context(broker())
            bare = int(stack.enter_context(_peer("echo")))
            relay = stack.enter_context(_peer("relay"))
            other = None if founding is None else stack.enter_context(started(founding))
        with pinned_to(CORES[:1]):
            yield from _throughput(port, bare, other, messages, rounds)
            yield from _latency(port, bare, relay, trips, rounds)


def _throughput(port: int, bare: int, founding: int | None, messages: int, rounds: int) -> Iterator[Figure]:
    for size, name in _SIZES:
        count = messages * 100 // size if size > 100 else messages
        ours = max(route_rate(port, size, count) for _ in range(rounds))
        theirs = max(echo_rate(bare, size, count) for _ in range(rounds))
        yield _compared(f"route live messages, {name}", "messages/s", ours, "bare uvloop frame echo", theirs)
        if founding is not None:
            first = max(route_rate(founding, size, max(count // 20, 1000)) for _ in range(rounds))
            yield _compared(f"beside the founding server, {name}", "messages/s", ours, "founding server", first)


def _latency(port: int, bare: int, relay: str, trips: int, rounds: int) -> Iterator[Figure]:
    question = f"request:{_SERVED}:1.0.0:{_ID}\n".encode() + b"x" * 100
    beat = f"request:system.heartbeat:1.0.0:{_ID}\n".encode() + b"x" * 100
    subscribe = f'request:system.topic.subscribe:1.0.0:{_ID}\n{{"action":"request","topic":"{_SERVED}"}}'
    with ExitStack() as stack:
        stack.enter_context(_peer("responder", str(port), subscribe))
        stack.enter_context(_peer("responder", relay, "here"))
        wire, ping, passed = (stack.enter_context(WireClient(each)) for each in (port, bare, int(relay)))
        wire.receive()
        time.sleep(0.2)
        own = min(_round_trip_ms(wire, beat, trips) for _ in range(rounds))
        pong = min(_round_trip_ms(ping, beat, trips) for _ in range(rounds))
        served = min(_round_trip_ms(wire, question, trips) for _ in range(rounds))
        relayed = min(_round_trip_ms(passed, question, trips) for _ in range(rounds))
    yield _slower("request answered by the broker, p50", own, "bare uvloop ping-pong", pong)
    yield _slower("request answered by a service, p50", served, "bare uvloop relay to a service", relayed)
    yield _slower("the same, all four hops", served, "bare uvloop ping-pong (two hops)", pong)


def _slower(name: str, ours: float, peer: str, theirs: float) -> Figure:
    """Return a figure of times, for which smaller is better: the ratio is the reference divided by ours."""
    return replace(_compared(name, "ms", ours, peer, theirs), ratio=theirs / ours)


def _compared(name: str, unit: str, ours: float, peer: str, theirs: float) -> Figure:
    return Figure(name=name, value=ours, unit=unit, reference=peer, reference_value=theirs, ratio=ours / theirs)


def _parse(reader: BatchReader, block: bytes, times: int) -> None:
    for _ in range(times):
        deque(reader.receive_data(block), maxlen=0)


def headers(*, rounds: int) -> Iterator[Figure]:
    """Yield the rates of parsing message headers in whole blocks."""
    kernel_cache.load_all()
    wanted = 1_500_000
    scratch = Scratch()
    kinds = {
        "the same": [f"publish:{_TOPIC}:1.0.0"] * 1000,
        "an id each": [f"publish:{_TOPIC}:1.0.0:{n:08x}-0000-4000-8000-{n:012x}" for n in range(1000)],
        "64 topics in turn": [f"publish:{_TOPIC}{n % 64}:1.0.0" for n in range(1000)],
    }
    for kind, lines in kinds.items():
        block = b"".join(framed(f"{line}\n".encode() + b"x" * 100) for line in lines)
        reader = BatchReader(FrameLimits(), scratch)
        speed = 100_000 / best_seconds(partial(_parse, reader, block, 100), rounds=rounds)
        yield _compared(f"parse headers in blocks, {kind}", "headers/s", speed, "wanted", wanted)
