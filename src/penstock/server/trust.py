"""Whose tokens are taken: what the settings say of it. Nothing is read here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustFiles:
    issuer: str
    audience: str
    secret: Path | None = None
    """Of HS256."""

    jwks: Path | None = None
    """Public keys, of RS256 and ES256."""
