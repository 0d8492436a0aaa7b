"""File descriptors: the log has its own, and connections are refused before it is short of them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tests.server.kit import ID, BrokerProcess, Ended, Link, Start, TcpClient, WsClient, eventually, fds, upgrade

from penstock.server.resources.file_descriptors import NON_LOG_DESCRIPTORS, DescriptorLimits


@pytest.mark.parametrize(
    ("limit", "open_logs_max", "reserve", "logs"),
    [
        (20_000, 1024, 2200, 1024),
        (20_000, 10_000, 5000, 2424),
        (1024, 1024, 256, 64),
        (120, 1024, 30, 7),
        (16, 1024, 4, 1),
        (1 << 30, 4, 160, 40),
    ],
)
def test_the_files_of_the_logs_fit_into_what_no_connection_gets(
    limit: int, open_logs_max: int, reserve: int, logs: int
) -> None:
    found = DescriptorLimits.split(limit, open_logs_max)
    assert (found.reserve, found.open_logs_max) == (reserve, logs)
    assert found.connection_limit + found.reserve == limit
    assert found.connection_limit >= limit * 3 // 4
    assert 2 * logs <= max(reserve, 2 * 1)


def test_where_there_are_enough_nobody_is_short() -> None:
    found = DescriptorLimits.split(15_000 + NON_LOG_DESCRIPTORS + 2 * 1024, 1024)
    assert found.connection_limit == 15_000
    assert found.open_logs_max == 1024


def test_those_who_ask_whether_the_broker_is_well_have_a_part_of_the_reserve() -> None:
    found = DescriptorLimits(1000, 100)
    assert found.for_probes().connection_limit == 925


def greeted(link: Link) -> bool:
    """Return whether the connection was greeted. Refused ones get the reason, unless they were cut off before."""
    try:
        return link.receive().topic == "system.initialize"
    except Ended:
        return False


@pytest.fixture
def short(start: Start) -> BrokerProcess:
    """A broker whose segments are so small that every few messages need a new file."""
    small = {"SEGMENT_BYTES_FIRST": "8KiB", "SEGMENT_BYTES_MAX": "8KiB", "BLOCK_BYTES_MAX": "8KiB"}
    small["PAYLOAD_BYTES_MAX"] = "4KiB"
    environment = {f"PENSTOCK_STORAGE_{name}": value for name, value in small.items()}
    return start("--log-level", "info", open_files=120, environment=environment | {"PENSTOCK_AUTO_CREATE": "reliable"})


def test_an_old_connection_publishes_on_while_hundreds_connect(short: BrokerProcess) -> None:
    with ExitStack() as held:
        old = held.enter_context(TcpClient(short.tcp_port))

        def publish(topic: str) -> None:
            answer = old.ask(f"publish:{topic}:1.0.0:{ID}", bytes(3000))
            assert answer.error == "", answer

        publish("files.first")
        links = []
        for number in range(300):
            links.append(held.enter_context(TcpClient(short.tcp_port, greet=False)))
            publish("files.first")  # every other one begins another segment
            if not number % 20:
                publish(f"files.topic{number}")
        served = sum(greeted(link) for link in links)
        assert 10 < served < 90
        with WsClient(short.ws_port, greet=False) as refused:
            refused.raw(upgrade(short.ws_port))
            with pytest.raises((AssertionError, Ended, ConnectionError)):
                refused.greeted()
        publish("files.last")
        assert short.log().count("connections are refused: the files that are left are for the log") == 2, "once a port"
        assert fds(short) <= 120
    eventually(lambda: _serves(short), "a place is free again")


def _serves(broker: BrokerProcess) -> bool:
    try:
        with TcpClient(broker.tcp_port) as client:
            return client.answers()
    except (AssertionError, Ended):
        return False


def test_a_connection_is_told_why_there_is_no_place_for_it(short: BrokerProcess) -> None:
    with ExitStack() as held:
        links = [held.enter_context(TcpClient(short.tcp_port, greet=False)) for _ in range(120)]
        (answer,) = links[-1].receive_until_end()
        assert answer.error == "SERVICE_UNAVAILABLE"
        assert "the files that are left are for the log" in answer.json["error"]["message"]
