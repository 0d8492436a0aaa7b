"""Errors as HTTP responses, in two dialects: the flat one of schema registries, and Penstock's own as on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec
from starlette.responses import Response

from penstock.broker.base.replies import error_payload
from penstock.core.clock import Clock, SystemClock, now_ms
from penstock.core.errors import Code, InvalidRequest, PenstockError
from penstock.schema.errors import InvalidSchema, RegistryError

JSON: Final = "application/json"
REGISTRY_MEDIA: Final = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", JSON)
_STORE, _TIMEOUT = 50001, 50002
_CLOCK: Final[Clock] = SystemClock()

STATUSES: Final = {
    Code.MALFORMED_MESSAGE: HTTPStatus.BAD_REQUEST,
    Code.INVALID_REQUEST: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.INVALID_REQUEST_ID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.VERSION_NOT_SUPPORTED: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.UNAUTHORIZED: HTTPStatus.UNAUTHORIZED,
    Code.FORBIDDEN: HTTPStatus.FORBIDDEN,
    Code.TOPIC_NOT_SUPPORTED: HTTPStatus.NOT_FOUND,
    Code.NO_ROUTE_FOUND: HTTPStatus.NOT_FOUND,
    Code.SERVICE_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.TIMEOUT: HTTPStatus.GATEWAY_TIMEOUT,
    Code.INTERNAL_ERROR: HTTPStatus.INTERNAL_SERVER_ERROR,
    Code.SCHEMA_REJECTED: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.PAYLOAD_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Code.DISK_FULL: HTTPStatus.INSUFFICIENT_STORAGE,
    Code.STORAGE_FAILED: HTTPStatus.INTERNAL_SERVER_ERROR,
    Code.OFFSET_OUT_OF_RANGE: HTTPStatus.GONE,
    Code.NOT_OWNER: HTTPStatus.CONFLICT,
    Code.QUOTA_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS,
}
"""The HTTP status of every error code."""

_FLAT_NUMBERS: Final = {Code.TIMEOUT: _TIMEOUT}
_FLAT_PASSED_ON: Final = frozenset(
    {
        Code.MALFORMED_MESSAGE,
        Code.INVALID_REQUEST,
        Code.SCHEMA_REJECTED,
        Code.UNAUTHORIZED,
        Code.FORBIDDEN,
        Code.TOPIC_NOT_SUPPORTED,
        Code.PAYLOAD_TOO_LARGE,
        Code.QUOTA_EXCEEDED,
        Code.SERVICE_UNAVAILABLE,
    }
)
"""The error codes that the registry's dialect reports with their own status. All other codes are reported as a failure
of the registry's store."""
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="penstock", Basic realm="penstock", charset="UTF-8"'}


_INVALID_SCHEMA: Final = "Invalid schema"


class HttpError(InvalidRequest):
    """An error with an HTTP status of its own, in place of the one that its code has in `STATUSES`."""

    def __init__(self, status: HTTPStatus, message: str, **details: object) -> None:
        super().__init__(message, **details)
        self.status = status


class WrongMethod(HttpError):
    """The error for a path that exists, but not with the requested method. `allowed` has the methods that it has."""

    def __init__(self, message: str, allowed: tuple[str, ...]) -> None:
        super().__init__(HTTPStatus.METHOD_NOT_ALLOWED, message, allowed=allowed)
        self.allowed = allowed


class ErrorFields(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    message: str
    timestamp: str
    details: dict[str, Any] = msgspec.field(default_factory=dict)


class Problem(msgspec.Struct, frozen=True):
    """An error as on the wire: a code, a sentence, and the numbers that explain it."""

    error: ErrorFields


class FlatProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as clients of schema registries know it: the number's first three digits are the status."""

    error_code: int
    message: str
    code: str | None = None
    details: dict[str, Any] | None = None


class Refuse(Protocol):
    def __call__(self, error: PenstockError, media: str, *, more: bool = False) -> Response:
        """Return the error as a response with the media type `media`. With `more`, it may have fields that the dialect
        does not define."""
        ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect of the HTTP API: its media types, of which the first is the preferred one, and the shape of its
    errors."""

    media: tuple[str, ...]
    problem: type[Any]
    refuse: Refuse
    strict: bool
    """True if a client that accepts none of the media types is refused; False if it gets the first of them."""


def status_of(error: PenstockError) -> int:
    match error:
        case HttpError():
            return int(error.status)
        case RegistryError():
            return error.status
    number = error.details.get("registry_code")
    return int(str(number)[:3]) if isinstance(number, int) else int(STATUSES[error.code])


def _plain(error: PenstockError, media: str, *, more: bool = False) -> Response:  # noqa: ARG001 - one shape for all
    status = status_of(error)
    if isinstance(error, RegistryError):
        error.details.setdefault("registry_code", error.number)
    allow = {"allow": ", ".join(error.allowed)} if isinstance(error, WrongMethod) else None
    return _response(error_payload(error, now_ms(_CLOCK)), status, JSON, allow)


def _flat(error: PenstockError, media: str, *, more: bool = False) -> Response:
    status, number = _flat_number(error)
    details: dict[str, Any] = {"code": error.code, "details": error.details} if more else {}
    return flat_error(status, number, _flat_message(number, error.message), media, **details)


def _flat_message(number: int, message: str) -> str:
    """Return the message, with the phrase in front that registry clients search for to recognise an invalid schema."""
    if number != InvalidSchema.number or message.startswith(_INVALID_SCHEMA):
        return message
    return f"{_INVALID_SCHEMA}: {message}"


def _flat_number(error: PenstockError) -> tuple[int, int]:
    """Return the HTTP status and the registry's error number. An error that came from a system topic has its number in
    the details."""
    status = status_of(error)
    if isinstance(error, RegistryError):
        return status, error.number
    number = error.details.get("registry_code")
    if isinstance(number, int):
        return status, number
    if isinstance(error, HttpError) or error.code in _FLAT_PASSED_ON:
        return status, status
    return HTTPStatus.INTERNAL_SERVER_ERROR, _FLAT_NUMBERS.get(error.code, _STORE)


def flat_error(status: int, number: int, message: str, media: str = JSON, **facts: Any) -> Response:
    body = msgspec.json.encode({"error_code": number, "message": message, **facts}, enc_hook=str)
    return _response(body, status, media)


def _response(body: bytes, status: int, media: str, headers: Mapping[str, str] | None = None) -> Response:
    challenge = _CHALLENGE if status == HTTPStatus.UNAUTHORIZED else {}
    return Response(body, status, {**challenge, **(headers or {})}, media_type=media)


FLAT: Final = Dialect(REGISTRY_MEDIA, FlatProblem, _flat, strict=True)
PLAIN: Final = Dialect((JSON,), Problem, _plain, strict=False)


def dialect_at(raw_path: str) -> Dialect:
    """Return the dialect for errors on a path that matches no route. Penstock's own paths begin with `/v1/` or `/api/`;
    all others are taken for paths of the schema registry."""
    return PLAIN if is_own(raw_path) else FLAT


def is_own(path: str) -> bool:
    """Return True if the path is Penstock's own, not the schema registry's. Only clients of Penstock use these, so
    unknown query parameters can be refused there."""
    return path.startswith(("/v1/", "/api/"))
