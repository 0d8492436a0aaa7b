"""The reference for publishing over HTTP: a Starlette handler under uvicorn that only writes request bodies to a file.

`python -m penstock.bench.bare_http FILE` prints its port. Bodies that arrive during one sync are written and synced
together, as any log would do it. There is no record format, no check, no schema, no index and no reader.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from penstock.server.transports.http import IMPLEMENTATION

_BACKLOG: Final = 256


class Writer:
    """A thread that writes and syncs all bodies that have arrived since its last sync."""

    def __init__(self, file: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._waiting: list[tuple[bytes, asyncio.Future[int]]] = []
        self._work = threading.Condition()
        self._count = 0
        threading.Thread(target=self._run, daemon=True).start()

    async def append(self, body: bytes) -> int:
        """Queue a body; return its number once it is on disk."""
        done: asyncio.Future[int] = self._loop.create_future()
        with self._work:
            self._waiting.append((body, done))
            self._work.notify()
        return await done

    def _run(self) -> None:
        while True:
            with self._work:
                while not self._waiting:
                    self._work.wait()
                group, self._waiting = self._waiting, []
            os.write(self._file, b"".join([body for body, _ in group]))
            os.fdatasync(self._file)
            self._loop.call_soon_threadsafe(self._resolve, group)

    def _resolve(self, group: list[tuple[bytes, asyncio.Future[int]]]) -> None:
        for _, done in group:
            done.set_result(self._count)
            self._count += 1


async def _serve(file: str) -> None:
    writer = Writer(file)

    async def publish(request: Request) -> JSONResponse:
        return JSONResponse({"offset": await writer.append(await request.body())})

    app = Starlette(routes=[Route("/api/events", publish, methods=["POST"])])
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, http=IMPLEMENTATION, ws="none", lifespan="off", log_level="error", access_log=False)
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(sys.argv[1]))
