"""Headers that every answer over HTTP has: what browsers may do with it, and which pages may read it.

A browser takes nothing of ours for a page, keeps nothing, frames nothing and tells nobody where it came from. Whoever
answers with a page says itself what that page may do: what an answer has already stays as it is.
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
    """An application whose answers have all of them."""

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
    """These headers, and of those more that they have not."""
    found = list(headers)
    names = {name.lower() for name, _ in found}
    return [*found, *(each for each in more if each[0] not in names)]


def allow_reading(origin: str, send: Send) -> Send:
    """Answers that pages of this origin may read. Without cookies: credentials are in headers that a page must add."""
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
    """What a browser asks before it lets a page ask."""
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
