"""Credentials over HTTP and WebSocket: a key or a token in a header, or the name in a client's TLS certificate."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final, Protocol

from starlette.types import Scope

from penstock.broker.access.policy import (
    ANONYMOUS,
    PREFIX,
    SERVER,
    UNKNOWN_PRINCIPAL,
    AccessPolicy,
    Decision,
    Operation,
    Origin,
    Outcome,
    Principal,
)
from penstock.core.errors import Unauthorized
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.server.http_scope import header

HTTP: Final = "http"
CERTIFICATE: Final = "certificate"
"""The key, in the `state` of a request's ASGI scope, of the name in the client certificate of its connection."""
OTHER_SITE: Final = "a page of another site"
OTHER_NAME: Final = "a name that is none of this machine"
_SCHEMES: Final = "the Authorization header is 'Bearer KEY-OR-TOKEN' or 'Basic base64(NAME:KEY)' here"
_NO_SUCH: Final = "this key is not known here"


class HasAccess(Protocol):
    """An object that has the access control of the broker."""

    @property
    def access(self) -> AccessPolicy: ...


async def identify(backend: HasAccess, scope: Scope) -> Principal:
    """Return the principal of a request; `ANONYMOUS` without credentials, or if authentication is off. Raises
    `Unauthorized` for invalid credentials."""
    access = backend.access
    if not access.enabled:
        return ANONYMOUS
    token = presented_token(access, header(scope, b"authorization"), header(scope, b"x-api-key"), origin(scope))
    if token is not None:
        return access.authenticate(token, origin(scope))
    return certificate_principal((scope.get("state") or {}).get(CERTIFICATE))


def origin(scope: Scope) -> Origin:
    """Return the transport and the client's address of a request, for the audit log."""
    client = scope.get("client")
    return Origin(HTTP, f"{client[0]}:{client[1]}" if client else "")


def presented_token(access: AccessPolicy, authorization: str | None, api_key: str | None, whence: Origin) -> str | None:
    """Return the key or token in the headers Authorization and X-API-Key; None if neither was sent. It is not verified
    here.

    Raises `Unauthorized`, which is noted in the audit log, for an unknown scheme, and for a key whose name is not the
    one given with it. `whence` is the client's address, for that note.
    """
    try:
        return _token(access, authorization, api_key)
    except Unauthorized as error:
        access.audit(Decision(UNKNOWN_PRINCIPAL, "authenticate", str(SERVER), Outcome.REFUSED, whence, error.message))
        raise


def audit_denied_page(access: AccessPolicy, whence: Origin, reason: str) -> None:
    """Note in the audit log that a web page was denied. Does nothing if access control is off.

    `reason` is one of a few fixed sentences, and has nothing that the page chose: different texts would fill the log.
    """
    if access.enabled:
        access.audit(Decision(ANONYMOUS.name, Operation.CONNECT, str(SERVER), Outcome.DENIED, whence, reason))


def _token(access: AccessPolicy, authorization: str | None, api_key: str | None) -> str | None:
    if authorization is None:
        return api_key.strip() if api_key is not None else None
    scheme, _, shown = authorization.strip().partition(" ")
    match scheme.lower(), shown.strip():
        case (_, ""):
            raise Unauthorized(_SCHEMES)
        case "bearer", token:
            return token
        case "basic", pair:
            return _key_in_basic(access, pair)
        case _:
            raise Unauthorized(f"{_SCHEMES}, and no other scheme is known")


def _key_in_basic(access: AccessPolicy, pair: str) -> str:
    """Return the key in the value of a Basic header, the base64 of `NAME:KEY`. NAME is the key's name or its id.

    Raises `Unauthorized` if that is not what the value is, and also if NAME does not belong to the key. Then the
    message is the same as for an unknown key, so that it does not tell that the key exists.
    """
    try:
        user, colon, key = b64decode(pair, validate=True).decode().partition(":")
    except ValueError:
        raise Unauthorized(f"{_SCHEMES}: this is not base64") from None
    if not colon or not key.startswith(PREFIX):
        raise Unauthorized("Basic takes a key's name and the key itself (psk_...) as its password")
    if not access.is_named(key, user):
        raise Unauthorized(_NO_SUCH)
    return key


def certificate_principal(name: str | None) -> Principal:
    return ANONYMOUS if name is None else Principal(name=f"{CERTIFICATE}:{name}")


def certificate_name(transport: asyncio.BaseTransport) -> str | None:
    """Return the name in the client certificate that TLS has verified: its common name, or else its first DNS name.
    None without TLS, a certificate or a usable name."""
    connection = transport.get_extra_info("ssl_object")
    if not isinstance(connection, ssl.SSLObject | ssl.SSLSocket):
        return None
    shown = connection.getpeercert()
    return None if not shown else _name_in(shown)


def _name_in(certificate: Mapping[str, Any]) -> str | None:
    common = [value for part in certificate.get("subject") or () for key, value in part if key == "commonName"]
    others = [value for key, value in certificate.get("subjectAltName") or () if key == "DNS"]
    for name in (*common, *others):
        if isinstance(name, str) and 0 < len(name) <= QUOTED_CHARS_MAX and name.isprintable():
            return name
    return None
