"""`penstock key` and `penstock access`: on a directory, and through a broker with access control."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.kit import Run, child_environment
from tests.server.kit import eventually

from penstock.testing import RunningBroker


def test_a_key_is_made_shown_once_listed_and_revoked_without_a_broker(here: Run, home: Path) -> None:
    made = here("key", "create", "shop", "--role", "publisher@topic:/shop/orders.#", "--expires", "90d", "-d", "data")
    assert made.code == 0
    assert made.out.startswith("psk_")
    assert "key:shop" in made.err
    assert made.out.strip() not in made.err
    (row,) = here("key", "ls", "--data", "data", "--json").rows
    assert (row["name"], row["principal"]) == ("shop", "key:shop")
    assert row["expires_ms"] - row["created_ms"] > 89 * 86_400_000
    listed = here("key", "ls", "--data", "data")
    assert "good" in listed.out
    assert made.out.strip().rpartition("_")[2] not in listed.out
    assert row["key_id"] in here("key", "revoke", "shop", "--data", "data").out
    assert "revoked 2" in here("key", "ls", "--data", "data").out
    secret = made.out.strip().rpartition("_")[2].encode()
    assert not [each for each in (home / "data").rglob("*") if each.is_file() and secret in each.read_bytes()]


def test_a_key_in_a_file_is_its_owners_alone_and_overwrites_nothing(here: Run, home: Path) -> None:
    assert here("key", "create", "a", "--data", "data", "--out", "a.key").out == ""
    file = home / "a.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_text()
    here("key", "create", "a", "--data", "data", "--out", "a.key").refused("overwrites nothing")
    assert file.read_text() == before
    assert len(here("key", "ls", "--data", "data", "--json").rows) == 1


def test_roles_are_granted_shown_and_taken_without_a_broker(here: Run) -> None:
    here("key", "create", "a", "--data", "data")
    bindings = ("viewer", "consumer@topic:Orders.#", "registrar@subject:orders-*")
    granted = here("access", "grant", "jwt:ann@example.org", *bindings, "--data", "data")
    assert granted.out == (
        "jwt:ann@example.org has consumer@topic:/default/orders.#, registrar@subject:orders-*, viewer@server\n"
    )
    assert "orders-*" in here("access", "show", "--data", "data").out
    assert here("access", "show", "key:a", "--data", "data", "--json").rows == []
    (left,) = here("access", "revoke", "jwt:ann@example.org", *bindings[:2], "--data", "data", "--json").rows
    assert left["bindings"] == ["registrar@subject:orders-*"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["key", "create", "a b"], "a key's name"),
        (["key", "create", "a", "--role", "king"], "viewer, publisher"),
        (["key", "create", "a", "--role", "viewer@here"], "a scope is"),
        (["key", "create", "a", "--expires", "soon"], "soon"),
        (["key", "revoke", "nobody"], "there is no key"),
        (["access", "grant", "ann", "viewer"], "a principal is"),
        (["access", "revoke", "key:a", "viewer"], "has no role"),
        (["access", "show", "everybody"], "a principal is"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(here: Run, words: list[str], said: str) -> None:
    assert here("key", "create", "first", "--data", "data").code == 0
    here(*words, "--data", "data").refused(said)


def test_a_key_given_in_the_place_of_its_name_is_not_repeated(here: Run) -> None:
    key = here("key", "create", "a", "--data", "data").out.strip()
    refused = here("key", "revoke", key, "--data", "data")
    refused.refused("there is no key")
    assert key not in refused.err


def test_only_a_key_is_made_where_there_is_no_data_directory(here: Run, home: Path) -> None:
    here("key", "ls", "--data", "nowhere").refused("not a Penstock data directory")
    assert not (home / "nowhere").exists()
    (home / "full").mkdir()
    (home / "full" / "thesis.txt").write_text("mine")
    here("key", "create", "a", "--data", "full").refused("holds other files")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker("--auth", "on", environment=child_environment(tmp_path_factory)) as running:
        yield running


def test_the_first_key_comes_from_the_directory_and_the_next_through_the_broker(
    here: Run, guarded: RunningBroker, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", guarded.url)
    here("key", "ls").refused("UNAUTHORIZED", "PENSTOCK_TOKEN")
    assert here("key", "create", "root", "--role", "admin", "--data", guarded.data, "--out", "root.key").code == 0

    def known() -> bool:
        return here("key", "ls", "--token-file", "root.key").code == 0

    eventually(known, "the broker has heard of the key")
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(home / "root.key"))
    (made,) = here("key", "create", "shop", "--role", "publisher@topic:orders", "--json").rows
    monkeypatch.delenv("PENSTOCK_TOKEN_FILE")
    monkeypatch.setenv("PENSTOCK_TOKEN", made["key"])
    here("topic", "create", "orders").refused("FORBIDDEN", "key:shop", "topic.create", "operator, admin")
    assert here("topic", "create", "orders", "--token-file", "root.key").code == 0
    assert here("publish", "orders", "hello").code == 0
    here("publish", "payments", "hello").refused("FORBIDDEN")
    assert here("key", "revoke", made["key_id"], "--token-file", "root.key").code == 0
    here("publish", "orders", "hello").refused("UNAUTHORIZED")
    here("publish", "orders", "hello", "--token-file", "nothing.key").refused("nothing.key")
