"""System topics about keys and bindings: create, list, revoke. When a change is answered, it is durable and in effect.

Only the answer of `system.key.create` contains the text of a key.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.access.policy import PREFIX, Binding, NewKey, check_key_name, check_principal, new_key
from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.base.replies import encode_list
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.storage.catalog.access import AccessCatalog, AccessRows, StoredBinding, StoredKey

if TYPE_CHECKING:
    from penstock.broker.durable import DurableBroker

BINDINGS_AT_ONCE: Final = 100
"""The most bindings in one message: they are stored in one transaction, for which all other changes wait."""


# request fields


def parse_new_key(fields: Fields, now_ms: int) -> tuple[NewKey, StoredKey, list[StoredBinding]]:
    """Create a key from a request: the key itself, its stored form, and its bindings. Nothing is stored yet. Raises
    `InvalidRequest` for a wrong field."""
    read.check_known(fields, ("name", "bindings", "expires_ms"))
    name = check_key_name(read.text(fields, "name"))
    bindings = parse_bindings(f"key:{name}", read.texts(fields, "bindings"))
    expires_ms = read.number(fields, "expires_ms") if fields.get("expires_ms") is not None else None
    if expires_ms is not None and expires_ms <= now_ms:
        raise InvalidRequest("expires_ms is a time of day yet to come, in ms since 1970", field="expires_ms")
    new = new_key(secrets.token_bytes)
    stored = StoredKey(key_id=new.key_id, name=name, digest=new.digest, created_ms=now_ms, expires_ms=expires_ms)
    return new, stored, bindings


def parse_bindings(principal: str, texts: Sequence[str]) -> list[StoredBinding]:
    """Parse the bindings of a principal. Raises `InvalidRequest` for a malformed one, or for too many."""
    if len(texts) > BINDINGS_AT_ONCE:
        raise InvalidRequest(f"at most {BINDINGS_AT_ONCE} bindings at a time, not {len(texts)}", field="bindings")
    check_principal(principal)
    parsed = [Binding.parse(binding) for binding in texts]
    return [StoredBinding(principal=principal, role=binding.role, scope=str(binding.scope)) for binding in parsed]


def find_key_ids(rows: AccessRows, fields: Fields) -> list[str]:
    """Return the ids of the keys that the request's `key` names: the key with this id or, if there is none, all keys
    with this name. Raises `InvalidRequest` if there are none."""
    read.check_known(fields, ("key",))
    name_or_id = read.text(fields, "key")
    key_ids = [key.key_id for key in rows.keys if name_or_id == key.key_id]
    key_ids = key_ids or [key.key_id for key in rows.keys if name_or_id == key.name]
    if not key_ids:
        raise InvalidRequest(f"there is no key {_quoted(name_or_id)}: `penstock key ls` has all", field="key")
    return key_ids


def _quoted(text: str) -> str:
    """Quote the name of a key for an error. If the request contains a key in place of its name, the key is not
    repeated."""
    return "with that secret" if text.startswith(PREFIX) else f"'{text[:QUOTED_CHARS_MAX]}'"


# answer fields


def key_fields(key: StoredKey) -> Fields:
    facts = {
        "key_id": key.key_id,
        "name": key.name,
        "principal": key.principal,
        "created_ms": key.created_ms,
        "expires_ms": key.expires_ms,
        "revoked_ms": key.revoked_ms,
    }
    return {name: value for name, value in facts.items() if value is not None}


def binding_fields(binding: StoredBinding) -> Fields:
    return {
        "principal": binding.principal,
        "role": binding.role,
        "scope": binding.scope,
        "binding": f"{binding.role}@{binding.scope}",
        "created_ms": binding.created_ms,
    }


def new_key_fields(new: NewKey, stored: StoredKey, rows: AccessRows) -> Fields:
    """Describe a new key, with its text, and all bindings that its principal now has. An earlier key of the same name
    may have left some."""
    return key_fields(stored) | {"key": new.text, "bindings": _written(rows, stored.principal)}


def bindings_of(rows: AccessRows, principal: str | None) -> list[StoredBinding]:
    return [binding for binding in rows.bindings if principal in (None, binding.principal)]


# handlers


def revoke_named(catalog: AccessCatalog, fields: Fields) -> tuple[list[str], AccessRows]:
    """Revoke the keys that a request names. Returns their ids, and all keys and bindings as they are afterwards. Raises
    `InvalidRequest` if there is no such key."""
    revoked = find_key_ids(catalog.load(), fields)
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
    new, stored, bindings = parse_new_key(fields, durable.unix_ms())
    catalog = durable.topics.store.catalog.access
    return _changed(
        durable, lambda: catalog.add_key(stored, bindings), reply, lambda rows: new_key_fields(new, stored, rows)
    )


def _list_keys(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ())

    def encode(rows: AccessRows) -> bytes:
        return encode_list(durable.answer_bytes_max, "keys", map(key_fields, rows.keys), len(rows.keys))

    return _answer_from_catalog(durable, reply, encode)


def _answer_from_catalog(durable: DurableBroker, reply: Reply, encode: Callable[[AccessRows], bytes]) -> list[Effect]:
    catalog = durable.topics.store.catalog.access
    return [RunInThread(lambda: encode(catalog.load()), reply, read_only=True)]


def _revoke_key(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    catalog = durable.topics.store.catalog.access
    revoked: list[str] = []

    def revoke() -> AccessRows:
        ids, rows = revoke_named(catalog, fields)
        revoked.extend(ids)
        return rows

    return _changed(durable, revoke, reply, lambda _rows: {"revoked": revoked})


def _grant(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    catalog, bindings = durable.topics.store.catalog.access, parse_binding_change(fields)
    return _changed(durable, lambda: catalog.grant(bindings), reply, lambda rows: bindings_answer(rows, bindings))


def _withdraw(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    catalog, bindings = durable.topics.store.catalog.access, parse_binding_change(fields)
    return _changed(durable, lambda: catalog.withdraw(bindings), reply, lambda rows: bindings_answer(rows, bindings))


def parse_binding_change(fields: Fields) -> list[StoredBinding]:
    read.check_known(fields, ("principal", "binding"))
    texts = read.texts(fields, "binding")
    if not texts:
        raise InvalidRequest("binding is a role and where it holds: publisher@topic:orders.#", field="binding")
    return parse_bindings(read.text(fields, "principal"), texts)


def bindings_answer(rows: AccessRows, changed: Sequence[StoredBinding]) -> Fields:
    """Describe the bindings that the principal has after the change, for the answer."""
    principal = changed[0].principal
    return {"principal": principal, "bindings": _written(rows, principal)}


def _written(rows: AccessRows, principal: str) -> list[str]:
    return [f"{binding.role}@{binding.scope}" for binding in bindings_of(rows, principal)]


def _show(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("principal",))
    principal = check_principal(read.text(fields, "principal")) if "principal" in fields else None

    def encode(rows: AccessRows) -> bytes:
        bindings = bindings_of(rows, principal)
        return encode_list(durable.answer_bytes_max, "bindings", map(binding_fields, bindings), len(bindings))

    return _answer_from_catalog(durable, reply, encode)


TOPICS: Final[dict[str, Callable[[DurableBroker, Client, Fields, Reply], list[Effect]]]] = {
    "system.key.create": _create_key,
    "system.key.list": _list_keys,
    "system.key.revoke": _revoke_key,
    "system.access.grant": _grant,
    "system.access.revoke": _withdraw,
    "system.access.show": _show,
}
