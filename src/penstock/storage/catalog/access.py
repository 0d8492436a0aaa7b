"""The access catalog: keys and role bindings as rows. See `Catalog.access`.

Roles and scopes are plain texts here. Secrets never reach this module, only their digests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, select

from penstock.core.clock import Clock, now_ms
from penstock.core.errors import InvalidRequest, QuotaExceeded
from penstock.storage.catalog.database import CatalogFile
from penstock.storage.catalog.tables import (
    ACCESS_BINDINGS,
    ACCESS_KEYS,
    COUNTERS,
    CatalogRow,
    read_row,
    read_rows,
    write_row,
)

KEYS_MAX: Final = 10_000
"""The most keys of a broker, revoked and expired ones included: all are in memory, and are read again after every
change."""

BINDINGS_MAX: Final = 20_000
"""The most bindings of all principals together: all are in memory, and are read again after every change."""

_REVISION: Final = "access_revision"
_KEY: Final = "key"
"""The kind of principals that authenticate with a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    key_id: str
    name: str
    digest: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None

    @property
    def principal(self) -> str:
        """The principal that the key authenticates. All keys of one name authenticate the same principal."""
        return f"{_KEY}:{self.name}"

    def is_good(self, at_ms: int) -> bool:
        """Return True if the key is neither revoked nor expired."""
        return self.revoked_ms is None and (self.expires_ms is None or self.expires_ms > at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBinding:
    principal: str
    role: str
    scope: str
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class AccessRows:
    """All keys and bindings, as they were at one revision."""

    revision: int = 0
    keys: tuple[StoredKey, ...] = ()
    bindings: tuple[StoredBinding, ...] = ()


class AccessCatalog:
    """The keys of one catalog, and the bindings: which principal has which role in which scope.

    A key is good while it is neither revoked nor expired. When a name loses its last good key, its bindings are
    deleted: the next key of that name may have another owner. Every change is one transaction, durable on return, and
    increases the revision. Methods raise what those of `Catalog` raise; those that change something return all keys and
    bindings after it.
    """

    def __init__(self, file: CatalogFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def revision(self) -> int:
        """Return the revision, which every change increases."""
        with self._file.reading() as connection:
            return _revision(connection)

    def load(self) -> AccessRows:
        with self._file.reading() as connection:
            return _all(connection)

    def add_key(self, key: StoredKey, bindings: Sequence[StoredBinding] = ()) -> AccessRows:
        """Add a key, with the current time as its creation, and add `bindings`.

        Existing bindings of its name stay if the name has another good key, and are deleted otherwise. With `KEYS_MAX`
        keys the oldest key that is not good is deleted first. Raises `QuotaExceeded` if all are good, or for more than
        `BINDINGS_MAX` bindings.
        """
        at_ms = now_ms(self._clock)
        with self._changing() as connection:
            _make_room(connection, at_ms)
            _unbind(connection, {key.principal}, at_ms)
            write_row(connection, ACCESS_KEYS, _row_of_key(replace(key, created_ms=at_ms)))
            self._grant(connection, bindings)
        return self.load()

    def revoke_keys(self, key_ids: Collection[str]) -> AccessRows:
        """Revoke keys from now on; unknown ids are ignored. The rows stay, so that people can see what became of the
        keys.

        The bindings of a name without another good key are deleted.
        """
        at_ms = now_ms(self._clock)
        with self._changing() as connection:
            revoked = [key for key in _keys(connection) if key.key_id in key_ids]
            for key in revoked:
                if key.revoked_ms is None:
                    write_row(connection, ACCESS_KEYS, _row_of_key(replace(key, revoked_ms=at_ms)))
            _unbind(connection, {key.principal for key in revoked}, at_ms)
        return self.load()

    def grant(self, bindings: Sequence[StoredBinding]) -> AccessRows:
        """Add bindings; existing ones stay as they are.

        Raises `QuotaExceeded` for more than `BINDINGS_MAX`, and `InvalidRequest` for a binding of a key name without a
        good key; nothing is added then.
        """
        with self._changing() as connection:
            _check_held(connection, bindings, now_ms(self._clock))
            self._grant(connection, bindings)
        return self.load()

    def withdraw(self, bindings: Sequence[StoredBinding]) -> AccessRows:
        """Delete bindings. Raises `InvalidRequest`, and deletes nothing, if one of them does not exist."""
        with self._changing() as connection:
            for binding in bindings:
                if connection.execute(delete(ACCESS_BINDINGS).where(*_same(binding))).rowcount == 0:
                    raise InvalidRequest(
                        f"{binding.principal} has no role {binding.role} on {binding.scope}:"
                        " `penstock access show` lists all",
                        field="binding",
                    )
        return self.load()

    def _grant(self, connection: Connection, bindings: Sequence[StoredBinding]) -> None:
        count = len(read_rows(connection, select(ACCESS_BINDINGS)))
        for binding in bindings:
            if read_row(connection, select(ACCESS_BINDINGS).where(*_same(binding))) is not None:
                continue
            count += 1
            if count > BINDINGS_MAX:
                raise QuotaExceeded(f"there are {BINDINGS_MAX} bindings already", bindings_max=BINDINGS_MAX)
            write_row(connection, ACCESS_BINDINGS, _row_of_binding(replace(binding, created_ms=now_ms(self._clock))))

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        with self._file.writing() as connection:
            yield connection
            write_row(connection, COUNTERS, {"name": _REVISION, "last": _revision(connection) + 1})


def _revision(connection: Connection) -> int:
    row = read_row(connection, select(COUNTERS).where(COUNTERS.c.name == _REVISION))
    return 0 if row is None else int(row["last"])


def _all(connection: Connection) -> AccessRows:
    bindings = (_binding_of(row) for row in read_rows(connection, select(ACCESS_BINDINGS)))
    ordered = sorted(bindings, key=lambda binding: (binding.principal, binding.role, binding.scope))
    return AccessRows(_revision(connection), _keys(connection), tuple(ordered))


def _keys(connection: Connection) -> tuple[StoredKey, ...]:
    keys = (_key_of(row) for row in read_rows(connection, select(ACCESS_KEYS)))
    return tuple(sorted(keys, key=lambda stored: (stored.created_ms, stored.key_id)))


def _make_room(connection: Connection, at_ms: int) -> None:
    """Delete the oldest key that is not good if there are `KEYS_MAX` keys. Raises `QuotaExceeded` if all are good."""
    keys = _keys(connection)
    if len(keys) < KEYS_MAX:
        return
    oldest = next((key for key in keys if not key.is_good(at_ms)), None)
    if oldest is None:
        raise QuotaExceeded(f"there are {KEYS_MAX} keys already, and all are good: revoke some", keys_max=KEYS_MAX)
    connection.execute(delete(ACCESS_KEYS).where(ACCESS_KEYS.c.key_id == oldest.key_id))
    _unbind(connection, {oldest.principal}, at_ms)


def _check_held(connection: Connection, bindings: Sequence[StoredBinding], at_ms: int) -> None:
    """Raise `InvalidRequest` if a binding names a key without a good key: the next owner of that name would have it."""
    good = {each.principal for each in _keys(connection) if each.is_good(at_ms)}
    for principal in {each.principal for each in bindings} - good:
        kind, _, name = principal.partition(":")
        if kind == _KEY:
            raise InvalidRequest(f"there is no good key {name}: `penstock key create` makes one", field="principal")


def _unbind(connection: Connection, principals: set[str], at_ms: int) -> None:
    """Delete the bindings of those `principals` that have no good key at the time `at_ms`."""
    unbound = principals - {each.principal for each in _keys(connection) if each.is_good(at_ms)}
    connection.execute(delete(ACCESS_BINDINGS).where(ACCESS_BINDINGS.c.principal.in_(unbound)))


def _same(binding: StoredBinding) -> tuple[ColumnElement[bool], ...]:
    table = ACCESS_BINDINGS
    return table.c.principal == binding.principal, table.c.role == binding.role, table.c.scope == binding.scope


def _row_of_key(key: StoredKey) -> CatalogRow:
    return {name: getattr(key, name) for name in StoredKey.__dataclass_fields__}


def _row_of_binding(binding: StoredBinding) -> CatalogRow:
    return {name: getattr(binding, name) for name in StoredBinding.__dataclass_fields__}


def _key_of(row: CatalogRow) -> StoredKey:
    return StoredKey(**{name: row[name] for name in StoredKey.__dataclass_fields__})


def _binding_of(row: CatalogRow) -> StoredBinding:
    return StoredBinding(**{name: row[name] for name in StoredBinding.__dataclass_fields__})
