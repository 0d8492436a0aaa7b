"""Request and response bodies: media types, size limits, reading and decoding."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope

from penstock.core.errors import PayloadTooLarge, PenstockError, ServiceUnavailable
from penstock.core.limits import MIB
from penstock.server.api.body_mismatch import mismatch
from penstock.server.api.errors import JSON, Dialect, HttpError, dialect_at
from penstock.server.api.routing import quoted
from penstock.server.http_scope import header, raw_path

_BODIES_BYTES_MAX: Final = 64 * MIB
"""The most bytes of all bodies together that are being read or handled: one import and some dozens of the largest
schemas."""
_BODY_SECONDS: Final = 30.0
_SILENCE_SECONDS: Final = 10.0
"""The longest time between two pieces of a body. A client that announces a body and sends nothing must not keep a slot.
"""
_CHARSETS: Final = ("utf-8", "utf8", "us-ascii")


# media types


def negotiate_media(scope: Scope, dialect: Dialect) -> str:
    """Return the media type of the dialect that the client prefers. If it accepts none of them, a strict dialect raises
    `HttpError`, and others use their first."""
    accept = _accept(scope)
    media, weight = best_of(accept, dialect)
    if not weight and dialect.strict:
        raise HttpError(HTTPStatus.NOT_ACCEPTABLE, f"Accept: {quoted(accept)} takes none of {', '.join(dialect.media)}")
    return media


def error_response(
    error: PenstockError, scope: Scope, dialect: Dialect | None = None, *, more: bool = False
) -> Response:
    """Return an error as a response in the media type that the client prefers, or in the dialect's first if it accepts
    none. `dialect` defaults to that of the request's path. With `more`, the response may have fields that the dialect
    does not define."""
    spoken = dialect or dialect_at(raw_path(scope))
    media, _ = best_of(_accept(scope), spoken)
    return spoken.refuse(error, media, more=more)


def _accept(scope: Scope) -> str:
    return header(scope, b"accept") or "*/*"


@lru_cache(maxsize=256)
def best_of(accept: str, dialect: Dialect) -> tuple[str, float]:
    """Return the dialect's media type with the highest weight in the Accept header, and that weight, which is 0 if none
    is accepted."""
    known = dialect.media
    ranges = dict(_range(each) for each in accept.lower().split(",") if each.strip())
    weights = {media: _weight(media, ranges) for media in known} if ranges else dict.fromkeys(known, 1.0)
    best = max(known, key=lambda media: weights[media])
    return best, weights[best]


def _range(written: str) -> tuple[str, float]:
    kind, *parameters = (part.strip() for part in written.split(";"))
    weights = [part.removeprefix("q=") for part in parameters if part.startswith("q=")]
    return kind, _q(weights[0]) if weights else 1.0


def _q(written: str) -> float:
    try:
        return min(max(float(written), 0.0), 1.0)
    except ValueError:
        return 1.0


def _weight(media: str, ranges: dict[str, float]) -> float:
    """Return the weight that the Accept header gives to a media type: that of the narrowest range that matches it. Java
    clients send `*` for `*/*`. `ranges` has the weights by range."""
    return next((ranges[each] for each in (media, "application/*", "*/*", "*") if each in ranges), 0.0)


def check_content(written: str | None, encoding: str | None, dialect: Dialect) -> None:
    """Check the Content-Type (`written`) and Content-Encoding of a body. Without a Content-Type it is taken for JSON.
    Raises `HttpError` (415) if the dialect does not accept it."""
    kind, *parameters = (part.strip() for part in (written or JSON).lower().split(";"))
    charsets = [part.removeprefix("charset=").strip('"') for part in parameters if part.startswith("charset=")]
    if kind not in dialect.media or any(charset not in _CHARSETS for charset in charsets):
        raise HttpError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type: {quoted(written or '')}: send {dialect.media[0]} in UTF-8",
        )
    check_encoding(encoding)


def check_encoding(encoding: str | None) -> None:
    if encoding is not None and encoding.lower() != "identity":
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Encoding: {quoted(encoding)} is not understood")


# reading


def decode_body(raw: bytes | bytearray, kind: Any) -> Any:
    """Decode a JSON body to the type `kind`. Raises `HttpError`: 400 if it is not JSON, and 422, with the name of the
    wrong field, if it does not have that type."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        sentence, field = mismatch(error, kind)
        message = f"the body is not what is wanted here: {sentence}"
        raise HttpError(HTTPStatus.UNPROCESSABLE_ENTITY, message, field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}") from None


class RequestBodies:
    """The request bodies that are held in memory now, and their total size."""

    def __init__(self) -> None:
        self.size = 0

    def read(
        self, receive: Receive, most: int, declared: int | None = None, *, whole: bool = False
    ) -> AbstractAsyncContextManager[bytearray]:
        """Return a context that reads one body of at most `most` bytes when it is entered, and returns it. Its bytes
        count as held until the context ends.

        A body whose `declared` size is too large is refused before any of it is read: its sender may be waiting for
        permission to send (`Expect: 100-continue`). With `whole`, all of the body has come already, so no timeout is
        set. Raises `PayloadTooLarge`; `ServiceUnavailable` if all bodies together are too large; `HttpError` 408 if the
        body is too slow, and 400 if the connection ends.
        """
        return _BodyReader(self, receive, most, declared, whole=whole)

    async def fill(self, held: bytearray, receive: Receive, most: int, *, whole: bool) -> None:
        """Read all of a body into `held`. Raises as `read` says."""
        if whole and not await self._add_piece(held, receive, most):
            return
        try:
            async with asyncio.timeout(_SILENCE_SECONDS) as limit:
                end = (limit.when() or 0.0) - _SILENCE_SECONDS + _BODY_SECONDS
                while await self._add_piece(held, receive, most):
                    limit.reschedule(min(end, asyncio.get_running_loop().time() + _SILENCE_SECONDS))
        except TimeoutError:
            raise HttpError(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body did not come: it has {_BODY_SECONDS:.0f} s, and {_SILENCE_SECONDS:.0f} s for the next of it",
            ) from None

    async def _add_piece(self, held: bytearray, receive: Receive, most: int) -> bool:
        """Wait for the next piece of the body and add it to `held`. Returns True if more of the body follows."""
        message = await receive()
        if message["type"] != "http.request":
            raise HttpError(HTTPStatus.BAD_REQUEST, "the connection ended within the body")
        piece = message.get("body", b"")
        held += piece
        self.size += len(piece)
        self._check(len(held), most)
        return bool(message.get("more_body"))

    def _check(self, taken: int, most: int) -> None:
        if taken > most:
            raise _too_large(most)
        if self.size > _BODIES_BYTES_MAX:
            raise ServiceUnavailable("too much is being sent at once: try again later")


class _BodyReader(AbstractAsyncContextManager[bytearray]):
    """The context of one body: entering it reads the body; its bytes count as held until the context ends."""

    def __init__(
        self, bodies: RequestBodies, receive: Receive, most: int, declared: int | None, *, whole: bool
    ) -> None:
        self._bodies = bodies
        self._receive = receive
        self._most = most
        self._declared = declared
        self._whole = whole
        self._held = bytearray()

    async def __aenter__(self) -> bytearray:
        if self._declared is not None and self._declared > self._most:
            raise _too_large(self._most)
        try:
            await self._bodies.fill(self._held, self._receive, self._most, whole=self._whole)
        except BaseException:
            self._bodies.size -= len(self._held)
            raise
        return self._held

    async def __aexit__(self, *_: object) -> None:
        self._bodies.size -= len(self._held)


def _too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body has more than {most} bytes", limit=most)
