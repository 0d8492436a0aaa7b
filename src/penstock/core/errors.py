"""One tree of errors. Each knows its wire code, whether trying again can help, and the numbers that explain it.

HTTP status, wire reply and exit code are tables elsewhere, keyed by `Code`.
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
    """Details that are no quotation of what somebody sent: an answer has all of them, however long they are."""


class PenstockError(Exception):
    """The root. `str()` is a sentence for a person; `details` holds the same facts for a program."""

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
    """Well-formed, and still not something that can be asked for."""

    code = Code.INVALID_REQUEST


class InvalidRequestId(PenstockError):
    """An id that is not a request id, or belongs to no open request."""

    code = Code.INVALID_REQUEST_ID


class VersionNotSupported(PenstockError):
    """A format or protocol version this release does not speak."""

    code = Code.VERSION_NOT_SUPPORTED


class Unauthorized(PenstockError):
    """Nobody has said who is asking."""

    code = Code.UNAUTHORIZED


class Forbidden(PenstockError):
    """Known, and not allowed."""

    code = Code.FORBIDDEN


class TopicNotSupported(PenstockError):
    """A name that is not a topic name, or a topic that is not there."""

    code = Code.TOPIC_NOT_SUPPORTED


class NoRouteFound(PenstockError):
    """Nobody would have received the message."""

    code = Code.NO_ROUTE_FOUND
    retriable = True


class ServiceUnavailable(PenstockError):
    """Too busy, closing or closed."""

    code = Code.SERVICE_UNAVAILABLE
    retriable = True


class Timeout(PenstockError):
    """The answer did not come in time."""

    code = Code.TIMEOUT
    retriable = True


class SchemaRejected(PenstockError):
    """The topic's schema policy refuses the message."""

    code = Code.SCHEMA_REJECTED


class PayloadTooLarge(PenstockError):
    """Larger than a limit; the details name the limit."""

    code = Code.PAYLOAD_TOO_LARGE


class DiskFull(PenstockError):
    """Refused before anything was written; reads and acks go on, and appends do once there is room."""

    code = Code.DISK_FULL
    retriable = True


class StorageFailed(PenstockError):
    """A write or a sync failed, or what is stored cannot be trusted. Final until the log is opened again."""

    code = Code.STORAGE_FAILED


class OffsetOutOfRange(PenstockError):
    """Before the first or after the last offset that the log holds."""

    code = Code.OFFSET_OUT_OF_RANGE


class NotOwner(PenstockError):
    """Another process owns the data directory."""

    code = Code.NOT_OWNER


class QuotaExceeded(PenstockError):
    """More than a rate or a bound allows for now."""

    code = Code.QUOTA_EXCEEDED
    retriable = True


_KINDS: Final[tuple[type[PenstockError], ...]] = (PenstockError, *PenstockError.__subclasses__())
_BY_CODE: Final = {kind.code.value: kind for kind in _KINDS}


def error_from_dict(described: Mapping[str, Any]) -> PenstockError:
    """The error that somebody else described. A code that is not ours is kept among the details."""
    code, message, details = described.get("code"), described.get("message"), described.get("details")
    facts = {str(name): value for name, value in details.items()} if isinstance(details, dict) else {}
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind, facts = PenstockError, facts | {"code": code}
    made = kind(str(message))
    made.details = facts
    return made
