"""The benchmarks run, so that they cannot rot; how fast anything is, is not asked here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from benches.report import Targets, missed, report, target
from benches.rivals import RIVALS, PackageClient, Redis, Rival, measure_package

from benches import http, log, operations, schema, spark, stream, wire
from penstock.bench import Figure
from penstock.bench.connection import publish_all
from penstock.bench.stream import PenstockConnection, best_in_turns
from penstock.core.errors import InvalidRequest
from penstock.testing import RunningBroker

TARGETS: Targets = {"stamp, 100 B": 0.5}
CLIENTS = [(kind, client) for kind in RIVALS for client in kind.clients]


def check(figures: Iterable[Figure], targets: Targets, *, absent: tuple[str, ...] = ()) -> None:
    """Every target has a figure, and every figure a ratio."""
    found = list(figures)
    for name in targets:
        assert name in absent or any(figure.name.startswith(name) for figure in found), name
    assert all(figure.ratio is not None and figure.ratio > 0 for figure in found)


@pytest.mark.slow
def test_the_log_is_measured(tmp_path: Path) -> None:
    check(log.measure(tmp_path, quick=True), log.TARGETS)


@pytest.mark.slow
def test_the_wire_is_measured() -> None:
    check(wire.measure(quick=True), wire.TARGETS, absent=("beside the founding server",))


@pytest.mark.slow
def test_http_is_measured(tmp_path: Path) -> None:
    check(http.measure(tmp_path, quick=True), http.TARGETS)


@pytest.mark.slow
def test_operations_are_measured(tmp_path: Path) -> None:
    check(operations.measure(tmp_path, quick=True), operations.TARGETS)


@pytest.mark.slow
def test_streams_are_measured(tmp_path: Path) -> None:
    check(stream.measure(tmp_path, quick=True), stream.TARGETS)


@pytest.mark.slow
def test_schemas_are_measured(tmp_path: Path) -> None:
    check(schema.measure(tmp_path, quick=True), schema.TARGETS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_spark_is_measured() -> None:
    """Run it in a process of its own: a process has one session, and this one's is shared by all tests."""
    done = subprocess.run(
        [sys.executable, "-m", "benches.spark", "--quick"], capture_output=True, text=True, check=True
    )
    assert all(name in done.stdout for name in spark.TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "client"), CLIENTS)
def test_what_a_package_has_confirmed_is_there(kind: type[Rival], client: PackageClient, tmp_path: Path) -> None:
    with kind(tmp_path) as rival:
        assert measure_package(rival, client, 100, 1001, windows=(64,)) > 0
        assert rival.stored() == 1001


def test_a_package_that_loses_messages_is_not_measured(tmp_path: Path) -> None:
    class Empty(Redis):
        def clear(self) -> None: ...

        def stored(self) -> int:
            return 0

    client = PackageClient(name="nobody", package="sys", windows=(1,), publish=lambda *_: 1.0)
    with pytest.raises(InvalidRequest, match="nobody: 0 of 7 messages"):
        measure_package(Empty(tmp_path), client, 100, 7)


def test_a_package_that_is_not_installed_is_not_available() -> None:
    assert not PackageClient(name="", package="no_such_package_anywhere", windows=(), publish=lambda *_: 1.0).available


def test_a_confirmation_counts_once_wherever_it_is_cut(broker: RunningBroker) -> None:
    answer = b'{"partition":0,"offset":7,"duplicate":false}'
    with PenstockConnection(broker.tcp_port) as connection:
        for cut in range(len(answer)):
            assert connection.count_confirmations(answer[:cut]) + connection.count_confirmations(answer[cut:]) == 1
        assert sum(connection.count_confirmations(answer[place : place + 1]) for place in range(len(answer))) == 1


def test_a_message_that_the_broker_refuses_is_an_error(broker: RunningBroker) -> None:
    """Topics are live at this broker, and there is no subscriber."""
    with PenstockConnection(broker.tcp_port) as connection, pytest.raises(InvalidRequest, match="refused a message"):
        publish_all([connection], b"x", 10, window=4, batch=2)


def test_sides_take_turns_and_the_best_of_each_counts() -> None:
    seen: list[str] = []

    def side(name: str, rates: list[float]) -> float:
        seen.append(name)
        return rates.pop()

    ours, theirs = [1.0, 3.0], [5.0, 2.0]
    best = best_in_turns({"a": lambda: side("a", ours), "b": lambda: side("b", theirs)}, 2)
    assert (best, seen) == ({"a": 3.0, "b": 5.0}, ["a", "b", "a", "b"])


def figure(ratio: float | None, name: str = "stamp, 100 B") -> Figure:
    return Figure(name=name, value=1.0, unit="GB/s", ratio=ratio)


def test_a_figure_below_its_target_is_missed_and_one_at_it_is_not() -> None:
    assert target(figure(1.0), TARGETS) == 0.5
    assert missed(figure(0.49), TARGETS)
    assert not missed(figure(0.5), TARGETS)
    assert not missed(figure(None), TARGETS)
    assert not missed(figure(0.0, name="of interest, and no more"), TARGETS)


@pytest.mark.parametrize(("quick", "code"), [(False, 1), (True, 0)])
def test_a_missed_target_fails_the_full_run_alone(quick: bool, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("title", [figure(0.01)], TARGETS, quick=quick) == code
    assert "MISSED" in capsys.readouterr().out
