"""The audit of requests: which system topic or HTTP request was sent, and which resources it named.

Only the fields that this module's tables list are recorded: never a payload. A text that looks like a key or a token is
replaced by "(hidden)", whatever field it is in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.broker.access.policy import (
    ADMINISTRATION,
    NO_ACTION,
    PREFIX,
    AccessPolicy,
    AuditedAction,
    Operation,
    Origin,
    Principal,
    Resource,
)
from penstock.broker.access.roles import SCOPE_CHARS_MAX
from penstock.core.errors import Forbidden, PenstockError, Unauthorized
from penstock.core.limits import KIB

if TYPE_CHECKING:
    from penstock.broker.base.effects import Effect

TARGET_FIELDS: Final[dict[Operation, tuple[str, ...]]] = {
    Operation.SERVER_MANAGE: (
        "name",
        "key",
        "principal",
        "binding",
        "bindings",
        "expires_ms",
        "connection",
        "id",
    ),
    Operation.MANAGE: ("subscription",),
    Operation.SCHEMA_WRITE: ("version", "id"),
    Operation.SCHEMA_DELETE: ("version", "permanent"),
}
"""Request fields that are recorded for each operation, where the resource alone does not say what the request was
about."""

TEXTS_MAX: Final = 100
"""The most texts of one list field that are recorded: as many as one message may grant. A request with a longer list is
refused anyway."""

RESULT_FIELDS: Final[dict[Operation, tuple[str, ...]]] = {Operation.SCHEMA_WRITE: ("version", "id")}
"""Fields that are recorded from the answer of each operation: a schema has its version and id only once it is
registered."""

_ANSWER_BYTES_MAX: Final = 64 * KIB
"""The largest encoded answer that is decoded to record its `RESULT_FIELDS`: the answer to one registration is
smaller."""

_HIDDEN: Final = "(hidden)"
_SECRET: Final = re.compile(rf"{PREFIX}|eyJ[A-Za-z0-9_-]*\.")
"""A pattern that matches the beginning of a key or of any JWT."""


def audited_action(operation: Operation, action: str, *sources: Mapping[str, Any]) -> AuditedAction:
    """Describe a request for the audit log: the action, and the fields of `sources` that `TARGET_FIELDS` names for the
    operation. Fields need not be valid: those of other types are left out, and texts are cut or hidden."""
    names = TARGET_FIELDS.get(operation, ())
    values = {name: fields[name] for fields in sources for name in names if name in fields}
    target = tuple((name, text) for name in names if (text := _shown(values.get(name))))
    return AuditedAction(action, target) if action or target else NO_ACTION


def _shown(value: object) -> str | tuple[str, ...]:
    match value:
        case bool():
            return "true" if value else ""
        case str():
            return _text(value)
        case int():
            return _text(str(value)) if -(2**63) <= value < 2**64 else _HIDDEN
        case list() | tuple():
            return tuple(_texts(value))
        case _:
            return ""


def _texts(values: Iterable[object]) -> Iterable[str]:
    for _, text in zip(range(TEXTS_MAX), values, strict=False):
        if isinstance(text, str):
            yield _text(text)


def _text(text: str) -> str:
    cut = text[:SCOPE_CHARS_MAX]
    return _HIDDEN if _SECRET.search(cut) else cut


TrailEntry = tuple[Operation, Resource, AuditedAction]
"""Operation, resource, and the request that asked for it."""


class AuditTrail:
    """The audit entries of one request. They are written when it is known how the request ended."""

    def __init__(self, access: AccessPolicy, principal: Principal, origin: Origin) -> None:
        self._access = access
        self._principal = principal
        self._origin = origin
        self._expected: list[TrailEntry] = []
        self._actions: list[TrailEntry] = []

    def expect(self, operation: Operation, resource: Resource, action: str) -> None:
        """Note the action of a request whose fields have not been read yet. The entry is written only if the request
        fails before `add` is called, and for another reason than a missing permission: that is recorded by the check
        itself."""
        self._expected = [(operation, resource, AuditedAction(action))] if operation in ADMINISTRATION else []

    def add(self, operation: Operation, resource: Resource, audited: AuditedAction) -> None:
        """Add an action that has been allowed. Only actions of `ADMINISTRATION` are kept."""
        self._expected = []
        if operation in ADMINISTRATION:
            self._actions.append((operation, resource, audited))

    def add_results(self, **facts: object) -> None:
        """Add fields of the result to the entries. Fields that `RESULT_FIELDS` does not name are ignored."""
        self._actions = [
            (operation, resource, _with(operation, audited, facts)) for operation, resource, audited in self._actions
        ]

    def end(self, error: PenstockError | None = None) -> None:
        """Write the entries: as done, or as refused if there is an `error`. A second call writes nothing. A denied
        permission is not written here: the check that denied it has written it."""
        if error is not None and not isinstance(error, Unauthorized | Forbidden):
            self._actions += self._expected
        actions, self._actions, self._expected = self._actions, [], []
        refused = "" if error is None else _reason(error)
        for operation, resource, audited in actions:
            self._access.record(self._principal, operation, resource, self._origin, audited, refused=refused)

    def closing(self, reply: Callable[[Any], list[Effect]]) -> Callable[[Any], list[Effect]]:
        """Wrap a reply. When the new reply gets the outcome, it writes the trail, then calls the wrapped one."""

        def answer(outcome: Any) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                self.end(outcome)
            elif self._actions:
                self.add_results(**_members(outcome))
                self.end()
            return reply(outcome)

        return answer


def _with(operation: Operation, audited: AuditedAction, facts: Mapping[str, object]) -> AuditedAction:
    """Add the facts that `RESULT_FIELDS` names. They replace request fields of the same name: `latest` becomes the
    number of the version."""
    names = RESULT_FIELDS.get(operation, ())
    more = {name: text for name in names if name in facts and (text := _shown(facts[name]))}
    return replace(audited, target=tuple((dict(audited.target) | more).items())) if more else audited


def _members(answer: object) -> dict[str, Any]:
    """Return the fields of an answer, which may be encoded as JSON. Returns none if it is no object, or too large to be
    decoded."""
    if isinstance(answer, bytes) and len(answer) <= _ANSWER_BYTES_MAX:
        answer = msgspec.json.decode(answer)
    return answer if isinstance(answer, dict) else {}


def _reason(error: PenstockError) -> str:
    """Return the codes of an error, without its message: that may quote the payload."""
    number = getattr(error, "number", error.details.get("registry_code"))
    return error.code.value if number is None else f"{error.code.value} {number}"
