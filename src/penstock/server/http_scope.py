"""What the head of a request says, as an ASGI server hands it over."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import Scope

WHOLE: Final = "penstock.whole"
"""Stands in an ASGI scope once the whole body has come: to receive it is not to wait."""

_BY_NAME: Final = "penstock.headers"
"""Where in an ASGI scope its headers stand by name, once somebody has asked for one."""
_ABSOLUTE: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://([^/]*)")


def header(scope: Scope, name: bytes) -> str | None:
    """The first of that name, in lower case; None where there is none."""
    known = scope.get(_BY_NAME)
    if known is None:
        known = scope[_BY_NAME] = dict(reversed(scope["headers"]))
    value = known.get(name)
    return None if value is None else str(value, "latin-1")


def body_bytes(scope: Scope) -> int | None:
    """How large a request says that its body is, as the server has made sure; None where it does not say."""
    written = header(scope, b"content-length")
    return None if written is None else int(written)


def raw_path(scope: Scope) -> str:
    """As it was sent, with its escapes."""
    return str(scope["raw_path"], "latin-1")


def target_host(target: str) -> str | None:
    """The host in a request's target, where that is a whole address as for a proxy; None where it is a path."""
    found = _ABSOLUTE.match(target)
    return None if found is None else found[1]


def target_path(target: str) -> str:
    """The path in a request's target, which may be a whole address."""
    return target if target.startswith("/") else _ABSOLUTE.sub("", target, count=1)
