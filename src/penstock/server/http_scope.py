"""Accessors for the request head in an ASGI scope."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import Scope

WHOLE: Final = "penstock.whole"
"""The key that is in an ASGI scope if the whole body has come: then receiving it does not wait."""

_BY_NAME: Final = "penstock.headers"
"""The key in an ASGI scope of a cache: the headers by name, made by the first call of `header`."""
_ABSOLUTE: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://([^/]*)")


def header(scope: Scope, name: bytes) -> str | None:
    """Return the value of the first header with that name; None if there is none. `name` is in lower case."""
    known = scope.get(_BY_NAME)
    if known is None:
        known = scope[_BY_NAME] = dict(reversed(scope["headers"]))
    value = known.get(name)
    return None if value is None else str(value, "latin-1")


def body_bytes(scope: Scope) -> int | None:
    """Return the size of the body that the request declares (Content-Length), which the server has checked; None if it
    declares none."""
    written = header(scope, b"content-length")
    return None if written is None else int(written)


def raw_path(scope: Scope) -> str:
    """Return the path as the client sent it, with percent escapes."""
    return str(scope["raw_path"], "latin-1")


def target_host(target: str) -> str | None:
    """Return the host and port of a request target that is a whole URL, as clients send it to a proxy; None if the
    target is only a path."""
    match = _ABSOLUTE.match(target)
    return None if match is None else match[1]


def target_path(target: str) -> str:
    """Return the path of a request target. The target may be a whole URL, as clients send it to a proxy."""
    return target if target.startswith("/") else _ABSOLUTE.sub("", target, count=1)
