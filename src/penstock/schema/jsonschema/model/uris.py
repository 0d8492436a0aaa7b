"""Resolution of references by RFC 3986. URIs are names here, not addresses, and are never fetched."""

from __future__ import annotations

import re
from typing import Final

# Scheme, authority, path, query; the fragment is cut off before.
_PARTS: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?]*))?([^?]*)(?:\?(.*))?", re.DOTALL)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._~/-]+")
_ESCAPED: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def resolve(base: str, reference: str) -> str:
    """Resolve a reference against `base`. Both come without fragments."""
    scheme, authority, path, query = _split(reference)
    if scheme is not None:
        return _join(scheme, authority, _without_dots(path), query)
    base_scheme, base_authority, base_path, base_query = _split(base)
    if authority is not None:
        return _join(base_scheme, authority, _without_dots(path), query)
    if not path:
        return _join(base_scheme, base_authority, base_path, base_query if query is None else query)
    if not path.startswith("/"):
        path = base_path[: base_path.rfind("/") + 1] + path
    return _join(base_scheme, base_authority, _without_dots(path), query)


def unescaped(fragment: str) -> str | None:
    """Return a fragment without percent-encoding; None if that is not UTF-8."""
    try:
        return _ESCAPED.sub(lambda match: bytes.fromhex(match[0].replace("%", "")).decode(), fragment)
    except UnicodeDecodeError:
        return None


def escaped(text: str) -> str:
    """Percent-encode a text for use in a fragment."""
    return _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)


def _split(text: str) -> tuple[str | None, str | None, str, str | None]:
    match = _PARTS.fullmatch(text)
    return (match[1], match[2], match[3], match[4]) if match else (None, None, text, None)


def _join(scheme: str | None, authority: str | None, path: str, query: str | None) -> str:
    before = (f"{scheme}:" if scheme is not None else "") + (f"//{authority}" if authority is not None else "")
    return before + path + (f"?{query}" if query is not None else "")


def _without_dots(path: str) -> str:
    """Remove dot segments: `a/./b/../c` is `a/c`, and a path cannot climb above the root."""
    if "." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            _climb(kept)
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept)


def _climb(kept: list[str]) -> None:
    if kept and kept != [""]:
        kept.pop()
