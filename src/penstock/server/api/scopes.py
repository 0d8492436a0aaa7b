"""What the head of a request says, as an ASGI server hands it over."""

from __future__ import annotations

from starlette.types import Scope


def header(scope: Scope, name: bytes) -> str | None:
    """The first of that name, in lower case; None where there is none."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def raw_path(scope: Scope) -> str:
    """As it was sent, with its escapes."""
    return str(scope["raw_path"], "latin-1")
