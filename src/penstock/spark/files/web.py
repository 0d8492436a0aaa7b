"""A small HTTP client with reused connections, a limited number of retries, and errors that say what to do.

Made for a broker's HTTP port and for schema registries. It only sends GET, so any failed request may be repeated.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.client.wire.address import tls_context
from penstock.client.wire.credentials import Secret, find_secret
from penstock.core.errors import InvalidRequest, PenstockError, ServiceUnavailable, error_from_dict

_SECONDS: Final = 30.0
"""Timeout in seconds for connecting, and for each read of a part of an answer."""
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.1
"""Seconds of pause before the second try, doubled before each further one. In all they are long enough for a broker
that restarts, which takes a second or two."""
_BODY_BYTES_MAX: Final = 64 << 20
_SHOWN_CHARS: Final = 200
_BUSY: Final = frozenset({429, 502, 503, 504})
_BROKEN: Final = (OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]
    """Values of the headers, by name in lower case."""
    body: bytes

    def json(self) -> Any:
        """Return the parsed body. Raises `ValueError` if it is no JSON."""
        return json.loads(self.body)


class HttpClient:
    """The client of one server. It is thread-safe: no two calls use a connection at the same time.

    `options` are paths of files: `tls_ca` has the certificates to trust instead of the machine's own, `tls_cert` and
    `tls_key` those of the client, `token_file` a key or a token. `secret` is sent if there is neither `token_file` nor
    a user name in the URL. The caller chooses it, so that the token for a Penstock broker (PENSTOCK_TOKEN) is never
    sent to another registry. `what` names the server in errors.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, str] | None = None,
        *,
        what: str = "the broker",
        secret: Secret | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._options = dict(options or {})
        self.name = _without_secrets(parts)
        self._described = f"{what} at {self.name}"
        self._host, self._port, self._tls = parts.hostname or "", parts.port, parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self._headers = {"accept": "application/json, */*;q=0.5"} | _credentials(parts)
        named = self._options.get("token_file")
        self._secret = None if parts.username is not None else find_secret(token_file=named) if named else secret
        self._idle: list[http.client.HTTPConnection] = []
        self._pid = os.getpid()
        weakref.finalize(self, _close, self._idle)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        """Return the answer to a GET, with any status except 429, 502, 503 and 504. After those, and after a broken
        connection, try again.

        Raises `ServiceUnavailable` after five tries.
        """
        reason = ""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                answer = self._request(path, {**self._headers, **self._bearer(), **(headers or {})})
            except _BROKEN as error:
                reason = str(error) or type(error).__name__
                continue
            if answer.status not in _BUSY:
                return answer
            reason = f"it answers {answer.status}: {_error_text(answer)}"
        raise ServiceUnavailable(
            f"{self._described} does not answer ({reason}): is it running, and is this its HTTP address?", url=self.name
        )

    def _bearer(self) -> dict[str, str]:
        """Return the authorization header, or an empty dict without a secret. The secret is read anew each time, since
        a token in a file is replaced before it expires."""
        return {} if self._secret is None else {"authorization": f"Bearer {self._secret.reveal()}"}

    def get_json(self, path: str) -> Any:
        """Return the parsed body of an answer with status 200; None for 404. For any other status raise the error that
        the answer describes. Raises `InvalidRequest` if the body is no JSON."""
        answer = self.get(path)
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        if answer.status != http.HTTPStatus.OK:
            raise self.answer_error(answer)
        try:
            return answer.json()
        except ValueError:
            raise self.unexpected_answer(path, answer) from None

    def answer_error(self, answer: HttpAnswer) -> PenstockError:
        """Return the error that the body of an answer describes. If the body describes none, return `InvalidRequest`
        with the status."""
        message = f"{self._described} answers {answer.status}: {_error_text(answer)}"
        try:
            body = answer.json()
        except ValueError:
            body = None
        if isinstance(body, dict) and isinstance(body.get("error"), dict):
            body = body["error"]
        if isinstance(body, dict) and "code" in body:
            return error_from_dict({**body, "message": message})
        return InvalidRequest(message, status=answer.status)

    def unexpected_answer(self, path: str, answer: HttpAnswer) -> InvalidRequest:
        """Return the error for an answer that neither a Penstock broker nor a schema registry would send."""
        return InvalidRequest(
            f"{self._described} answers GET {path} with something else than a Penstock broker or a schema registry"
            f" would ({_error_text(answer)}): is this its HTTP address?",
            url=self.name,
        )

    def _request(self, path: str, headers: Mapping[str, str]) -> HttpAnswer:
        """Send a request on an idle connection. If there is none, or the server has closed it meanwhile, use a new one
        without a pause."""
        connection = self._idle_connection()
        if connection is not None:
            try:
                return self._exchange(connection, path, headers)
            except _BROKEN:
                pass
        return self._exchange(self._new_connection(), path, headers)

    def _exchange(self, connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str]) -> HttpAnswer:
        try:
            connection.request("GET", self._path + path, headers=dict(headers))
            response = connection.getresponse()
            body = response.read(_BODY_BYTES_MAX)
        except BaseException:
            connection.close()
            raise
        if response.will_close or not response.isclosed():
            connection.close()
        else:
            self._idle.append(connection)
        return HttpAnswer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)

    def _idle_connection(self) -> http.client.HTTPConnection | None:
        if self._pid != os.getpid():  # forked since: two processes must not use one connection
            self._pid = os.getpid()
            _close(self._idle)
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _new_connection(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=_SECONDS)
        return http.client.HTTPSConnection(self._host, self._port, timeout=_SECONDS, context=self._context())

    def _context(self) -> ssl.SSLContext:
        options = self._options
        try:
            return tls_context(options.get("tls_ca"), options.get("tls_cert"), options.get("tls_key"))
        except InvalidRequest as error:
            shown = ", ".join(f"storage.{name}={value!r}" for name, value in options.items())
            raise InvalidRequest(f"{shown}: {error.message}") from None

    def close(self) -> None:
        _close(self._idle)


def _close(idle: list[http.client.HTTPConnection]) -> None:
    while idle:
        idle.pop().close()


def _error_text(answer: HttpAnswer) -> str:
    try:
        body = answer.json()
        text = str(body.get("error", body)["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        text = repr(answer.body[:_SHOWN_CHARS].decode(errors="replace"))
    return text


def _credentials(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _without_secrets(parts: SplitResult) -> str:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
