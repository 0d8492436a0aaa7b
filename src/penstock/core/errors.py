"""The project's exceptions. Each class has its wire code, and says if a retry can help; each error has details.

HTTP status, wire reply and exit code are in tables elsewhere, by `Code`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final


class Code(StrEnum):
    """The codes that appear on the wire, in answers and in `--json` output."""

    MALFORMED_MESSAGE = "MALFORMED_MESSAGE"
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_REQUEST_ID = "INVALID_REQUEST_ID"
    VERSION_NOT_SUPPORTED = "VERSION_NOT_SUPPORTED"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    TOPIC_NOT_SUPPORTED = "TOPIC_NOT_SUPPORTED"
    NO_ROUTE_FOUND = "NO_ROUTE_FOUND"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    TIMEOUT = "TIMEOUT"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    SCHEMA_REJECTED = "SCHEMA_REJECTED"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    DISK_FULL = "DISK_FULL"
    STORAGE_FAILED = "STORAGE_FAILED"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    NOT_OWNER = "NOT_OWNER"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"


class VerbatimDetails(list[Any]):
    """A list among an error's details that quotes nothing a client sent: an answer contains all of it, however long it
    is."""


class PenstockError(Exception):
    """The base of all exceptions of the project. `str()` is a sentence for a person; `details` has the same facts for a
    program."""

    code: ClassVar[Code] = Code.INTERNAL_ERROR
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, /, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def as_dict(self) -> dict[str, object]:
        described: dict[str, object] = {"code": self.code.value, "message": self.message}
        return described | {"details": self.details} if self.details else described


class MalformedMessage(PenstockError):
    """Bytes that break a format: a block, a record, a header."""

    code = Code.MALFORMED_MESSAGE


class InvalidRequest(PenstockError):
    """A well-formed request that is not possible."""

    code = Code.INVALID_REQUEST


class InvalidRequestId(PenstockError):
    """An id that is not a request id, or that belongs to no open request."""

    code = Code.INVALID_REQUEST_ID


class VersionNotSupported(PenstockError):
    """A format, catalog or protocol of a version that this release does not support."""

    code = Code.VERSION_NOT_SUPPORTED


class Unauthorized(PenstockError):
    """A request of a client that has not authenticated."""

    code = Code.UNAUTHORIZED


class Forbidden(PenstockError):
    """A request for which an authenticated client lacks the permission."""

    code = Code.FORBIDDEN


class TopicNotSupported(PenstockError):
    """A name that is not a topic name, or a topic that is not there."""

    code = Code.TOPIC_NOT_SUPPORTED


class NoRouteFound(PenstockError):
    """A message for which there is no subscriber now."""

    code = Code.NO_ROUTE_FOUND
    retriable = True


class ServiceUnavailable(PenstockError):
    """A broker or store that is too busy, closing or closed."""

    code = Code.SERVICE_UNAVAILABLE
    retriable = True


class Timeout(PenstockError):
    """An answer that did not come in time."""

    code = Code.TIMEOUT
    retriable = True


class SchemaRejected(PenstockError):
    """A message that the topic's schema policy refuses."""

    code = Code.SCHEMA_REJECTED


class PayloadTooLarge(PenstockError):
    """A message larger than a limit; the details name the limit."""

    code = Code.PAYLOAD_TOO_LARGE


class DiskFull(PenstockError):
    """A refusal for lack of disk space, before anything was written. Reads and acks go on; appends work again once
    there is room."""

    code = Code.DISK_FULL
    retriable = True


class StorageFailed(PenstockError):
    """A failed read, write or sync, or stored data that cannot be trusted. A log or catalog that could not write
    refuses further writes until it is opened again."""

    code = Code.STORAGE_FAILED


class OffsetOutOfRange(PenstockError):
    """An offset outside the range that the log holds."""

    code = Code.OFFSET_OUT_OF_RANGE


class NotOwner(PenstockError):
    """An operation on something that another owner holds: a data directory, or a producer's name."""

    code = Code.NOT_OWNER


class QuotaExceeded(PenstockError):
    """A request above a rate or another bound; it may succeed later."""

    code = Code.QUOTA_EXCEEDED
    retriable = True


_KINDS: Final[tuple[type[PenstockError], ...]] = (PenstockError, *PenstockError.__subclasses__())
_BY_CODE: Final = {kind.code.value: kind for kind in _KINDS}


def error_from_dict(described: Mapping[str, Any]) -> PenstockError:
    """Return the exception for the dict in which another process described its error. An unknown code is kept in
    `details`."""
    code, message, details = described.get("code"), described.get("message"), described.get("details")
    error_details = {str(name): value for name, value in details.items()} if isinstance(details, dict) else {}
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind, error_details = PenstockError, error_details | {"code": code}
    error = kind(str(message))
    error.details = error_details
    return error
