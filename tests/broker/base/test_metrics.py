"""Metrics: totals since the start, rates of the last second, names as the founding protocol spells them."""

from __future__ import annotations

import pytest

from penstock.broker.base.metrics import _COUNTERS, _RATES, _TOTALS, Metrics


def test_everything_starts_at_nothing() -> None:
    shown = Metrics().to_dict()
    assert shown
    assert set(shown.values()) == {0}


def test_totals_grow_and_rates_are_those_of_the_last_second() -> None:
    metrics = Metrics()
    metrics.add("router.publish", 3)
    assert (metrics.count("router.publish"), metrics.to_dict()["router.publish.rate"]) == (3, 0)
    metrics.second_passed()
    metrics.add("router.publish", 4)
    shown = metrics.to_dict()
    assert (shown["router.publish.count"], shown["router.publish.rate"]) == (7, 3)
    metrics.second_passed()
    assert metrics.to_dict()["router.publish.rate"] == 4
    metrics.second_passed()
    assert (metrics.to_dict()["router.publish.count"], metrics.to_dict()["router.publish.rate"]) == (7, 0)


@pytest.mark.parametrize("name", _COUNTERS)
def test_every_counter_is_shown_as_a_count_and_a_rate(name: str) -> None:
    metrics = Metrics()
    before = metrics.to_dict()
    metrics.add(name)
    metrics.second_passed()
    changed = {each for each, value in metrics.to_dict().items() if value != before[each]}
    room, message, *kind = name.split(".")
    assert changed == {".".join((room, message, what, *kind)) for what in ("count", "rate")}


@pytest.mark.parametrize("name", _RATES)
def test_what_only_happens_now_and_then_is_shown_as_a_rate(name: str) -> None:
    metrics = Metrics()
    metrics.add(name, 2)
    metrics.second_passed()
    assert metrics.to_dict()[f"{name}.rate"] == 2


@pytest.mark.parametrize("name", _TOTALS)
def test_connections_are_shown_as_a_total_and_a_rate(name: str) -> None:
    metrics = Metrics()
    metrics.add(name, 2)
    metrics.second_passed()
    shown = metrics.to_dict()
    assert (shown[f"{name}.total"], shown[f"{name}.rate"]) == (2, 2)


def test_sizes_have_an_average_and_a_largest() -> None:
    metrics = Metrics()
    metrics.add_messages(1, 100, 100)
    metrics.add_messages(3, 20, 10)
    shown = metrics.to_dict()
    assert (shown["router.message.count"], shown["router.message.size.avg"]) == (4, 30)
    assert shown["router.message.size.max"] == 100


def test_a_name_that_was_not_announced_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Metrics().add("router.publsh")


FOUNDING = """
router.message.count router.message.rate router.message.count.error router.message.rate.error
router.message.size.avg router.message.size.max
router.publish.count router.publish.count.dropped router.publish.count.error
router.publish.rate router.publish.rate.dropped router.publish.rate.error
router.request.count router.request.count.dropped router.request.count.error router.request.count.timeout
router.request.rate router.request.rate.dropped router.request.rate.error router.request.rate.timeout
router.response.count router.response.count.error router.response.rate router.response.rate.error
registry.discovery.rate registry.registration.rate registry.unregistration.rate
connection.connected.rate connection.connected.total connection.disconnected.rate connection.disconnected.total
connection.failed.rate connection.failed.total connection.rejected.rate connection.rejected.total
"""


def test_every_metric_of_the_founding_router_is_there() -> None:
    shown = Metrics().to_dict().keys()
    ours = ("flood.", "http.", "live.", "retention.", "schema.")
    assert {name for name in shown if not name.startswith(ours)} == set(FOUNDING.split())
