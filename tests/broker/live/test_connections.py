"""Clients: their silence, and their filters of log lines."""

from __future__ import annotations

import re

import pytest

from penstock.broker.live.connections import Client, Clients, LogFilter

RETRY_MS, DEREGISTER_MS = 30, 60


def made(name: str, heard_ms: int = 0) -> Client:
    return Client(id=name, address="somewhere", connected_ms=0, heard_ms=heard_ms)


def clients_of(*members: Client) -> Clients:
    clients = Clients(retry_ms=RETRY_MS, deregister_ms=DEREGISTER_MS)
    for member in members:
        clients.add(member)
    return clients


def silent(clients: Clients, now_ms: int) -> tuple[list[str], list[str]]:
    ask, gone = clients.silent(now_ms)
    return [client.id for client in ask], [client.id for client in gone]


def test_clients_are_found_by_their_id_until_they_go() -> None:
    ann, bob = made("ann"), made("bob")
    clients = clients_of(ann, bob)
    assert (len(clients), list(clients), clients.get("ann")) == (2, [ann, bob], ann)
    assert clients.remove("ann") is ann
    assert clients.remove("ann") is None
    assert clients.get("ann") is None
    assert list(clients) == [bob]


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [(0, ([], [])), (29, ([], [])), (30, (["ann"], [])), (31, (["ann"], [])), (59, (["ann"], []))],
)
def test_who_is_silent_is_asked_from_the_retry_time_on(now_ms: int, expected: tuple[list[str], list[str]]) -> None:
    assert silent(clients_of(made("ann")), now_ms) == expected


@pytest.mark.parametrize(("now_ms", "gone"), [(30, []), (59, []), (60, ["ann"]), (61, ["ann"])])
def test_who_was_asked_is_not_asked_again_and_is_gone_at_the_end(now_ms: int, gone: list[str]) -> None:
    ann = made("ann")
    ann.heartbeat_pending = True
    assert silent(clients_of(ann), now_ms) == ([], gone)


def test_each_client_has_its_own_silence() -> None:
    asked = made("asked", heard_ms=40)
    asked.heartbeat_pending = True
    clients = clients_of(made("fresh", heard_ms=100), made("quiet", heard_ms=60), asked)
    assert silent(clients, 100) == (["quiet"], ["asked"])


def test_nobody_is_given_up_who_was_not_asked() -> None:
    assert silent(clients_of(made("ann")), 10_000) == (["ann"], [])


# Logs


def test_a_filter_wants_its_levels_and_what_its_pattern_finds() -> None:
    every = LogFilter(frozenset({"info", "error"}), None)
    assert every.matches("info", "anything")
    assert not every.matches("debug", "anything")
    some = LogFilter(frozenset({"info"}), re.compile("dis.*ed"))
    assert some.matches("info", "now disconnected again")
    assert not some.matches("info", "connected")
    assert not some.matches("error", "disconnected")
    assert not LogFilter(frozenset(), None).matches("error", "anything")


def test_only_those_with_a_filter_are_loggers_and_none_after_they_are_gone() -> None:
    ann, bob = made("ann"), made("bob")
    clients = clients_of(ann, bob)
    wanted = LogFilter(frozenset({"error"}), None)
    clients.filter_logs(ann, wanted)
    clients.filter_logs(bob, wanted)
    clients.filter_logs(bob, None)
    clients.filter_logs(bob, None)
    assert clients.loggers == {"ann": ann}
    assert (ann.log_filter, bob.log_filter) == (wanted, None)
    clients.remove("ann")
    assert clients.loggers == {}
