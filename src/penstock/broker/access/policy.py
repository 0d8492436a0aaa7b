"""Access control: principals, what they may do, and the keys they present. No files and no sockets."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from base64 import b32encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.broker.access.roles import (
    ADMINISTRATION,
    ROLES,
    SERVER,
    Binding,
    Operation,
    Resource,
    ResourceKind,
    Scope,
)
from penstock.core.errors import Forbidden, InvalidRequest, PenstockError, Unauthorized
from penstock.core.limits import KIB, QUOTED_CHARS_MAX
from penstock.storage.catalog.access import AccessRows, StoredKey

PREFIX: Final = "psk_"
"""The prefix of every key: people, and programs that look for leaked secrets, recognize a key by it."""

KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}", re.ASCII)
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_KEY: Final = re.compile(r"psk_([a-z2-7]{13})_([a-z2-7]{52})", re.ASCII)
_DIGEST_PREFIX: Final = b"penstock key\0"
"""Text that is hashed in front of the secret, so that no digest of a key equals a digest made for another purpose."""


class NewKey(NamedTuple):
    key_id: str
    text: str
    """The key as its user gets it. It is never stored: only its digest is."""
    digest: str


class PresentedKey(NamedTuple):
    key_id: str
    secret: str


def new_key(random_bytes: Callable[[int], bytes]) -> NewKey:
    """Create a key with a random id and secret. `random_bytes(n)` returns n unpredictable bytes."""
    key_id, secret = _spelled(random_bytes(_ID_BYTES)), _spelled(random_bytes(_SECRET_BYTES))
    return NewKey(key_id, f"{PREFIX}{key_id}_{secret}", digest_of(secret))


def parse_key(text: str) -> PresentedKey | None:
    """Split a key into id and secret; None if the text has not the form of a key."""
    match = _KEY.fullmatch(text)
    return None if match is None else PresentedKey(match[1], match[2])


def digest_of(secret: str) -> str:
    return hashlib.sha256(_DIGEST_PREFIX + secret.encode()).hexdigest()


def matches_digest(secret: str, digest: str) -> bool:
    """Return whether the secret has this digest. The comparison takes equally long wherever the first difference is, so
    that its time reveals nothing."""
    return hmac.compare_digest(digest_of(secret), digest)


def check_key_name(name: str) -> str:
    if KEY_NAME.fullmatch(name) is None:
        raise InvalidRequest(
            "a key's name has 1 to 63 letters, digits, '.', '_', '@' or '-', and begins with a letter or digit",
            field="name",
            given=name,
        )
    return name


def _spelled(raw: bytes) -> str:
    """Encode bytes as letters and digits alone, so that a double click selects the whole key."""
    return b32encode(raw).decode().rstrip("=").lower()


__all__ = [
    "ADMINISTRATION",
    "ANONYMOUS",
    "NO_ACTION",
    "NO_ORIGIN",
    "ROLES",
    "SERVER",
    "SYSTEM",
    "UNKNOWN_PRINCIPAL",
    "AccessPolicy",
    "AuditedAction",
    "BadCredentials",
    "Binding",
    "Decision",
    "Operation",
    "Origin",
    "Outcome",
    "Principal",
    "Resource",
    "ResourceKind",
    "Scope",
]

TOKEN_CHARS_MAX: Final = 8 * KIB
"""The most characters of a token: enough for a few dozen bindings, and less than the head of a request may have."""
_PRINCIPAL: Final = re.compile(
    r"(?:(?:key|jwt):[^\x00-\x20\x7f-\x9f\u2028\u2029]{1,128}|certificate:[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,128})"
)
"""The names that a principal may have. Names from certificates may contain spaces."""
_LOG: Final = logging.getLogger(__name__)
_REMEMBERED: Final = 20_000
"""The most decisions in the cache, some hundred bytes each. When one more would come, the cache is cleared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated identity. Its name begins with the kind of its credentials: `key:billing`, `jwt:alice`,
    `certificate:host.example`."""

    name: str
    bindings: tuple[Binding, ...] = ()
    """The bindings that came with the credentials, such as those in a token. The catalog may grant further ones to the
    name."""

    key_id: str = ""
    """The id of the key, or of the token issuer's key, that authenticated it. When that is revoked or no longer
    trusted, nothing is allowed."""

    expires_ms: int | None = None
    """The time, in ms since 1970, from which on nothing is allowed; None if the credentials do not expire."""

    def __hash__(self) -> int:
        """Hash the name alone, which is fast: this runs for every batch. Principals that differ in other fields are
        rare."""
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    @property
    def signature(self) -> str:
        """The name that is stored with objects that the principal creates; empty for the anonymous principal."""
        return "" if self.name == ANONYMOUS.name else self.name


ANONYMOUS: Final = Principal(name="anonymous")
"""The principal of connections and requests that have not authenticated."""

SYSTEM: Final = Principal(name="system")
"""The broker itself: never the principal of a client's request."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The place that a request came from, for the audit log."""

    surface: str
    address: str
    service: str = ""
    """The name that a connection registered for itself. It proves no identity, but without access control nothing else
    is known."""


NO_ORIGIN: Final = Origin("broker", "")
UNKNOWN_PRINCIPAL: Final = "unknown"
"""The principal that the audit log names if the credentials are invalid."""


@dataclass(frozen=True, slots=True)
class AuditedAction:
    """The part of an audit entry that says what was requested."""

    action: str = ""
    """The system topic, or the method and path of an HTTP request."""

    target: tuple[tuple[str, str | tuple[str, ...]], ...] = ()
    """Pairs of a field of the request and its value, or values, that say what the request was about."""


NO_ACTION: Final = AuditedAction()


class Outcome:
    """The possible outcomes in the audit log."""

    ALLOWED: Final = "allowed"
    DENIED: Final = "denied"
    REFUSED: Final = "refused"
    """The credentials were invalid, or the action was allowed and then failed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of the audit log, without its time. It never contains a secret."""

    principal: str
    operation: str
    resource: str
    outcome: str
    origin: Origin
    reason: str = ""
    audited: AuditedAction = NO_ACTION


class AccessPolicy:
    """The permissions of all principals of one broker. While it is not enabled, every principal may do everything."""

    def __init__(self, *, enabled: bool = False) -> None:
        self.enabled = enabled
        self.revision = 0
        """A counter that grows with every change of keys, bindings or trust."""

        self.now_ms = 0
        """The time of day in ms since 1970. The owner of the policy sets it from time to time; expiry is decided by
        it."""

        self.audit: Callable[[Decision], None] = lambda _decision: None
        self.verifier: Callable[[str], Principal] | None = None
        """A function that verifies tokens other than keys. It returns the principal or raises `Unauthorized`. Without
        it, only keys are accepted."""

        self._bindings: dict[str, tuple[Binding, ...]] = {}
        self._keys: dict[str, StoredKey] = {}
        self._stored_revision = -1
        self._trusted: frozenset[str] = frozenset()
        self._watchers: dict[object, Callable[[], None]] = {}
        self._decisions: dict[tuple[Principal, Operation, Resource], bool] = {}

    # keys and bindings

    def load(self, rows: AccessRows) -> bool:
        """Replace all keys and bindings by those of the catalog, and drop cached decisions. Returns False, and changes
        nothing, if the rows are no newer than those loaded last."""
        if rows.revision <= self._stored_revision:
            return False
        self._stored_revision = rows.revision
        self._keys = {key.key_id: key for key in rows.keys}
        bindings_of: dict[str, list[Binding]] = {}
        for row in rows.bindings:
            try:
                bindings_of.setdefault(row.principal, []).append(Binding.of(row.role, row.scope))
            except InvalidRequest as error:  # of a newer release: a binding that is not understood allows nothing
                _LOG.warning("a binding is not understood", extra={"principal": row.principal, "error": error.message})
        self._bindings = {principal: tuple(granted) for principal, granted in bindings_of.items()}
        self.invalidate()
        return True

    def trust(self, marks: Iterable[str]) -> None:
        """Set the ids of the token issuers' keys that are trusted. Principals whose token was signed with another key
        lose access. Call `invalidate` afterwards."""
        self._trusted = frozenset(marks)

    @property
    def has_keys(self) -> bool:
        """True if there is a key that is not revoked."""
        return any(key.revoked_ms is None for key in self._keys.values())

    @property
    def stored_revision(self) -> int:
        """The revision of the catalog's keys and bindings that was loaded last; -1 before the first."""
        return self._stored_revision

    def invalidate(self) -> None:
        """Drop all cached decisions, count up `revision`, and call the functions that were passed to `watch`."""
        self._decisions.clear()
        self.revision += 1
        for look in list(self._watchers.values()):
            look()

    def watch(self, look: Callable[[], None]) -> Callable[[], None]:
        """Call `look` after every change of the permissions, in the thread that makes the change. Returns a function
        that ends the watch."""
        mark = object()
        self._watchers[mark] = look
        return lambda: self._watchers.pop(mark, None) and None

    # authentication

    def authenticate(self, token: str, origin: Origin = NO_ORIGIN) -> Principal:
        """Return the principal that a key or a token proves. Raises `BadCredentials`, and writes an audit entry, if it
        is unknown, revoked or expired. The error does not say which part of a key is wrong."""
        try:
            return self._principal_of(token)
        except Unauthorized as error:
            self.audit(
                Decision(UNKNOWN_PRINCIPAL, "authenticate", "the server", Outcome.REFUSED, origin, error.message)
            )
            raise BadCredentials(error.message) from None

    def _principal_of(self, token: str) -> Principal:
        if not token or len(token) > TOKEN_CHARS_MAX:
            raise Unauthorized(f"a key or a token has 1 to {TOKEN_CHARS_MAX} characters")
        if token.startswith(PREFIX):
            return self._principal_of_key(token)
        if self.verifier is None:
            raise Unauthorized("this is no key (psk_...), and this broker takes no other tokens")
        principal = self.verifier(token)
        if not self.is_live(principal):
            raise Unauthorized("this token has expired")
        return principal

    def _principal_of_key(self, text: str) -> Principal:
        presented = parse_key(text)
        stored = None if presented is None else self._keys.get(presented.key_id)
        right = presented is not None and matches_digest(presented.secret, stored.digest if stored is not None else "")
        if stored is None or not right:
            raise Unauthorized("this key is not known here")
        principal = Principal(name=f"key:{stored.name}", key_id=stored.key_id, expires_ms=stored.expires_ms)
        if not self.is_live(principal):
            raise Unauthorized("this key was revoked or has expired")
        return principal

    def is_named(self, text: str, user: str) -> bool:
        """Return whether the key `text` is known here and `user` is its name or its id. The secret is not checked."""
        presented = parse_key(text)
        stored = None if presented is None else self._keys.get(presented.key_id)
        return stored is not None and user in (stored.name, stored.key_id)

    def is_live(self, principal: Principal) -> bool:
        """Return whether the credentials of a principal still hold: not expired, and their key neither revoked nor no
        longer trusted."""
        if principal.expires_ms is not None and principal.expires_ms <= self.now_ms:
            return False
        if not principal.key_id or principal.key_id in self._trusted:
            return True
        key = self._keys.get(principal.key_id)
        return key is not None and key.revoked_ms is None

    # authorisation

    def allows(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Return whether a principal may do this. Every permission is decided here; decisions are cached, so that the
        call is cheap enough for every batch."""
        if not self.enabled:
            return True
        if principal.expires_ms is not None and principal.expires_ms <= self.now_ms:
            return operation is Operation.PUBLIC
        question = (principal, operation, resource)
        decision = self._decisions.get(question)
        if decision is None:
            decision = self._decide(principal, operation, resource)
            if len(self._decisions) >= _REMEMBERED:
                self._decisions.clear()
            self._decisions[question] = decision
        return decision

    def _decide(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if operation is Operation.PUBLIC or principal == SYSTEM:
            return True
        if principal == ANONYMOUS or not self.is_live(principal):
            return False
        if operation is Operation.CONNECT:
            return True
        granted = (*principal.bindings, *self._bindings.get(principal.name, ()))
        return any(binding.allows(operation, resource) for binding in granted)

    def check(
        self,
        principal: Principal,
        operation: Operation,
        resource: Resource,
        origin: Origin = NO_ORIGIN,
        audited: AuditedAction = NO_ACTION,
    ) -> None:
        """Raise `Unauthorized` for an unauthenticated principal, `Forbidden` for one without permission.

        Writes an audit entry for a denial, and for an allowed operation of `ADMINISTRATION` whose origin is known.
        """
        self.require(principal, operation, resource, origin, audited)
        self.record(principal, operation, resource, origin, audited)

    def require(
        self,
        principal: Principal,
        operation: Operation,
        resource: Resource,
        origin: Origin,
        audited: AuditedAction = NO_ACTION,
    ) -> None:
        """Check as `check` does, but write no entry if the operation is allowed: the caller passes it to `record` when
        the outcome is known.

        The entry of a denial leaves out the target that the request named: it has not been validated, and anybody could
        fill the log with many different ones.
        """
        if not self.enabled or self.allows(principal, operation, resource):
            return
        denied = AuditedAction(audited.action)
        self.audit(Decision(principal.name, operation.value, str(resource), Outcome.DENIED, origin, audited=denied))
        raise self.refusal(principal, operation, resource)

    def record(
        self,
        principal: Principal,
        operation: Operation,
        resource: Resource,
        origin: Origin,
        audited: AuditedAction,
        *,
        refused: str = "",
    ) -> None:
        """Write an audit entry for an administrative action that was allowed, also while access control is off. Other
        actions, and those without a known origin, are not written.

        `refused` is the reason why the action failed although it was allowed; empty if it was done.
        """
        if operation in ADMINISTRATION and origin is not NO_ORIGIN:
            outcome = Outcome.REFUSED if refused else Outcome.ALLOWED
            self.audit(Decision(principal.name, operation.value, str(resource), outcome, origin, refused, audited))

    def refusal(self, principal: Principal, operation: Operation, resource: Resource) -> PenstockError:
        """Return the error for a denied operation: `Unauthorized` for a principal that is not authenticated, else
        `Forbidden`."""
        if principal == ANONYMOUS or not self.is_live(principal):
            return unauthorized(principal)
        able = ", ".join(role for role, operations in ROLES.items() if operation in operations)
        return Forbidden(
            f"{principal} may not {operation.value} on {resource}: a role that may is one of {able};"
            " `penstock access grant` gives it",
            operation=operation.value,
            resource=str(resource),
        )


class BadCredentials(Unauthorized):
    """Invalid credentials. A connection that presented them is closed and cannot try again."""


def check_principal(name: str) -> str:
    """Raise `InvalidRequest` for text that is not the name of a principal."""
    if _PRINCIPAL.fullmatch(name) is None:
        raise InvalidRequest(
            f"a principal is key:NAME, jwt:SUBJECT or certificate:NAME, not '{name[:QUOTED_CHARS_MAX]}'",
            field="principal",
        )
    return name


def unauthorized(principal: Principal) -> Unauthorized:
    if principal == ANONYMOUS:
        return Unauthorized("this broker wants to know who is asking: give a key or a token (PENSTOCK_TOKEN)")
    return Unauthorized(f"the credentials of {principal} were revoked or have expired: get new ones")
