"""Tokens as an issuer makes them, and as an attacker does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "penstock"
SECRET: Final = "a secret that only the issuer and the broker know, 0123456789"


@cache
def rsa_key(_which: str = "first", bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(_which: str = "first") -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(private: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(private, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    described: dict[str, Any] = json.loads(algorithm.to_jwk(private.public_key()))
    return described | ({} if kid is None else {"kid": kid}) | more


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now + 600, "nbf": now - 10} | more
    return {name: value for name, value in given.items() if value is not None}


def hs256(secret: str = SECRET, headers: dict[str, Any] | None = None, **more: Any) -> str:
    return jwt.encode(claims(**more), secret, "HS256", headers=headers)


def signed(private: Any, kid: str | None = None, **more: Any) -> str:
    algorithm = "RS256" if isinstance(private, rsa.RSAPrivateKey) else "ES256"
    return jwt.encode(claims(**more), private, algorithm, headers=None if kid is None else {"kid": kid})


def raw(head: object, body: object, signature: bytes = b"") -> str:
    """Return a token of any head and body, without a signature."""
    return ".".join(
        _part(each if isinstance(each, bytes) else json.dumps(each).encode()) for each in (head, body, signature)
    )


def forged(head: dict[str, Any], body: dict[str, Any], secret: bytes) -> str:
    """A right HMAC, over whatever, with whatever."""
    content = raw(head, body).rpartition(".")[0]
    return f"{content}.{_part(hmac.new(secret, content.encode(), hashlib.sha256).digest())}"


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@dataclass(frozen=True)
class Files:
    """The files that the settings name."""

    secret: Path
    jwks: Path

    @classmethod
    def make(cls, folder: Path) -> Files:
        made = cls(folder / "secret", folder / "jwks.json")
        made.secret.write_text(f"{SECRET}\n")
        made.publish(jwk(rsa_key(), "r1"), jwk(ec_key(), "e1"))
        return made

    def publish(self, *keys: dict[str, Any]) -> None:
        part = self.jwks.with_suffix(".part")
        part.write_text(json.dumps({"keys": list(keys)}))
        part.replace(self.jwks)

    @property
    def flags(self) -> list[str]:
        return [
            *("--auth", "on", "--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE),
            *("--jwt-secret-file", str(self.secret), "--jwt-jwks-file", str(self.jwks)),
        ]
