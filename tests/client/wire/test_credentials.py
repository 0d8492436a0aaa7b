"""Credentials: their sources, their secrecy, and errors of authentication."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kit import child_environment
from tests.ports import free_ports
from tests.server.kit import eventually

import penstock
from penstock.client.wire.credentials import FILE_VARIABLE, TOKEN_CHARS_MAX, VARIABLE, find_secret, read_token
from penstock.client.wire.protocol import ClientProtocol
from penstock.core.errors import Forbidden, InvalidRequest, Unauthorized
from penstock.server.security.offline_keys import ask
from penstock.testing import RunningBroker

# where it comes from


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(FILE_VARIABLE, raising=False)


def revealed(**given: Any) -> str | None:
    found = find_secret(**given)
    return None if found is None else found.reveal()


def test_the_nearest_token_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file, other = tmp_path / "token", tmp_path / "other"
    file.write_text(" from-a-file\n")
    other.write_text("from-a-file-of-the-environment")
    assert revealed() is None
    monkeypatch.setenv(FILE_VARIABLE, str(other))
    assert revealed() == "from-a-file-of-the-environment"
    monkeypatch.setenv(VARIABLE, "from-the-environment")
    assert revealed() == "from-the-environment"
    assert revealed(token_file=file) == "from-a-file"
    assert revealed(token="given", token_file=file) == "given"
    assert revealed(token=lambda: "made") == "made"


def test_a_file_is_read_again_for_every_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    secret = find_secret(token_file=file)
    assert secret is not None
    assert secret.reveal() == "one"
    file.write_text("two")
    assert secret.reveal() == "two"


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "é", "\0", "x" * (TOKEN_CHARS_MAX + 1)])
def test_what_no_token_can_be_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        revealed(token=token)
    assert token.strip() == "" or token not in refused.value.message


def test_a_file_that_holds_no_token_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_token(tmp_path / "nothing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match="binary"):
        read_token(tmp_path / "binary")


def test_a_secret_shows_nothing_and_goes_nowhere() -> None:
    secret = find_secret(token="hidden-away")
    assert "hidden-away" not in repr(secret)
    assert "hidden-away" not in f"{secret}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert "hidden-away" not in repr(ClientProtocol().authenticate("hidden-away"))


# on the way


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return child_environment(tmp_path_factory)


@pytest.fixture(scope="module")
def broker(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = tmp_path_factory.mktemp("guarded") / "data"
    ask(data, "system.key.create", {"name": "first", "bindings": ["admin"]})
    with RunningBroker("--auth", "on", data=data, environment=environment) as running:
        yield running


def key(broker: RunningBroker, name: str, *bindings: str) -> str:
    """Create a key in the directory of a running broker, and wait until the broker knows it."""
    made = str(ask(broker.data, "system.key.create", {"name": name, "bindings": list(bindings)})["key"])

    def opens() -> bool:
        try:
            penstock.connect(broker.url, token=made, timeout=20).close()
        except Unauthorized:
            return False
        return True

    eventually(opens, "the broker has heard of the key")
    return made


def test_producers_and_consumers_work_as_who_they_are(broker: RunningBroker) -> None:
    token = key(broker, "worker", "admin@topic:work.#")
    with penstock.connect(broker.url, token=token) as client:
        with client.producer("work.done") as producer:
            producer.send(b"one")
            producer.flush()
        with client.consumer("work.done", subscription="s", start="earliest") as consumer:
            assert next(iter(consumer)).payload == b"one"
        with pytest.raises(Forbidden, match=r"topic.publish|topic.create"):
            client.publish("others", b"x")


def test_without_a_token_and_with_a_wrong_one_nobody_comes_in(broker: RunningBroker) -> None:
    with penstock.connect(broker.url) as client, pytest.raises(Unauthorized, match="PENSTOCK_TOKEN"):
        client.publish("work.done", b"x")
    with pytest.raises(Unauthorized, match="not known"):
        penstock.connect(broker.url, token="psk_" + "a" * 13 + "_" + "b" * 52)


def test_the_environment_says_who_we_are(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, key(broker, "env", "viewer"))
    with penstock.connect(broker.url) as client:
        assert client.ask("system.metrics", {})["metrics"]


@pytest.mark.slow
def test_a_client_says_who_it_is_again_after_every_interruption(environment: dict[str, str], tmp_path: Path) -> None:
    token = str(ask(tmp_path / "data", "system.key.create", {"name": "a", "bindings": ["admin"]})["key"])
    (port,) = map(str, free_ports(1))
    flags = ("--auth", "on", "--tcp-port", port)
    with (
        RunningBroker(*flags, data=tmp_path / "data", environment=environment) as running,
        penstock.connect(running.url, token=token, timeout=60) as client,
    ):
        client.publish("work", b"1")
        running.kill()
        with RunningBroker(*flags, data=tmp_path / "data", environment=environment):
            client.ask("system.topic.describe", {"topic": "work"})


def test_a_revoked_client_is_told_and_does_not_come_back(broker: RunningBroker) -> None:
    token = key(broker, "doomed", "admin")
    with penstock.connect(broker.url, token=token) as client:
        with client.subscribe("anything") as messages:
            ask(broker.data, "system.key.revoke", {"key": "doomed"})
            with pytest.raises(Unauthorized):
                next(iter(messages))
        with pytest.raises(Unauthorized):
            client.publish("anything", b"x")
