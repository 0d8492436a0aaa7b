"""Keys and role bindings in a data directory, managed without a broker. The first key of a broker is created in this
way.

This needs no authentication: a user who may write to the directory could do anything to it already. A broker that is
running on the directory sees the changes within a second.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.broker.access.audit import audited_action
from penstock.broker.access.policy import SERVER, Decision, Operation, Origin, Outcome, check_principal
from penstock.broker.admin import access as admin
from penstock.broker.base.request_fields import Fields
from penstock.core.clock import Clock, SystemClock, now_ms
from penstock.core.errors import InvalidRequest
from penstock.server.security.audit_log import AuditLog
from penstock.storage.base.layout import IDENTITY, check_root
from penstock.storage.catalog.access import AccessCatalog
from penstock.storage.catalog.catalog import CATALOG_FILE, Catalog

_ORIGIN: Final = Origin("directory", "")


def ask(data: Path, topic: str, fields: Fields, clock: Clock | None = None) -> dict[str, Any]:
    """Carry out a request to a system topic for keys or bindings in the data directory `data`, and return the answer,
    as a broker would. Raises the error with which a broker would refuse."""
    clock = clock or SystemClock()
    if topic == "system.key.create":
        _ensure(data)
    check_root(data)
    with Catalog.open(data / CATALOG_FILE, clock=clock, create=False) as catalog:
        answer = _ANSWERS[topic](catalog.access, fields, now_ms(clock))
    if topic not in _READS:
        _note(data, topic, fields, clock)
    return answer


def _ensure(data: Path) -> None:
    """Create the data directory if no broker has run on it yet. Raises `InvalidRequest` if it holds other files."""
    if (data / IDENTITY).exists():
        return
    from penstock.storage.store import Store  # slow to import, and not needed where the directory exists

    with Store.open(data, create=True):
        pass


def _note(data: Path, topic: str, fields: Fields, clock: Clock) -> None:
    log = AuditLog(data, lambda: now_ms(clock))
    operation = Operation.SERVER_MANAGE
    audited = audited_action(operation, topic, fields)
    log.note(Decision("owner", operation.value, str(SERVER), Outcome.ALLOWED, _ORIGIN, audited=audited))
    log.write(log.take())


def _create(catalog: AccessCatalog, fields: Fields, at_ms: int) -> dict[str, Any]:
    made, kept, bindings = admin.parse_new_key(fields, at_ms)
    return admin.new_key_fields(made, kept, catalog.add_key(kept, bindings))


def _list(catalog: AccessCatalog, _fields: Fields, _at_ms: int) -> dict[str, Any]:
    return {"keys": [admin.key_fields(each) for each in catalog.load().keys]}


def _revoke(catalog: AccessCatalog, fields: Fields, _at_ms: int) -> dict[str, Any]:
    revoked, _ = admin.revoke_named(catalog, fields)
    return {"revoked": revoked}


def _grant(catalog: AccessCatalog, fields: Fields, _at_ms: int) -> dict[str, Any]:
    bindings = admin.parse_binding_change(fields)
    return admin.bindings_answer(catalog.grant(bindings), bindings)


def _withdraw(catalog: AccessCatalog, fields: Fields, _at_ms: int) -> dict[str, Any]:
    bindings = admin.parse_binding_change(fields)
    return admin.bindings_answer(catalog.withdraw(bindings), bindings)


def _show(catalog: AccessCatalog, fields: Fields, _at_ms: int) -> dict[str, Any]:
    principal = fields.get("principal")
    if principal is not None and not isinstance(principal, str):
        raise InvalidRequest("principal is a text", field="principal")
    wanted = None if principal is None else check_principal(principal)
    return {"bindings": [admin.binding_fields(each) for each in admin.bindings_of(catalog.load(), wanted)]}


_READS: Final = ("system.key.list", "system.access.show")
_ANSWERS: Final[dict[str, Callable[[AccessCatalog, Fields, int], dict[str, Any]]]] = {
    "system.key.create": _create,
    "system.key.list": _list,
    "system.key.revoke": _revoke,
    "system.access.grant": _grant,
    "system.access.revoke": _withdraw,
    "system.access.show": _show,
}
