"""Files of a broker, read through its HTTP port: the topics' files, with the same paths as in its data directory, and
the identity file. Other files cannot be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from penstock.client.wire.credentials import find_secret
from penstock.core.errors import InvalidRequest, ServiceUnavailable
from penstock.spark.files.remote import Listing, RemoteDisk, RemoteEntry
from penstock.spark.files.web import HttpAnswer, HttpClient
from penstock.storage.base.layout import IDENTITY, TOPICS

LOGS: Final = "/v1/logs"
_IDENTITY_TAG: Final = "identity"

_Answer = TypeVar("_Answer")


class HttpDisk(RemoteDisk):
    """The disk of a broker at a URL; paths are those of its data directory."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        super().__init__(BrokerFiles(HttpClient(url, options, secret=find_secret())))


class RootAnswer(msgspec.Struct, frozen=True):
    format: int
    namespaces: tuple[str, ...]


class NamespaceAnswer(msgspec.Struct, frozen=True):
    logs: tuple[str, ...]


class FileAnswer(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    tag: str


class LogAnswer(msgspec.Struct, frozen=True):
    files: tuple[FileAnswer, ...]


class BrokerFiles:
    def __init__(self, client: HttpClient) -> None:
        self.name = client.name
        self._client = client

    def list(self, path: str) -> Listing:
        match path.split("/") if path else []:
            case []:
                return Listing({IDENTITY: self.find(IDENTITY)}, (TOPICS,))
            case [first] if first == TOPICS:
                return Listing({}, self._root().namespaces)
            case [first, namespace] if first == TOPICS:
                answer = self._get(f"{LOGS}/{quote(namespace, safe='')}", NamespaceAnswer)
                return Listing({}, () if answer is None else answer.logs)
            case [first, namespace, log] if first == TOPICS:
                listed = self._get(f"{LOGS}/{quote(namespace, safe='')}/{quote(log, safe='')}", LogAnswer)
                files = () if listed is None else listed.files
                return Listing({file.name: RemoteEntry(file.bytes, file.tag) for file in files}, ())
            case _:
                return Listing({}, ())

    def find(self, path: str) -> RemoteEntry:
        if path == IDENTITY:
            return RemoteEntry(len(self._identity()), _IDENTITY_TAG)
        folder, _, name = path.rpartition("/")
        entry = self.list(folder).files.get(name)
        if entry is None:
            raise FileNotFoundError(path)
        return entry

    def fetch(self, path: str, start: int, stop: int) -> bytes:
        if path == IDENTITY:
            return self._identity()[start:stop]
        below = path.removeprefix(f"{TOPICS}/")
        answer = self._client.get(f"{LOGS}/{quote(below)}", {"range": f"bytes={start}-{stop - 1}", "accept": "*/*"})
        match answer.status:
            case HTTPStatus.PARTIAL_CONTENT:
                return self._checked(path, answer, start, stop)
            case HTTPStatus.NOT_FOUND:
                raise FileNotFoundError(path)
            case HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return b""
            case HTTPStatus.OK:
                raise self._client.unexpected_answer(path, answer)
            case _:
                raise self._client.answer_error(answer)

    def _checked(self, path: str, answer: HttpAnswer, start: int, stop: int) -> bytes:
        """Return the body of an answer. Raises `ServiceUnavailable` if it is not the requested range, which can happen
        if a proxy handles ranges in its own way."""
        content_range = answer.headers.get("content-range", "")
        if not content_range.startswith(f"bytes {start}-") or not 0 < len(answer.body) <= stop - start:
            raise ServiceUnavailable(
                f"{self.name} answers bytes {start} to {stop} of {path} with {len(answer.body)} bytes of"
                f" {content_range!r}"
            )
        return answer.body

    def _root(self) -> RootAnswer:
        root = self._get(LOGS, RootAnswer)
        if root is None:
            raise InvalidRequest(
                f"{self.name} has no logs to read: it is no Penstock broker, one of an older release, or one with"
                " http_logs off"
            )
        return root

    def _identity(self) -> bytes:
        """Return the bytes of the identity file, made from the broker's answer. The node number in it is always 0,
        since the broker does not tell its own."""
        return json.dumps({"format": self._root().format, "node": 0}).encode()

    def _get(self, path: str, kind: type[_Answer]) -> _Answer | None:
        """Return the body of an answer as a `kind`; None for status 404. Raises `InvalidRequest` if the body is not
        what a Penstock broker would send."""
        body = self._client.get_json(path)
        try:
            return None if body is None else msgspec.convert(body, kind)
        except msgspec.ValidationError as error:
            raise InvalidRequest(
                f"{self.name} answers GET {path} with something else than a Penstock broker would ({error}): is this"
                " its HTTP address?"
            ) from None
