"""Health: each condition of being ready has a name, and a reason when it is not met."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ServiceUnavailable
from penstock.core.limits import GIB, Limits
from penstock.server.operations.health import Check, Health, HealthConditions
from penstock.storage.store import Store


class Port:
    def __init__(self, *, open_: bool = True) -> None:
        self._open = open_

    def is_serving(self) -> bool:
        return self._open


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", create=True) as opened:
        yield opened


def conditions(store: Store, *, stopping: bool = False, **ports: bool) -> HealthConditions:
    listeners = {name: Port(open_=open_) for name, open_ in ports.items()}
    return HealthConditions(store=store, listeners=listeners, is_stopping=lambda: stopping)


def unmet(health: Health) -> dict[str, str | None]:
    return {check.name: check.reason for check in health.checks if not check.ok}


def test_a_broker_that_is_well_is_alive_and_ready(store: Store) -> None:
    found = conditions(store, tcp=True, ws=True)
    assert found.alive().check().status == "alive"
    health = found.ready([]).check()
    assert health.status == "ready"
    assert [check.name for check in health.checks] == ["log", "catalog", "writer", "listeners", "disk", "data"]
    assert {check.reason for check in health.checks} == {None}


def test_a_port_that_is_closed_is_named(store: Store) -> None:
    assert unmet(conditions(store, tcp=True, ws=False).ready([])) == {"listeners": "not listening: ws"}


def test_a_broker_that_stops_is_not_ready_and_still_alive(store: Store) -> None:
    found = conditions(store, stopping=True, tcp=False)
    assert unmet(found.ready([])) == {"listeners": "the broker is stopping"}
    assert unmet(found.alive()) == {}


def test_a_log_that_failed_is_named_with_its_reason_and_only_so_many_are(store: Store) -> None:
    reason = unmet(conditions(store).ready([f"log {number}: a write failed" for number in range(5)]))["log"]
    assert reason == "log 0: a write failed; log 1: a write failed; log 2: a write failed; and 2 more"


def test_a_disk_below_its_reserve_is_said_with_both_numbers(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True, limits=Limits(disk_reserve_bytes=2**20 * GIB)) as store:
        reason = unmet(conditions(store).ready([]))["disk"]
    assert reason is not None
    assert str(2**20 * GIB) in reason
    assert "make room" in reason


def test_without_its_writer_a_broker_is_not_alive(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        found = conditions(store)
        store.writer.close()
        assert unmet(found.alive()) == {"writer": "the thread that writes the log has ended: restart"}


def test_what_is_not_met_is_refused_with_every_condition_by_name() -> None:
    health = Health(
        status="not ready",
        checks=(Check(name="log", ok=True), Check(name="disk", ok=False, reason="5 bytes are free")),
    )
    with pytest.raises(ServiceUnavailable, match="not ready: disk: 5 bytes are free") as caught:
        health.check()
    assert caught.value.details["checks"] == [
        {"name": "log", "ok": True, "reason": None},
        {"name": "disk", "ok": False, "reason": "5 bytes are free"},
    ]
