"""Access control: who is asking, what they may do, and the keys they show. No files and no sockets."""

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
"""By which people, and programs that look for leaked secrets, know one."""

KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}", re.ASCII)
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_KEY: Final = re.compile(r"psk_([a-z2-7]{13})_([a-z2-7]{52})", re.ASCII)
_DIGEST_PREFIX: Final = b"penstock key\0"
"""What is hashed here is no digest of anything else."""


class NewKey(NamedTuple):
    key_id: str
    text: str
    """The key itself. Not to be kept."""
    digest: str


class PresentedKey(NamedTuple):
    key_id: str
    secret: str


def new_key(random_bytes: Callable[[int], bytes]) -> NewKey:
    """`chance` gives so many bytes that nobody can foresee."""
    key_id, secret = _spelled(random_bytes(_ID_BYTES)), _spelled(random_bytes(_SECRET_BYTES))
    return NewKey(key_id, f"{PREFIX}{key_id}_{secret}", digest_of(secret))


def parse_key(text: str) -> PresentedKey | None:
    """None for what no key looks like."""
    found = _KEY.fullmatch(text)
    return None if found is None else PresentedKey(found[1], found[2])


def digest_of(secret: str) -> str:
    return hashlib.sha256(_DIGEST_PREFIX + secret.encode()).hexdigest()


def matches_digest(secret: str, digest: str) -> bool:
    """In the same time, however much of it is right."""
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
    """Letters and digits alone: a double click marks all of it."""
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
"""Longer than any token with a few dozen bindings, shorter than what a request's head may have."""
_PRINCIPAL: Final = re.compile(
    r"(?:(?:key|jwt):[^\x00-\x20\x7f-\x9f\u2028\u2029]{1,128}|certificate:[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,128})"
)
"""Certificates have names with spaces in them."""
_LOG: Final = logging.getLogger(__name__)
_REMEMBERED: Final = 20_000
"""Decisions known at once, some hundred bytes each; past this, all are made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who is known: `key:billing`, `jwt:alice`, `certificate:host.example`. Names from outside have a kind."""

    name: str
    bindings: tuple[Binding, ...] = ()
    """What came with the credentials; what the catalog says of the name comes on top."""

    key_id: str = ""
    """The key it came with: once that is revoked, nothing is allowed."""

    expires_ms: int | None = None
    """Time of day; nothing is allowed from then on."""

    def __hash__(self) -> int:
        """Names tell nearly all of them apart, and this is asked for with every batch."""
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    @property
    def signature(self) -> str:
        """What is written beside something that it made; nothing where nobody has said who that is."""
        return "" if self.name == ANONYMOUS.name else self.name


ANONYMOUS: Final = Principal(name="anonymous")
"""Nobody has said who is asking."""

SYSTEM: Final = Principal(name="system")
"""The broker itself: never what somebody else asks for."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something was asked for, for the audit log."""

    surface: str
    address: str
    service: str = ""
    """What a connection calls itself: not who it is, but where nobody asks that it is what is known."""


NO_ORIGIN: Final = Origin("broker", "")
UNKNOWN_PRINCIPAL: Final = "unknown"
"""Who came with credentials that are no good, for the audit log."""


@dataclass(frozen=True, slots=True)
class AuditedAction:
    """What exactly was asked for, for the audit log."""

    action: str = ""
    """The system topic, or the method and the path of a request."""

    target: tuple[tuple[str, str | tuple[str, ...]], ...] = ()
    """What it named, by the names of its fields."""


NO_ACTION: Final = AuditedAction()


class Outcome:
    """How a decision ends in the audit log."""

    ALLOWED: Final = "allowed"
    DENIED: Final = "denied"
    REFUSED: Final = "refused"
    """The credentials were no good; or it was allowed, and was not done."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the audit log, but for its time. Never a secret."""

    principal: str
    operation: str
    resource: str
    outcome: str
    origin: Origin
    reason: str = ""
    audited: AuditedAction = NO_ACTION


class AccessPolicy:
    """What everybody may. One for each broker; while it is not enabled, everybody may everything."""

    def __init__(self, *, enabled: bool = False) -> None:
        self.enabled = enabled
        self.revision = 0
        """Another one with every change of keys, bindings or trust."""

        self.now_ms = 0
        """The time of day, as it was last told."""

        self.audit: Callable[[Decision], None] = lambda _decision: None
        self.verifier: Callable[[str], Principal] | None = None
        """Who a token that is no key speaks for. Raises `Unauthorized`."""

        self._bindings: dict[str, tuple[Binding, ...]] = {}
        self._keys: dict[str, StoredKey] = {}
        self._stored_revision = -1
        self._trusted: frozenset[str] = frozenset()
        self._watchers: dict[object, Callable[[], None]] = {}
        self._decisions: dict[tuple[Principal, Operation, Resource], bool] = {}

    # what is known

    def load(self, rows: AccessRows) -> bool:
        """These in the place of all that was known; False, and nothing changes, where it is known already."""
        if rows.revision <= self._stored_revision:
            return False
        self._stored_revision = rows.revision
        self._keys = {each.key_id: each for each in rows.keys}
        found: dict[str, list[Binding]] = {}
        for row in rows.bindings:
            try:
                found.setdefault(row.principal, []).append(Binding.of(row.role, row.scope))
            except InvalidRequest as error:  # of a newer release: what is not understood allows nothing
                _LOG.warning("a binding is not understood", extra={"principal": row.principal, "error": error.message})
        self._bindings = {principal: tuple(bindings) for principal, bindings in found.items()}
        self.invalidate()
        return True

    def trust(self, marks: Iterable[str]) -> None:
        """Whoever came with another issuer's key than one of these is known no longer; `renew` says so."""
        self._trusted = frozenset(marks)

    @property
    def has_keys(self) -> bool:
        """Whether anybody could come with one."""
        return any(each.revoked_ms is None for each in self._keys.values())

    @property
    def stored_revision(self) -> int:
        """Of the catalog, as it was last read."""
        return self._stored_revision

    def invalidate(self) -> None:
        """Something has changed: nothing that was decided counts any more, and whoever watches looks again."""
        self._decisions.clear()
        self.revision += 1
        for look in list(self._watchers.values()):
            look()

    def watch(self, look: Callable[[], None]) -> Callable[[], None]:
        """Have this called after every change, in the thread that makes it; what is returned ends that."""
        mark = object()
        self._watchers[mark] = look
        return lambda: self._watchers.pop(mark, None) and None

    # who

    def authenticate(self, token: str, origin: Origin = NO_ORIGIN) -> Principal:
        """Who a key or a token speaks for. Raises `BadCredentials`, which says no more than it must."""
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
        found = self.verifier(token)
        if not self.is_live(found):
            raise Unauthorized("this token has expired")
        return found

    def _principal_of_key(self, text: str) -> Principal:
        given = parse_key(text)
        known = None if given is None else self._keys.get(given.key_id)
        right = given is not None and matches_digest(given.secret, known.digest if known is not None else "")
        if known is None or not right:
            raise Unauthorized("this key is not known here")
        principal = Principal(name=f"key:{known.name}", key_id=known.key_id, expires_ms=known.expires_ms)
        if not self.is_live(principal):
            raise Unauthorized("this key was revoked or has expired")
        return principal

    def is_named(self, text: str, user: str) -> bool:
        """Whether a key is shown under its own name or id. Of its secret nothing is said."""
        given = parse_key(text)
        known = None if given is None else self._keys.get(given.key_id)
        return known is not None and user in (known.name, known.key_id)

    def is_live(self, principal: Principal) -> bool:
        """Whether its credentials still hold: neither revoked nor expired."""
        if principal.expires_ms is not None and principal.expires_ms <= self.now_ms:
            return False
        if not principal.key_id or principal.key_id in self._trusted:
            return True
        key = self._keys.get(principal.key_id)
        return key is not None and key.revoked_ms is None

    # what they may

    def allows(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Whether it may. THE authorisation function: cheap enough to be asked again with every batch."""
        if not self.enabled:
            return True
        if principal.expires_ms is not None and principal.expires_ms <= self.now_ms:
            return operation is Operation.PUBLIC
        asked = (principal, operation, resource)
        known = self._decisions.get(asked)
        if known is None:
            known = self._decide(principal, operation, resource)
            if len(self._decisions) >= _REMEMBERED:
                self._decisions.clear()
            self._decisions[asked] = known
        return known

    def _decide(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if operation is Operation.PUBLIC or principal == SYSTEM:
            return True
        if principal == ANONYMOUS or not self.is_live(principal):
            return False
        if operation is Operation.CONNECT:
            return True
        granted = (*principal.bindings, *self._bindings.get(principal.name, ()))
        return any(each.allows(operation, resource) for each in granted)

    def check(
        self,
        principal: Principal,
        operation: Operation,
        resource: Resource,
        origin: Origin = NO_ORIGIN,
        audited: AuditedAction = NO_ACTION,
    ) -> None:
        """Raises `Unauthorized` where nobody has said who is asking, `Forbidden` where that is not enough.

        What was denied is told to the audit log, and administration too where it is known where that came from.
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
        """The same, for who does not know yet what exactly is asked for, and will `record` it then.

        Of what was denied, what it named is not told: nobody has looked at that, and it would make many lines of one.
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
        """Something that was allowed is told to the audit log, if it belongs there, also where nobody is asked who.

        `refused`: why it was not done all the same.
        """
        if operation in ADMINISTRATION and origin is not NO_ORIGIN:
            outcome = Outcome.REFUSED if refused else Outcome.ALLOWED
            self.audit(Decision(principal.name, operation.value, str(resource), outcome, origin, refused, audited))

    def refusal(self, principal: Principal, operation: Operation, resource: Resource) -> PenstockError:
        """What is said of something that is not allowed."""
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
    """Credentials that are no good. Whoever gave them on a connection is not asked again: it is closed."""


def check_principal(name: str) -> str:
    """Raises `InvalidRequest` for what names nobody."""
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
