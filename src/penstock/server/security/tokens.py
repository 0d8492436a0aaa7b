"""JSON Web Tokens of trusted issuers.

The trusted key determines the algorithm that verifies a token; the token only names the key. So nothing in a token can
choose how it is verified: the algorithm `none`, a public key used as a secret, and a key that comes with the token are
all refused in the same way.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from penstock.broker.access.policy import Binding, Principal, check_principal
from penstock.core.errors import InvalidRequest, Unauthorized
from penstock.core.limits import KIB
from penstock.server.settings import TokenFiles

CLAIM: Final = "penstock"
"""The claim with the role bindings of a token: a list of texts such as `consumer@topic:orders.#`, that is, the role
consumer for the topics that match."""

BINDINGS_MAX: Final = 100
"""The most role bindings in one token. A client that needs more has them in the catalog, under the token's subject."""

LEEWAY_SECONDS: Final = 5
"""The tolerated difference in seconds between the clocks of the issuer and of this machine."""

SECRET_BYTES_MIN: Final = 32
"""The shortest secret for HS256 in bytes: whoever has a token could find a shorter one by trying."""

RSA_BITS_MIN: Final = 2048
KEYS_MAX: Final = 100
"""The most keys in a JWKS file: issuers have a handful."""

FILE_BYTES_MAX: Final = 256 * KIB
_REMEMBERED: Final = 1_000
"""The most tokens whose result is cached: each HTTP request of a client carries the same token."""
_REQUIRED: Final = ("exp", "iss", "aud", "sub")
_TIMES: Final = ("exp", "nbf", "iat")
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key that verifies signatures, and the only algorithm for which it is used."""

    key_id: str | None
    """The name (`kid`) by which tokens refer to the key; None if it has none."""

    algorithm: str
    material: Any
    mark: str
    """A digest of the key. A principal keeps it, so that it loses its access when the key is no longer trusted."""


class TokenVerifier:
    """Verifies tokens with keys from files. Raises `InvalidRequest` if the files cannot be used when it is created."""

    def __init__(self, files: TokenFiles) -> None:
        self._files = files
        self._keys = _keys_in(files)
        self._seen = self._stamps()
        self._verified: OrderedDict[bytes, Principal] = OrderedDict()

    @property
    def marks(self) -> frozenset[str]:
        """The digests (`TrustedKey.mark`) of all keys that are trusted now."""
        return frozenset(key.mark for key in self._keys)

    def reload_if_changed(self) -> bool:
        """Load the keys again if their files have changed. Returns True if new keys were loaded. If they cannot be
        used, logs a warning, keeps the old ones and returns False."""
        now = self._stamps()
        if now == self._seen:
            return False
        self._seen = now
        try:
            self._keys = _keys_in(self._files)
        except InvalidRequest as error:
            _LOG.warning("trusted keys not reloaded", extra={"error": error.message})
            return False
        self._verified.clear()
        _LOG.info("trusted keys reloaded", extra={"keys": len(self._keys)})
        return True

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in (self._files.secret, self._files.jwks))

    def verify(self, token: str) -> Principal:
        """Return the principal that a token proves. Raises `Unauthorized`, with a message that contains nothing of the
        token."""
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        known = self._verified.get(digest)
        if known is None:
            known = self._verified[digest] = self._principal(token)
            if len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        return known

    def _principal(self, token: str) -> Principal:
        head, claims = _parts_of(token)
        key = self._key_for(head)
        _check_times(claims)
        try:
            claims = jwt.decode(
                token,
                key.material,
                algorithms=[key.algorithm],
                audience=self._files.audience,
                issuer=self._files.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": list(_REQUIRED)},
            )
        except jwt.InvalidTokenError as error:
            raise Unauthorized(f"this token is not good here: {_reason(error)}") from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise Unauthorized("this token is not good here: its claims cannot be read") from None
        return _principal_in(claims, key.mark)

    def _key_for(self, head: Mapping[str, Any]) -> TrustedKey:
        """Return the trusted key that the token's head names; if it names none, the only trusted key with its
        algorithm. Raises `Unauthorized` if no key fits, several do, or the head has the member `crit`."""
        key_id, algorithm = head.get("kid"), head.get("alg")
        fitting = [key for key in self._keys if key_id in (None, key.key_id) and key.algorithm == algorithm]
        if len(fitting) == 1 and "crit" not in head:
            return fitting[0]
        if not fitting:
            raise Unauthorized("this token is not good here: no trusted key has its kid and its algorithm")
        raise Unauthorized("this token is not good here: it must name its key (kid), and nothing critical")


class _DuplicateMember(ValueError):
    """A JSON object has a member twice: two programs could each read another value of it."""


def _parts_of(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the head and the claims of a token; its signature is not verified yet. Raises `Unauthorized` if the text
    is not a token, or if its head or its claims have a member twice."""
    try:
        head, claims, _ = map(jwt.utils.base64url_decode, token.split("."))
        return _members(head), _members(claims)
    except _DuplicateMember:
        raise Unauthorized("this token is not good here: its head or its claims have a member twice") from None
    except (ValueError, RecursionError):
        raise Unauthorized("this is neither a key (psk_...) nor a signed token (JWT)") from None


def _members(written: bytes) -> dict[str, Any]:
    """Return the members of a JSON object. Raises `ValueError` for anything else, and for an object that has a member
    twice."""
    members = json.loads(written.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_number)
    if not isinstance(members, dict):
        raise ValueError("no object")
    return members


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _DuplicateMember
    return members


def _no_number(written: str) -> float:
    raise ValueError(f"{written} is no JSON")


def _check_times(claims: Mapping[str, Any]) -> None:
    """Raise `Unauthorized` if a time in the claims is not a number: the library would convert a text, which another
    program may read differently."""
    for name in _TIMES:
        value = claims.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unauthorized(f"this token is not good here: {name} is a number, seconds since 1970")


_REASONS: Final[tuple[tuple[type[jwt.InvalidTokenError], str], ...]] = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it does not hold yet"),
    (jwt.InvalidAudienceError, "it is for another audience"),
    (jwt.InvalidIssuerError, "it is from another issuer"),
    (jwt.MissingRequiredClaimError, f"it needs the claims {', '.join(_REQUIRED)}"),
    (jwt.InvalidSignatureError, "its signature is wrong"),
)


def _reason(error: jwt.InvalidTokenError) -> str:
    """Return the reason in our own words, because the library's message may quote the token."""
    return next((said for kind, said in _REASONS if isinstance(error, kind)), "it cannot be verified")


def _principal_in(claims: Mapping[str, Any], mark: str) -> Principal:
    claimed = claims.get(CLAIM, [])
    if (
        not isinstance(claimed, list)
        or len(claimed) > BINDINGS_MAX
        or not all(isinstance(binding, str) for binding in claimed)
    ):
        raise Unauthorized(f"the claim '{CLAIM}' of this token must be a list of at most {BINDINGS_MAX} bindings")
    try:
        name = check_principal(f"jwt:{claims['sub']}")
        bindings = tuple(Binding.parse(binding) for binding in claimed)
    except InvalidRequest as error:
        raise Unauthorized(f"this token is not good here: {error.message}") from None
    expires_ms = (int(claims["exp"]) + LEEWAY_SECONDS) * 1000
    return Principal(name=name, bindings=bindings, key_id=mark, expires_ms=expires_ms)


# keys from files


def _keys_in(files: TokenFiles) -> tuple[TrustedKey, ...]:
    keys = [*_secret_in(files.secret), *_public_in(files.jwks)]
    names = [key.key_id for key in keys if key.key_id is not None]
    if len(set(names)) < len(names):
        raise InvalidRequest(f"{files.jwks}: two keys have the same kid")
    return tuple(keys)


def _secret_in(path: Path | None) -> Iterator[TrustedKey]:
    if path is None:
        return
    secret = _read(path).strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise InvalidRequest(
            f"{path}: the secret of HS256 has at least {SECRET_BYTES_MIN} bytes, not {len(secret)}:"
            " `openssl rand -base64 48` makes one"
        )
    yield TrustedKey(None, "HS256", secret, _mark(secret))


def _public_in(path: Path | None) -> Iterator[TrustedKey]:
    if path is None:
        return
    try:
        listed = msgspec.json.decode(_read(path))
    except (msgspec.DecodeError, RecursionError):
        raise InvalidRequest(f"{path} is not JSON: it must be a JWKS, an object with a list of keys") from None
    keys = listed.get("keys") if isinstance(listed, dict) else None
    if not isinstance(keys, list) or not 0 < len(keys) <= KEYS_MAX:
        raise InvalidRequest(f"{path}: a JWKS has a list of 1 to {KEYS_MAX} keys")
    for number, key in enumerate(keys):
        if isinstance(key, dict) and key.get("use", "sig") == "sig":
            yield _public(key, f"{path}: key {number}")


def _public(described: dict[str, Any], where: str) -> TrustedKey:
    """Return the public key that an entry of a JWKS describes: RSA for RS256, or P-256 for ES256. Raises
    `InvalidRequest` for any other key, and for a private one. `where` names the entry in the message."""
    algorithm = {"RSA": "RS256", "EC": "ES256"}.get(str(described.get("kty")))
    if algorithm is None or described.get("alg", algorithm) != algorithm:
        raise InvalidRequest(f"{where}: only RSA keys (RS256) and P-256 keys (ES256) are taken")
    if "d" in described:
        raise InvalidRequest(f"{where} is a private key: put the public one into the file")
    try:
        material = jwt.PyJWK(described, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        raise InvalidRequest(f"{where} cannot be read as a key") from None
    _check_strength(material, where)
    key_id = described.get("kid")
    return TrustedKey(None if key_id is None else str(key_id), algorithm, material, _mark(_canonical(described)))


def _check_strength(material: object, where: str) -> None:
    if isinstance(material, RSAPublicKey):
        if material.key_size < RSA_BITS_MIN:
            raise InvalidRequest(f"{where}: an RSA key has at least {RSA_BITS_MIN} bits, not {material.key_size}")
    elif not isinstance(material, EllipticCurvePublicKey) or not isinstance(material.curve, SECP256R1):
        raise InvalidRequest(f"{where}: only RSA keys (RS256) and P-256 keys (ES256) are taken")


def _canonical(described: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(described, order="sorted")


def _mark(material: bytes) -> str:
    return f"jwt:{hashlib.sha256(material).hexdigest()[:32]}"


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > FILE_BYTES_MAX:
        raise InvalidRequest(f"{path} has more than {FILE_BYTES_MAX} bytes: that is no file of keys")
    return content


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    try:
        stat = path.stat() if path is not None else None
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_ino, stat.st_size) if stat is not None else None
