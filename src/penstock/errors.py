"""The errors that a client raises, and a handler may: `penstock.errors.NoRouteFound`."""

from __future__ import annotations

from penstock.core.errors import (
    Code,
    DiskFull,
    Forbidden,
    InvalidRequest,
    InvalidRequestId,
    MalformedMessage,
    NoRouteFound,
    NotOwner,
    OffsetOutOfRange,
    PayloadTooLarge,
    PenstockError,
    QuotaExceeded,
    SchemaRejected,
    ServiceUnavailable,
    StorageFailed,
    Timeout,
    TopicNotSupported,
    Unauthorized,
    VersionNotSupported,
)

__all__ = [
    "Code",
    "DiskFull",
    "Forbidden",
    "InvalidRequest",
    "InvalidRequestId",
    "MalformedMessage",
    "NoRouteFound",
    "NotOwner",
    "OffsetOutOfRange",
    "PayloadTooLarge",
    "PenstockError",
    "QuotaExceeded",
    "SchemaRejected",
    "ServiceUnavailable",
    "StorageFailed",
    "Timeout",
    "TopicNotSupported",
    "Unauthorized",
    "VersionNotSupported",
]
