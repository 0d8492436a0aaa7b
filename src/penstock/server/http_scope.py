"""Accessors for the request head in an ASGI scope."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import Scope

WHOLE: Final = "penstock.whole"
"""The key in an ASGI scope that says that the whole body has come: receiving it does not wait."""

_BY_NAME: Final = "penstock.headers"
"""The key in an ASGI scope of its headers by name, filled by the first lookup."""
_ABSOLUTE: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://([^/]*)")


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of that name, which is in lower case; None where there is none."""
    known = scope.get(_BY_NAME)
    if known is None:
        known = scope[_BY_NAME] = dict(reversed(scope["headers"]))
    value = known.get(name)
    return None if value is None else str(value, "latin-1")


def body_bytes(scope: Scope) -> int | None:
    """Return the body's declared size, which the server has checked; None where the request declares none."""
    written = header(scope, b"content-length")
    return None if written is None else int(written)


def raw_path(scope: Scope) -> str:
    """Return the path as it was sent, with its escapes."""
    return str(scope["raw_path"], "latin-1")


def target_host(target: str) -> str | None:
    """Return the host of a request target that is a whole URL, as for a proxy; None where it is a path."""
    match = _ABSOLUTE.match(target)
    return None if match is None else match[1]


def target_path(target: str) -> str:
    """Return the path of a request target, which may be a whole URL."""
    return target if target.startswith("/") else _ABSOLUTE.sub("", target, count=1)
