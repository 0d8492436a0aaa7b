"""The list of connections, as an operator sees it; and closing one."""

from __future__ import annotations

from typing import Any

from tests.broker.conftest import Keeping
from tests.broker.kit import Peer, World, code_of
from tests.broker.topics.test_publisher import refused


def listed(peer: Peer, **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = peer.ask("system.connection.list", fields)["connections"]
    return found


def test_every_connection_is_listed_with_what_it_does(kept: World) -> None:
    ann, bob = kept.connect(), kept.connect()
    bob.ask("system.service.register", {"name": "billing", "description": "bills"})
    bob.subscribe("a")
    bob.consume("b", subscription="s")
    bob.register("b")
    found = {each["name"]: each for each in listed(ann)}
    assert set(found) == {"", "billing"}
    mine = found["billing"]
    assert (mine["subscriptions"], mine["consumes"], mine["produces"]) == (1, 1, 1)
    assert (mine["address"], mine["errors"]) == ("127.0.0.1:5", 0)


def test_the_list_is_paged_by_id(world: World) -> None:
    peers = [world.connect() for _ in range(5)]
    assert len(listed(peers[0], limit=2)) == 2
    last = sorted(peer.id for peer in peers)[3]
    assert len(listed(peers[0], after=last)) == 1
    assert peers[0].ask("system.connection.list", {"limit": 2})["total"] == 5


def test_a_connection_that_is_ended_is_told_why_and_gone(keeping: Keeping) -> None:
    world = keeping()
    ann, bob = world.connect(), world.connect()
    ann.append("a", b"1", b"2")
    bob.consume("a", subscription="s", since="earliest")
    bob.take()
    assert ann.ask("system.connection.close", {"id": bob.id, "reason": "too loud"}) == {"status": "success"}
    (said,) = bob.take()
    assert "too loud" in said
    assert code_of(said) == "SERVICE_UNAVAILABLE"
    assert bob.closed is not None
    facts = ann.ask("system.subscription.describe", {"topic": "a", "subscription": "s"})
    assert (facts["consumers"], facts["lag"]) == ([], 2)


def test_one_may_end_ones_own(world: World) -> None:
    ann = world.connect()
    ann.post('request:system.connection.close:1.0.0:00000000-0000-4000-8000-000000000001\n{"id": "' + ann.id + '"}')
    assert ann.answer("00000000-0000-4000-8000-000000000001") == {"status": "success"}
    assert ann.closed is not None


def test_what_is_no_connection_is_refused(world: World) -> None:
    ann = world.connect()
    for wrong in ("x", "../..", "00000000-0000-4000-8000-000000000007"):
        refused(ann.ask("system.connection.close", {"id": wrong}), "INVALID_REQUEST")
    refused(ann.ask("system.connection.close", {}), "INVALID_REQUEST")
    refused(ann.ask("system.connection.list", {"limit": 0}), "INVALID_REQUEST")
    refused(ann.ask("system.connection.list", {"limit": True}), "INVALID_REQUEST")
