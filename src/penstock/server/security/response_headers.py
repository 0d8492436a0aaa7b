"""Security headers of all HTTP answers: they restrict what browsers do with an answer, and which web pages may read it.

A browser must not show an answer as a page, store it, put it into a frame or send a referrer. A handler whose answer is
a page sets its own policy: headers that an answer already has are kept.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from http import HTTPStatus
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURE: Final = (
    (b"content-security-policy", b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)

METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
_ASKED: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:[ \t]*,[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_ASKED_CHARS_MAX: Final = 1024
_USUAL: Final = "authorization, content-type, x-api-key"
_EXPOSED: Final = "content-range, etag, location, retry-after, www-authenticate"
_PREFLIGHT_SECONDS: Final = 600


class SecurityHeaders:
    """ASGI middleware that adds the security headers to all answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        def sent(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = with_missing_headers(message.get("headers", ()), SECURE)
            return send(message)

        return self._app(scope, receive, sent)


def with_missing_headers(
    headers: Iterable[tuple[bytes, bytes]], more: tuple[tuple[bytes, bytes], ...]
) -> list[tuple[bytes, bytes]]:
    """Return `headers`, followed by those of `more` whose name is not among them."""
    present = list(headers)
    names = {name.lower() for name, _ in present}
    return [*present, *(header for header in more if header[0] not in names)]


def allow_reading(origin: str, send: Send) -> Send:
    """Return an ASGI `send` that adds the headers (CORS) by which pages of this origin may read the answer. Browsers do
    not send cookies with such requests; a page must send its credentials in headers."""
    more = (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED.encode()),
        (b"vary", b"Origin"),
    )

    def sent(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message["headers"] = with_missing_headers(message.get("headers", ()), more)
        return send(message)

    return sent


def preflight(origin: str, asked: str | None) -> Response:
    """Return the answer to a browser's preflight request from a page of this origin. `asked` has the names of the
    headers that the page wants to send; without a valid list, the usual ones are allowed."""
    plain = asked is not None and len(asked) <= _ASKED_CHARS_MAX and _ASKED.fullmatch(asked) is not None
    return Response(
        status_code=HTTPStatus.NO_CONTENT,
        headers={
            "access-control-allow-origin": origin,
            "access-control-allow-methods": METHODS,
            "access-control-allow-headers": str(asked) if plain else _USUAL,
            "access-control-max-age": str(_PREFLIGHT_SECONDS),
            "vary": "Origin",
        },
    )
