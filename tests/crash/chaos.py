"""Faults: brokers that are killed, stopped and born again on the same data, and connections cut at any byte.

    python chaos.py

is the nursery: everything is imported once, and each broker is a fork of it that runs `penstock serve`, so that a
restart costs milliseconds and hundreds of kills fit in a test. It ends, with all its brokers, when its input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

_START_SECONDS: Final = 60.0
_CHUNK_BYTES: Final = 64 * 1024


class Nursery:
    """The process whose forks the brokers are. Use it with `async with`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        return self

    async def __aexit__(self, *_exception: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    async def birth(self, log: Path, environment: Mapping[str, str], *arguments: str) -> int:
        """The number of a process that runs `penstock` with these arguments."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"log": str(log), "environment": dict(environment), "arguments": arguments}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        return int(await self._process.stdout.readline())


class Broker:
    """`penstock serve`, again and again on one data directory."""

    def __init__(self, nursery: Nursery, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.data = folder / "data"
        self._ready = folder / "ready.json"
        self._log_file = folder / "log"
        self._nursery = nursery
        self._environment = environment or {}
        self._pid: int | None = None
        self.kills = 0
        self.up = asyncio.Event()
        self.ready: dict[str, Any] = {}

    @property
    def log(self) -> str:
        return self._log_file.read_text(errors="replace")

    @property
    def port(self) -> int:
        return int(self.ready["tcp_port"])

    async def start(self) -> bool:
        """Returns when it accepts connections; False if it was killed before."""
        self._ready.unlink(missing_ok=True)
        given = ["--data", str(self.data), "--tcp-port", "0", "--ws-port", "off", "--http-port", "off"]
        given += ["--ready-file", str(self._ready)]
        pid = self._pid = await self._nursery.birth(self._log_file, self._environment, "serve", *given)
        until = time.monotonic() + _START_SECONDS
        while not self._ready.exists():
            if self._pid != pid:
                return False
            assert is_alive(pid), f"the broker did not start: {self.log[-3000:]}"
            assert time.monotonic() < until, "the broker takes too long to start"
            await asyncio.sleep(0.002)
        self.ready = json.loads(self._ready.read_text())
        self.up.set()
        return True

    async def kill(self) -> None:
        """Kill the process at once, as a power cut would."""
        pid, self._pid = self._pid, None
        self.up.clear()
        if pid is not None:
            assert is_alive(pid), f"the broker ended by itself: {self.log[-3000:]}"
            os.kill(pid, signal.SIGKILL)
            self.kills += 1
            while is_alive(pid):
                await asyncio.sleep(0.001)

    async def restart(self, *, down_seconds: float = 0.0, die_after: float | None = None) -> None:
        """Kill it and start it; with `die_after` it is killed once more so soon after its birth, ready or not."""
        await self.kill()
        await asyncio.sleep(down_seconds)
        if die_after is not None:
            starting = asyncio.create_task(self.start())
            await asyncio.sleep(die_after)
            while self._pid is None:
                await asyncio.sleep(0.001)
            await self.kill()
            await starting
        await self.start()

    async def pause(self, seconds: float) -> None:
        """Stop it in its tracks, and let it go on."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                os.kill(self._pid, signal.SIGCONT)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Pipe:
    """A connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.broker: asyncio.StreamWriter | None = None
        self.left: dict[str, int | None] = {"in": None, "out": None}
        """Bytes that may still pass, towards the broker and back; then it is cut."""

    def cut(self) -> None:
        """Cut both sides at once; bytes that were read and not passed on are lost."""
        for writer in (self.client, self.broker):
            if writer is not None:
                writer.transport.abort()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        try:
            while data := await reader.read(_CHUNK_BYTES):
                left = self.left[way]
                if left is not None:
                    self.left[way] = left - len(data)
                    data = data[: max(0, left)]
                writer.write(data)
                if left is not None and (self.left[way] or 0) <= 0:
                    await asyncio.sleep(0)  # what was passed on is sent before the cut
                    return
                await writer.drain()
        except OSError:
            pass
        finally:
            self.cut()


class Proxy:
    """A port that stays, in front of a broker that does not."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pipes: set[Pipe] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._gate = asyncio.Event()
        self._gate.set()
        self.patient = True
        """True if connections that come while there is no broker wait for it; otherwise they are closed."""
        self.cuts = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        assert self._server is not None
        self._server.close()
        for pipe in list(self._pipes):
            pipe.cut()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        pipe = Pipe(writer)
        self._pipes.add(pipe)
        try:
            await self._gate.wait()
            if self.patient:
                await self._broker.up.wait()
            back, pipe.broker = await asyncio.open_connection("127.0.0.1", self._broker.port)
            await asyncio.gather(pipe.pump(reader, pipe.broker, "in"), pipe.pump(back, writer, "out"))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            pipe.cut()
            self._pipes.discard(pipe)
            self._tasks.discard(task)

    def another(self) -> Proxy:
        """Another way to the same broker."""
        return Proxy(self._broker)

    def shut(self) -> None:
        """Let no connection through any more; new ones wait."""
        self._gate.clear()
        self.cut_all()

    def open(self) -> None:
        self._gate.set()

    def cut_all(self) -> None:
        self.cuts += len(self._pipes)
        for pipe in list(self._pipes):
            pipe.cut()

    def cut_one(self, chance: random.Random) -> None:
        """Cut a connection, after some more bytes in one direction."""
        if self._pipes:
            pipe = chance.choice(sorted(self._pipes, key=lambda each: id(each)))
            pipe.left[chance.choice(["in", "out"])] = int(chance.random() ** 3 * 20_000)
            self.cuts += 1

    def cut_port(self, port: int) -> None:
        """Cut the connections from this port."""
        for pipe in list(self._pipes):
            if pipe.client.get_extra_info("peername")[1] == port:
                self.cuts += 1
                pipe.cut()


# the nursery


def _nursery() -> None:
    import penstock.cli.app
    import penstock.record.kernels.block_kernels
    import penstock.server.main  # noqa: F401 - all that a broker needs
    from penstock.record.kernels.kernel_cache import load_all

    load_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    born: list[int] = []
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _live(asked["log"], asked["environment"], asked["arguments"])
        born = [*filter(is_alive, born), child]
        os.write(1, b"%d\n" % child)
    for pid in filter(is_alive, born):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _live(log: str, environment: dict[str, str], arguments: list[str]) -> None:
    from penstock.cli import main

    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for place, number in enumerate((nothing, file, file)):
            os.dup2(number, place)
        os.environ |= environment
        sys.argv = ["penstock", *arguments]
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    _nursery()
