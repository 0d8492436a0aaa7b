"""Files of the logs over HTTP, read only: Spark on other machines reads them instead of the data directory.

Only segments, their indexes and the file that marks where a log begins can be requested. A name is parsed before it
becomes part of a path. Files are read in threads, one piece at a time, no faster than they are sent.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.broker.access.policy import Operation, Resource
from penstock.core.limits import MIB
from penstock.server.api.errors import HttpError
from penstock.server.api.routing import Parameter, quoted
from penstock.storage.base.layout import FORMAT, TOPICS
from penstock.storage.inspect.data_reader import parse_log
from penstock.storage.log.segment import LOG_START_NAME, is_segment_or_index

if TYPE_CHECKING:
    from penstock.server.api.request import ApiRequest

BYTES: Final = "application/octet-stream"
PIECE_BYTES: Final = 1 * MIB
"""The bytes that are read from a file at once. A connection holds no more of a file in memory, however slowly its
client reads."""
_READS_MAX: Final = 4
"""The most threads that read from the disk at the same time; more would only wait for each other."""
_RANGE: Final = re.compile(r"bytes=([0-9]{1,19})-([0-9]{0,19})")
_SUFFIX: Final = re.compile(r"bytes=-([0-9]{1,19})")

RANGE: Final = Parameter(
    name="range",
    about="which bytes: bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT; anything else is all of them",
    parse=str,
    schema={"type": "string", "examples": ["bytes=0-1048575"]},
)

_Result = TypeVar("_Result")


class RootAnswer(msgspec.Struct, frozen=True):
    """The format of the data directory, and the namespaces in it."""

    format: int
    namespaces: list[str]


class NamespaceAnswer(msgspec.Struct, frozen=True):
    logs: list[str]


class FileAnswer(msgspec.Struct, frozen=True):
    """A file of a log. Its `tag` changes when it is written to."""

    name: str
    bytes: int
    tag: str


class LogAnswer(msgspec.Struct, frozen=True):
    files: list[FileAnswer]


class LogFiles:
    """The log files of one data directory. Its methods block on the disk, except for `run_in_thread`, which runs one of
    them in a thread."""

    def __init__(self, root: Path) -> None:
        self._topics = root / TOPICS
        self._turns = asyncio.Semaphore(_READS_MAX)

    async def run_in_thread(self, work: Callable[..., _Result], *args: Any) -> _Result:
        async with self._turns:
            return await asyncio.to_thread(work, *args)

    def namespaces(self) -> list[str]:
        return [name for name in _folders(self._topics) if parse_log(name, "any")[0] is not None]

    def logs(self, namespace: str) -> list[str]:
        if namespace not in self.namespaces():
            raise _missing(f"namespace {quoted(namespace)}")
        return [name for name in _folders(self._topics / namespace) if _is_log(namespace, name)]

    def files(self, namespace: str, log: str) -> list[FileAnswer]:
        with _missing_as_404(f"log {quoted(f'/{namespace}/{log}')}"), os.scandir(self._log(namespace, log)) as entries:
            stats = {entry.name: _stat(entry) for entry in entries if is_log_file(entry.name)}
        return [FileAnswer(name, stat.st_size, _tag(stat)) for name, stat in sorted(stats.items()) if stat is not None]

    def open(self, namespace: str, log: str, file: str) -> int:
        """Open a file of a log, and return the file descriptor, which the caller closes. Raises `HttpError` (404) if
        the file does not exist or is not one that may be requested."""
        if not is_log_file(file):
            raise _missing(f"file {quoted(file)}")
        path = self._log(namespace, log) / file
        with _missing_as_404(f"file {quoted(file)}"):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _log(self, namespace: str, log: str) -> Path:
        if not _is_log(namespace, log):
            raise _missing(f"log {quoted(f'/{namespace}/{log}')}")
        return self._topics / namespace / log


def is_log_file(name: str) -> bool:
    return name == LOG_START_NAME or is_segment_or_index(name)


def _is_log(namespace: str, entry: str) -> bool:
    """Return True if `entry` is the exact name of a log's directory in this namespace. Other spellings of the same
    topic and partition are no directories."""
    name, partition = parse_log(namespace, entry)
    return name is not None and name.namespace == namespace and entry in (name.topic, f"{name.topic}-part-{partition}")


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except FileNotFoundError:
        return None  # retention was quicker


def _tag(stat: os.stat_result) -> str:
    return f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}"


class _missing_as_404:  # noqa: N801 - read as a word in a `with`
    """A context that turns the error of a missing file into `HttpError` (404). `what` names the file in the message."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise _missing(self._what) from None


def _missing(what: str) -> HttpError:
    return HttpError(HTTPStatus.NOT_FOUND, f"there is no {what} here")


# handlers


async def list_namespaces(request: ApiRequest) -> object:
    """Return the namespaces that have a log which the client may read."""
    logs = _logs(request)
    namespaces = await logs.run_in_thread(logs.namespaces)
    if not request.backend.access.enabled:
        return RootAnswer(FORMAT, namespaces)
    readable = {namespace: await logs.run_in_thread(logs.logs, namespace) for namespace in namespaces}
    return RootAnswer(
        FORMAT,
        [
            namespace
            for namespace in namespaces
            if any(_may_read(request, namespace, log) for log in readable[namespace])
        ],
    )


async def list_logs(request: ApiRequest) -> object:
    logs, namespace = _logs(request), request.path_params["namespace"]
    names = await logs.run_in_thread(logs.logs, namespace)
    readable = [log for log in names if _may_read(request, namespace, log)]
    if names and not readable:
        raise _missing(
            f"namespace {quoted(namespace)}"
        )  # as if it did not exist: a client without permission does not learn the names
    return NamespaceAnswer(readable)


def _may_read(request: ApiRequest, namespace: str, log: str) -> bool:
    name, _ = parse_log(namespace, log)
    access = request.backend.access
    return name is not None and access.allows(request.principal, Operation.CONSUME, Resource.topic(name))


async def list_files(request: ApiRequest) -> object:
    logs = _logs(request)
    return LogAnswer(await logs.run_in_thread(logs.files, request.path_params["namespace"], request.path_params["log"]))


async def get_file(request: ApiRequest) -> object:
    logs, params = _logs(request), request.path_params
    descriptor = await logs.run_in_thread(logs.open, params["namespace"], params["log"], params["file"])
    try:
        may = partial(_may_read, request, params["namespace"], params["log"])
        return FileRangeResponse(logs, descriptor, request.headers["range"], may)
    except BaseException:
        os.close(descriptor)
        raise


def _logs(request: ApiRequest) -> LogFiles:
    logs = request.services.get(LogFiles)
    if logs is None:
        raise HttpError(HTTPStatus.NOT_FOUND, "logs are not read over HTTP here: server.http_logs is off")
    return logs


# responses


def requested_range(requested: str | None, size: int) -> tuple[int, int] | None:
    """Return the start and the end (exclusive) of the range of bytes that a Range header requests, cut to `size`. None
    without a header, or with one that is not understood: then all of the file is sent. Raises `HttpError` (416) for a
    range behind the end."""
    suffix = _SUFFIX.fullmatch(requested or "")
    if suffix:
        start, stop = max(0, size - int(suffix[1])), size
    else:
        match = _RANGE.fullmatch(requested or "")
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            return None
        start, stop = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    if start >= stop:
        raise HttpError(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, f"{requested} is not in a file of {size} bytes")
    return start, stop


class FileRangeResponse(Response):
    """A response with the bytes of an open file, or a range of them. It closes the file at its end."""

    def __init__(self, logs: LogFiles, descriptor: int, requested: str | None, may: Callable[[], bool]) -> None:
        """Prepare the response. `descriptor` is the open file, `requested` the Range header. `may` returns True while
        the client may read the file, and is called after each piece is read: if it returns False, the response is cut
        off."""
        facts = os.fstat(descriptor)
        part = requested_range(requested, facts.st_size)
        self._start, self._stop = part or (0, facts.st_size)
        headers = {
            "accept-ranges": "bytes",
            "etag": f'"{_tag(facts)}"',
            "content-length": str(self._stop - self._start),
        }
        if part is not None:
            headers["content-range"] = f"bytes {self._start}-{self._stop - 1}/{facts.st_size}"
        status = HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT
        super().__init__(None, status, headers, media_type=BYTES)
        self.raw_headers = [pair for pair in self.raw_headers if pair != (b"content-length", b"0")]
        self._logs = logs
        self._descriptor = descriptor
        self._may = may

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._send_pieces(send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            os.close(self._descriptor)

    async def _send_pieces(self, send: Send) -> None:
        position = self._start
        while position < self._stop:
            size = min(PIECE_BYTES, self._stop - position)
            piece = await self._logs.run_in_thread(os.pread, self._descriptor, size, position)
            if not piece or not self._may():
                # The client sees that the response is incomplete.
                raise ConnectionError("the file has become shorter, or may no longer be read")
            position += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
