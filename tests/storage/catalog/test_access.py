"""Keys and bindings in the catalog: kept, revoked, seen by others, and never with a secret."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.errors import InvalidRequest, QuotaExceeded
from penstock.storage.catalog import access
from penstock.storage.catalog.access import AccessRows, StoredBinding, StoredKey
from penstock.storage.catalog.catalog import CATALOG_FILE, Catalog
from penstock.testing import ManualClock

NOW_MS = 1_700_000_000_000
ANN = StoredKey(key_id="id1", name="ann", digest="d1", created_ms=0, expires_ms=NOW_MS + 9)
BOB = StoredKey(key_id="id2", name="bob", digest="d2", created_ms=0)
VIEWS = StoredBinding(principal="key:ann", role="viewer", scope="server")
READS = StoredBinding(principal="key:ann", role="consumer", scope="topic:/n/a.#")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def catalog(tmp_path: Path, clock: ManualClock) -> Iterator[Catalog]:
    with Catalog.open(tmp_path / CATALOG_FILE, clock=clock) as opened:
        yield opened


def names(rows: AccessRows) -> list[str]:
    return [each.name for each in rows.keys]


def roles(rows: AccessRows) -> list[str]:
    return [each.role for each in rows.bindings]


def test_a_new_catalog_has_nothing(catalog: Catalog) -> None:
    assert catalog.access.load() == AccessRows()


def test_what_is_added_is_there_after_a_restart(catalog: Catalog, tmp_path: Path) -> None:
    before = catalog.access.add_key(ANN, [VIEWS, READS])
    catalog.close()
    with Catalog.open(tmp_path / CATALOG_FILE, clock=ManualClock(), create=False) as again:
        assert again.access.load() == before
    assert [(each.name, each.expires_ms, each.revoked_ms) for each in before.keys] == [("ann", NOW_MS + 9, None)]
    assert [(each.role, each.scope) for each in before.bindings] == [("consumer", "topic:/n/a.#"), ("viewer", "server")]


def test_another_process_sees_a_change_by_its_revision(catalog: Catalog, tmp_path: Path) -> None:
    with Catalog.open(tmp_path / CATALOG_FILE, clock=ManualClock(), create=False) as other:
        before = other.access.revision()
        catalog.access.add_key(ANN)
        assert other.access.revision() > before
        assert names(other.access.load()) == ["ann"]


def test_every_change_is_a_new_revision(catalog: Catalog) -> None:
    seen = [
        catalog.access.add_key(ANN).revision,
        catalog.access.grant([VIEWS]).revision,
        catalog.access.withdraw([VIEWS]).revision,
        catalog.access.revoke_keys(["id1"]).revision,
    ]
    assert seen == [1, 2, 3, 4]


def test_a_revoked_key_stays_as_one_that_was(catalog: Catalog) -> None:
    catalog.access.add_key(ANN)
    catalog.access.add_key(BOB)
    first = catalog.access.revoke_keys(["id1"])
    assert [each.revoked_ms is not None for each in first.keys] == [True, False]
    assert catalog.access.revoke_keys(["id1"]).keys == first.keys  # the first time counts


def test_a_later_key_of_a_name_has_nothing_of_what_a_revoked_one_had(catalog: Catalog) -> None:
    catalog.access.add_key(ANN, [READS])
    assert roles(catalog.access.revoke_keys(["id1"])) == []
    assert roles(catalog.access.add_key(replace(ANN, key_id="id3"), [VIEWS])) == ["viewer"]


def test_a_later_key_of_a_name_has_nothing_of_what_an_expired_one_had(catalog: Catalog, clock: ManualClock) -> None:
    catalog.access.add_key(ANN, [READS])
    clock.advance_ms(9)
    assert roles(catalog.access.add_key(replace(ANN, key_id="id3", expires_ms=None), [VIEWS])) == ["viewer"]


def test_a_key_that_is_replaced_leaves_what_it_may_to_the_next(catalog: Catalog) -> None:
    catalog.access.add_key(ANN, [READS])
    assert roles(catalog.access.add_key(replace(ANN, key_id="id3"), [VIEWS])) == ["consumer", "viewer"]
    assert roles(catalog.access.revoke_keys(["id1"])) == ["consumer", "viewer"]
    assert roles(catalog.access.revoke_keys(["id3"])) == []


def test_revoking_a_key_takes_nothing_from_others(catalog: Catalog) -> None:
    other = StoredBinding(principal="key:bob", role="operator", scope="server")
    catalog.access.add_key(ANN, [READS])
    catalog.access.add_key(BOB, [other])
    assert roles(catalog.access.revoke_keys(["id1"])) == ["operator"]


def test_nothing_is_granted_to_a_key_that_is_not_there_yet(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequest, match="no good key ann"):
        catalog.access.grant([VIEWS])
    catalog.access.add_key(ANN)
    catalog.access.revoke_keys(["id1"])
    with pytest.raises(InvalidRequest, match="no good key ann"):
        catalog.access.grant([VIEWS])
    assert roles(catalog.access.grant([replace(VIEWS, principal="jwt:ann")])) == ["viewer"]


def test_the_oldest_key_that_is_good_no_more_makes_room(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "KEYS_MAX", 2)
    catalog.access.add_key(BOB)
    catalog.access.add_key(ANN)
    with pytest.raises(QuotaExceeded, match="revoke some"):
        catalog.access.add_key(replace(BOB, key_id="id3", name="eve"))
    catalog.access.revoke_keys(["id1"])
    assert sorted(names(catalog.access.add_key(replace(BOB, key_id="id3", name="eve")))) == ["bob", "eve"]


def test_an_expired_key_makes_room_and_leaves_no_rights(
    catalog: Catalog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "KEYS_MAX", 1)
    catalog.access.add_key(ANN, [READS])
    clock.advance_ms(9)
    rows = catalog.access.add_key(BOB)
    assert (names(rows), roles(rows)) == (["bob"], [])


def test_what_is_bound_already_stays_as_it_is(catalog: Catalog) -> None:
    catalog.access.add_key(ANN)
    first = catalog.access.grant([VIEWS])
    assert catalog.access.grant([VIEWS, VIEWS]).bindings == first.bindings


def test_what_is_not_bound_cannot_be_taken_back_and_nothing_else_is(catalog: Catalog) -> None:
    catalog.access.add_key(ANN, [VIEWS])
    with pytest.raises(InvalidRequest, match="has no role consumer"):
        catalog.access.withdraw([VIEWS, READS])
    assert len(catalog.access.load().bindings) == 1


def test_there_is_an_end_to_keys_and_bindings(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "KEYS_MAX", 1)
    monkeypatch.setattr(access, "BINDINGS_MAX", 1)
    catalog.access.add_key(ANN, [VIEWS])
    with pytest.raises(QuotaExceeded, match="1 keys"):
        catalog.access.add_key(BOB)
    with pytest.raises(QuotaExceeded, match="1 bindings"):
        catalog.access.grant([READS])
    assert names(catalog.access.load()) == ["ann"]
