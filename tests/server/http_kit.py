"""An application on a real port in a thread, and a client that may also say what no client should."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any, Final, Self

from starlette.types import ASGIApp

from penstock.core.errors import Code
from penstock.server.transports.http import HttpServer

DEADLINE_SECONDS: Final = 20.0


class Serving:
    """Opens the port on entering, closes it on leaving; the loop is the thread's own."""

    def __init__(self, app: ASGIApp, tls: ssl.SSLContext | None = None) -> None:
        self._app = app
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.http: HttpServer

    def __enter__(self) -> Self:
        self._thread.start()
        self.http = self.run(HttpServer.open(self._app, "127.0.0.1", 0, self._tls))
        return self

    def __exit__(self, *_exception: object) -> None:
        self.run(self.http.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_SECONDS)
        self._loop.close()

    def run(self, coroutine: Any) -> Any:
        return self.start(coroutine).result(DEADLINE_SECONDS)

    def start(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    @property
    def port(self) -> int:
        return self.http.port

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://localhost:{self.port}"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> int:
        """The number of a flat error, which begins with the status; of another the registry's, or the status."""
        found = self.json
        if "error" in found:
            said = found["error"]
            assert said["code"] in set(Code), said
            assert said["message"], said
            assert said["timestamp"].endswith("Z"), said
            return int(said.get("details", {}).get("registry_code", self.status))
        assert isinstance(found["message"], str), found
        assert str(found["error_code"]).startswith(str(self.status)), found
        return int(found["error_code"])

    @property
    def media(self) -> str:
        return self.headers["content-type"]


class Client:
    """An HTTP client with one kept connection."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._connection: HTTPConnection = (
            HTTPConnection("localhost", port, timeout=DEADLINE_SECONDS)
            if tls is None
            else HTTPSConnection("localhost", port, timeout=DEADLINE_SECONDS, context=tls)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A body that is not bytes is sent as JSON. `_` in the name of a header stands for `-`."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            given = {"Content-Type": "application/json"} | given
        self._connection.request(method, path, body, given)
        found: HTTPResponse = self._connection.getresponse()
        return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())


def raw(port: int, sent: bytes) -> bytes:
    """Return all that comes back before the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(sent)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found
