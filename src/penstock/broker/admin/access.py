"""System topics about keys and bindings: made, listed, taken back. What is changed holds when it is answered.

A key is in exactly one answer: that of `system.key.create`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.access.policy import PREFIX, Binding, NewKey, check_key_name, check_principal, new_key
from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.base.replies import listed
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.storage.catalog.access import AccessCatalog, AccessRows, StoredBinding, StoredKey

if TYPE_CHECKING:
    from penstock.broker.durable import DurableBroker

BINDINGS_AT_ONCE: Final = 100
"""In one message: each is looked up in a transaction that all others wait for."""


# what is asked


def key_asked(fields: Fields, now_ms: int) -> tuple[NewKey, StoredKey, list[StoredBinding]]:
    """A new key, what is kept of it, and what it may. Raises `InvalidRequest`."""
    read.check_known(fields, ("name", "bindings", "expires_ms"))
    name = check_key_name(read.text(fields, "name"))
    bindings = bindings_asked(f"key:{name}", read.texts(fields, "bindings"))
    expires_ms = read.number(fields, "expires_ms") if fields.get("expires_ms") is not None else None
    if expires_ms is not None and expires_ms <= now_ms:
        raise InvalidRequest("expires_ms is a time of day yet to come, in ms since 1970", field="expires_ms")
    made = new_key(secrets.token_bytes)
    kept = StoredKey(key_id=made.key_id, name=name, digest=made.digest, created_ms=now_ms, expires_ms=expires_ms)
    return made, kept, bindings


def bindings_asked(principal: str, given: Sequence[str]) -> list[StoredBinding]:
    """Raises `InvalidRequest` for what is none."""
    if len(given) > BINDINGS_AT_ONCE:
        raise InvalidRequest(f"at most {BINDINGS_AT_ONCE} bindings at a time, not {len(given)}", field="bindings")
    check_principal(principal)
    parsed = [Binding.parse(each) for each in given]
    return [StoredBinding(principal=principal, role=each.role, scope=str(each.scope)) for each in parsed]


def keys_meant(rows: AccessRows, fields: Fields) -> list[str]:
    """The ids of those keys that an id means, or a name. Raises `InvalidRequest` where there is none."""
    read.check_known(fields, ("key",))
    wanted = read.text(fields, "key")
    found = [each.key_id for each in rows.keys if wanted == each.key_id]
    found = found or [each.key_id for each in rows.keys if wanted == each.name]
    if not found:
        raise InvalidRequest(f"there is no key {_quoted(wanted)}: `penstock key ls` has all", field="key")
    return found


def _quoted(wanted: str) -> str:
    """A key that was given in the place of its name is not repeated."""
    return "with that secret" if wanted.startswith(PREFIX) else f"'{wanted[:QUOTED_CHARS_MAX]}'"


# what is answered


def key_facts(key: StoredKey) -> Fields:
    facts = {
        "key_id": key.key_id,
        "name": key.name,
        "principal": key.principal,
        "created_ms": key.created_ms,
        "expires_ms": key.expires_ms,
        "revoked_ms": key.revoked_ms,
    }
    return {name: value for name, value in facts.items() if value is not None}


def binding_facts(binding: StoredBinding) -> Fields:
    return {
        "principal": binding.principal,
        "role": binding.role,
        "scope": binding.scope,
        "binding": f"{binding.role}@{binding.scope}",
        "created_ms": binding.created_ms,
    }


def made_facts(made: NewKey, kept: StoredKey, rows: AccessRows) -> Fields:
    """With the key itself, which nobody will be shown again, and all that it may: also what its name had before."""
    return key_facts(kept) | {"key": made.text, "bindings": _written(rows, kept.principal)}


def bindings_of(rows: AccessRows, principal: str | None) -> list[StoredBinding]:
    return [each for each in rows.bindings if principal in (None, each.principal)]


# the topics


def revoke_meant(catalog: AccessCatalog, fields: Fields) -> tuple[list[str], AccessRows]:
    """Which keys were revoked, and all that there is then."""
    revoked = keys_meant(catalog.load(), fields)
    return revoked, catalog.revoke_keys(revoked)


def _changed(
    durable: DurableBroker, change: Callable[[], AccessRows], reply: Reply, answer: Callable[[AccessRows], object]
) -> list[Effect]:
    def done(outcome: AccessRows | PenstockError) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        ended = [] if durable.enforcer is None else durable.enforcer.load(outcome)
        return [*reply(answer(outcome)), *ended]

    return [RunInThread(change, done)]


def _create_key(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    made, kept, bindings = key_asked(fields, durable.unix_ms())
    catalog = durable.topics.store.catalog.access
    return _changed(durable, lambda: catalog.add_key(kept, bindings), reply, lambda rows: made_facts(made, kept, rows))


def _list_keys(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ())

    def shown(rows: AccessRows) -> bytes:
        return listed(durable.answer_bytes_max, "keys", map(key_facts, rows.keys), len(rows.keys))

    return _asked(durable, reply, shown)


def _asked(durable: DurableBroker, reply: Reply, shown: Callable[[AccessRows], bytes]) -> list[Effect]:
    catalog = durable.topics.store.catalog.access
    return [RunInThread(lambda: shown(catalog.load()), reply, read_only=True)]


def _revoke_key(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    catalog = durable.topics.store.catalog.access
    revoked: list[str] = []

    def revoke() -> AccessRows:
        ids, rows = revoke_meant(catalog, fields)
        revoked.extend(ids)
        return rows

    return _changed(durable, revoke, reply, lambda _rows: {"revoked": revoked})


def _grant(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    catalog, bindings = durable.topics.store.catalog.access, bindings_given(fields)
    return _changed(durable, lambda: catalog.grant(bindings), reply, lambda rows: standing(rows, bindings))


def _withdraw(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    catalog, bindings = durable.topics.store.catalog.access, bindings_given(fields)
    return _changed(durable, lambda: catalog.withdraw(bindings), reply, lambda rows: standing(rows, bindings))


def bindings_given(fields: Fields) -> list[StoredBinding]:
    read.check_known(fields, ("principal", "binding"))
    given = read.texts(fields, "binding")
    if not given:
        raise InvalidRequest("binding is a role and where it holds: publisher@topic:orders.#", field="binding")
    return bindings_asked(read.text(fields, "principal"), given)


def standing(rows: AccessRows, changed: Sequence[StoredBinding]) -> Fields:
    """What whoever is spoken of may now."""
    principal = changed[0].principal
    return {"principal": principal, "bindings": _written(rows, principal)}


def _written(rows: AccessRows, principal: str) -> list[str]:
    return [f"{each.role}@{each.scope}" for each in bindings_of(rows, principal)]


def _show(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("principal",))
    principal = check_principal(read.text(fields, "principal")) if "principal" in fields else None

    def shown(rows: AccessRows) -> bytes:
        found = bindings_of(rows, principal)
        return listed(durable.answer_bytes_max, "bindings", map(binding_facts, found), len(found))

    return _asked(durable, reply, shown)


TOPICS: Final[dict[str, Callable[[DurableBroker, Client, Fields, Reply], list[Effect]]]] = {
    "system.key.create": _create_key,
    "system.key.list": _list_keys,
    "system.key.revoke": _revoke_key,
    "system.access.grant": _grant,
    "system.access.revoke": _withdraw,
    "system.access.show": _show,
}
