"""A broker in a process of its own, and clients on plain sockets that may also say what no client should."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

from penstock.core.limits import WireLimits
from penstock.protocol.frames import FrameLimits

DEADLINE_SECONDS: Final = 20.0
START_SECONDS: Final = 120.0
ID: Final = "0a1b2c3d-0000-4000-8000-00000000000a"
OTHER_ID: Final = "0a1b2c3d-0000-4000-8000-00000000000b"
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_KEY: Final = base64.b64encode(bytes(16)).decode()
_MAGIC: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

FRAME_BYTES_MAX: Final = FrameLimits(block_bytes_max=WireLimits().block_bytes_max).frame_bytes_max

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def eventually(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """Wait until it holds; what it returned. Fails, saying what did not come, at the deadline."""
    until = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.005)


# the process


@dataclass
class BrokerProcess:
    process: subprocess.Popen[bytes]
    folder: Path
    data: Path
    ready: dict[str, Any] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def tcp_port(self) -> int:
        return int(self.ready["tcp_port"])

    @property
    def ws_port(self) -> int:
        return int(self.ready["ws_port"])

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready.json"

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def log(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def out(self) -> str:
        return (self.folder / "stdout").read_text(errors="replace")

    def wait_ready(self) -> Self:
        """Wait until connections are accepted."""
        eventually(self._started, "the broker is ready", START_SECONDS)
        self.ready = json.loads(self.ready_file.read_text())
        return self

    def _started(self) -> bool:
        assert self.process.poll() is None, f"the broker ended with {self.process.returncode}: {self.log()}"
        return self.ready_file.exists()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = START_SECONDS) -> int:
        """Wait until the process has ended by itself, possibly before it was ready; return its exit code."""
        return self.process.wait(seconds)

    def stop(self) -> int:
        """Ask it to stop, and do not wait for long."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode

    def defects(self) -> list[str]:
        """Lines of its log that no client should be able to bring about."""
        return [line for line in self.log().splitlines() if "Traceback" in line or "unhandled error" in line]


class Start(Protocol):
    """Start a broker; its log level is debug unless the flags say otherwise."""

    def __call__(
        self,
        *flags: str | Path,
        limits: Mapping[str, object] = ...,
        environment: Mapping[str, str] = ...,
        ready: bool = ...,
        folder: Path | None = ...,
        tcp: str = ...,
        ws: str = ...,
        open_files: int | None = ...,
    ) -> BrokerProcess: ...


def launch(
    folder: Path,
    base: Mapping[str, str],
    *flags: str | Path,
    limits: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    tcp: str = "0",
    ws: str = "0",
    open_files: int | None = None,
) -> BrokerProcess:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ready.json").unlink(missing_ok=True)
    variables = {f"PENSTOCK_LIMITS_{name.upper()}": str(value) for name, value in (limits or {}).items()}
    command = [sys.executable, "-m", "penstock", "serve", "--data", folder / "data"]
    command += ["--tcp-port", tcp, "--ws-port", ws, "--http-port", "off", "--ready-file", folder / "ready.json", *flags]
    if open_files is not None:
        command = ["/bin/sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh", *command]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [str(word) for word in command],
            env={**base, **variables, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    return BrokerProcess(process, folder, folder / "data")


def fds(broker: BrokerProcess) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


# messages


@dataclass(frozen=True)
class Message:
    header: str
    payload: bytes

    @classmethod
    def parse(cls, message: bytes) -> Message:
        header, newline, payload = message.partition(b"\n")
        assert newline, f"no newline in {message!r}"
        return cls(header.decode(), payload)

    @property
    def action(self) -> str:
        return self.header.split(":")[0]

    @property
    def topic(self) -> str:
        return self.header.split(":")[1]

    @property
    def request_id(self) -> str | None:
        fields = self.header.split(":")
        return fields[3] if len(fields) > 3 else None

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def error(self) -> str:
        """The code; empty where it is no error."""
        if not self.payload.startswith(b'{"error"'):
            return ""
        return str(self.json["error"]["code"])


def message(header: str, payload: bytes = b"") -> bytes:
    return header.encode() + b"\n" + payload


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


class Ended(Exception):
    """The other side closed the connection."""


class Link:
    """The common part of TCP and WebSocket clients: a socket, and messages each way."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        plain = socket.create_connection((host, port), timeout=DEADLINE_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.plain: socket.socket = plain
        try:
            self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def or_close(self, step: Callable[[], None]) -> None:
        """No socket is left open where a connection does not come about."""
        try:
            step()
        except BaseException:
            self.socket.close()
            raise

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _fill(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionError as error:
            raise Ended(str(error)) from None
        except ssl.SSLError as error:
            if "timed out" in str(error):
                raise
            raise Ended(str(error)) from None
        if not data:
            raise Ended("closed")
        self._buffer += data

    def exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def until(self, end: bytes) -> bytes:
        while (place := self._buffer.find(end)) < 0:
            self._fill()
        return self.exactly(place + len(end))

    def send(self, header: str, payload: bytes = b"") -> None:
        raise NotImplementedError

    def frame(self, content: bytes) -> bytes:
        """Return a wire message as this transport carries it."""
        raise NotImplementedError

    def receive(self) -> Message:
        raise NotImplementedError

    def ask(self, header: str, payload: bytes = b"") -> Message:
        self.send(header, payload)
        return self.receive()

    def answers(self) -> bool:
        """Return whether a heartbeat is answered, under its own id and before anything else."""
        answer = self.ask(f"request:system.heartbeat:1.0.0:{OTHER_ID}", b"{}")
        assert (answer.request_id, answer.json) == (OTHER_ID, {"status": "success"}), answer
        return True

    def subscribe(self, topic: str, action: str = "publish") -> None:
        wanted = json.dumps({"action": action, "topic": topic}).encode()
        answer = self.ask(f"request:system.topic.subscribe:1.0.0:{ID}", wanted)
        assert answer.json == {"status": "success"}, answer

    def receive_until_end(self) -> list[Message]:
        """Return all that still comes before the connection ends."""
        found = []
        try:
            while True:
                found.append(self.receive())
        except Ended:
            return found


class TcpClient(Link):
    def __init__(self, port: int, *, greet: bool = True, **options: Any) -> None:
        super().__init__(port, **options)
        if greet:
            self.or_close(self.greeted)

    def greeted(self) -> None:
        assert self.receive().topic == "system.initialize"

    def frame(self, content: bytes) -> bytes:
        return framed(content)

    def send(self, header: str, payload: bytes = b"") -> None:
        self.raw(framed(message(header, payload)))

    def receive(self) -> Message:
        return Message.parse(self.exactly(int.from_bytes(self.exactly(4), "big")))


@dataclass(frozen=True)
class WsFrame:
    opcode: int
    payload: bytes
    fin: bool = True

    @property
    def close_code(self) -> int | None:
        return int.from_bytes(self.payload[:2], "big") if len(self.payload) >= 2 else None


def ws_frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    reserved: int = 0,
    mask: bytes | None = b"\x11\x22\x33\x44",
    declared: int | None = None,
) -> bytes:
    """A frame of RFC 6455, right or wrong."""
    size = len(payload) if declared is None else declared
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    masked = 0x80 if mask else 0
    if size < 126:
        head = bytes([first, masked | size])
    elif size < 65536:
        head = bytes([first, masked | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, masked | 127]) + size.to_bytes(8, "big")
    if not mask:
        return head + payload
    return head + mask + _masked(payload, mask)


def _masked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    stream = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")


def upgrade(port: int, *, drop: tuple[str, ...] = (), request: str = "GET / HTTP/1.1", **changed: str) -> bytes:
    """An upgrade request, with headers changed (`_` stands for `-`) or dropped."""
    headers = {
        "Host": f"127.0.0.1:{port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": _KEY,
        "Sec-WebSocket-Version": "13",
    }
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if name not in drop]
    return "\r\n".join([request, *lines, "", ""]).encode("latin-1")


class WsClient(Link):
    def __init__(self, port: int, *, greet: bool = True, headers: Mapping[str, Any] | None = None, **options: Any):
        super().__init__(port, **options)
        self._request = upgrade(port, **(headers or {}))
        if greet:
            self.or_close(self.greeted)

    def upgraded(self) -> None:
        self.raw(self._request)
        assert self.response_status() == 101

    def greeted(self) -> None:
        self.upgraded()
        assert self.receive().topic == "system.initialize"

    def response_status(self) -> int:
        """The status line's number; checks that an accepted upgrade was proven."""
        head = self.until(b"\r\n\r\n").decode("latin-1")
        status = int(head.split(" ")[1])
        if status == 101:
            proof = base64.b64encode(hashlib.sha1((_KEY + _MAGIC).encode()).digest()).decode()
            assert f"sec-websocket-accept: {proof}".lower() in head.lower()
        return status

    def frame(self, content: bytes) -> bytes:
        return ws_frame(BINARY, content)

    def send(self, header: str, payload: bytes = b"") -> None:
        self.raw(ws_frame(BINARY, message(header, payload)))

    def receive_frame(self) -> WsFrame:
        first, second = self.exactly(2)
        assert not second & 0x80, "a server masks nothing"
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(self.exactly(2 if size == 126 else 8), "big")
        return WsFrame(first & 0x0F, self.exactly(size), bool(first & 0x80))

    def receive(self) -> Message:
        frame = self.receive_frame()
        if frame.opcode == CLOSE:
            raise Ended(f"close {frame.close_code} {frame.payload[2:]!r}")
        assert frame.opcode in (TEXT, BINARY), frame
        return Message.parse(frame.payload)

    def closed(self) -> int | None:
        """The code of the close frame that comes next; after it the connection must end."""
        frame = self.receive_frame()
        assert frame.opcode == CLOSE, frame
        self.ended()
        return frame.close_code

    def ended(self) -> None:
        try:
            rest = self.exactly(1)
        except Ended:
            return
        raise AssertionError(f"still sends: {rest!r}")


def pause(process: subprocess.Popen[bytes], stopped: bool) -> None:
    process.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)
