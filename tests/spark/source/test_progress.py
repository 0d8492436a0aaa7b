"""Progress of a job, reported to a real broker; neither a broker nor its absence disturbs the job."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.kit import child_environment

import penstock
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.spark.source import progress
from penstock.spark.source.progress import ProgressReporter
from penstock.testing import RunningBroker

DEADLINE_SECONDS = 120.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return child_environment(tmp_path_factory)


@pytest.fixture(scope="module")
def broker(environment: dict[str, str]) -> Iterator[RunningBroker]:
    with RunningBroker(environment=environment) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(progress, "_PAUSE_SECONDS_MAX", 0.1)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no broker that does not answer."""
    monkeypatch.setattr(progress, "_ASK_SECONDS", DEADLINE_SECONDS)


def publish(broker: RunningBroker, topic: str, count: int) -> None:
    with penstock.connect(broker.url) as client:
        client.publish_many(topic, [b"%d" % number for number in range(count)])


def described(broker: RunningBroker, topic: str, name: str) -> dict[str, Any]:
    with penstock.connect(broker.url) as client:
        return client.ask("system.subscription.describe", {"topic": topic, "subscription": name})


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == progress.__name__]


def test_the_lag_of_a_job_is_seen_among_all_others(broker: RunningBroker) -> None:
    publish(broker, "seen", 10)
    told = ProgressReporter(f"127.0.0.1:{broker.tcp_port}", "nightly")
    told.report({("/default/seen", 0): 4})
    told.report({("seen", 0): 7})
    told.close(DEADLINE_SECONDS)
    found = described(broker, "seen", "nightly")
    assert (found["lag"], found["partitions"][0]["floor"]) == (3, 7)
    assert "read elsewhere" in found["state"][0]
    with penstock.connect(broker.url) as client:
        (listed,) = client.ask("system.subscription.list", {"topic": "seen"})["subscriptions"]
    assert (listed["subscription"], listed["lag"]) == ("nightly", 3)


def test_what_an_archive_has_read_keeps_its_schema(broker: RunningBroker) -> None:
    with penstock.connect(broker.url) as client:
        with client.producer("kept", schema=penstock.JsonSchema({"type": "integer"})) as producer:
            producer.send(7)
        told = ProgressReporter(broker.url, "nightly", archive=True)
        told.report({("kept", 0): 1})
        told.close(DEADLINE_SECONDS)
        token = client.ask("system.topic.delete", {"topic": "kept"})["confirm"]
        client.ask("system.topic.delete", {"topic": "kept", "confirm": token})
        client.ask("system.schema.delete", {"subject": "kept-value"})
        with pytest.raises(PenstockError, match="kept in archive nightly of /default/kept"):
            client.ask("system.schema.delete", {"subject": "kept-value", "permanent": True})


def test_topics_and_partitions_are_told_together_and_the_place_outlives_the_broker(environment: dict[str, str]) -> None:
    with RunningBroker(environment=environment) as running:
        with penstock.connect(running.url) as client:
            client.ask("system.topic.create", {"topic": "two", "partitions": 2})
        publish(running, "one", 5)
        publish(running, "two", 8)
        told = ProgressReporter(running.url, "job")
        told.report(
            {("one", 0): 5, ("two", 0): 1, ("two", 1): 1}
        )  # which of the two has messages is the broker's choice
        told.close(DEADLINE_SECONDS)
        running.kill()
        running.start()
        assert described(running, "one", "job")["lag"] == 0
        assert 1 in [each["floor"] for each in described(running, "two", "job")["partitions"]]


def test_a_consumer_is_left_alone(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    publish(broker, "taken", 5)
    publish(broker, "free", 5)
    with penstock.connect(broker.url) as client, client.consumer("taken", "job", start="earliest") as consumer:
        consumer.receive()
        told = ProgressReporter(broker.url, "job")
        told.report({("taken", 0): 5, ("free", 0): 2})
        told.close(DEADLINE_SECONDS)
    assert described(broker, "taken", "job")["partitions"][0]["floor"] == 0
    assert described(broker, "free", "job")["partitions"][0]["floor"] == 2
    assert len(warnings(caplog)) == 1
    assert "is consumed by" in warnings(caplog)[0]


def test_without_a_broker_the_job_goes_on_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    told = ProgressReporter("127.0.0.1:9", "job")
    for offset in range(100):
        told.report({("orders", 0): offset})
    told.close(DEADLINE_SECONDS)
    assert told._thread is not None
    assert not told._thread.is_alive()
    assert len(warnings(caplog)) == 1
    assert "could not be reported to the broker at tcp://127.0.0.1:9" in warnings(caplog)[0]


def test_a_broker_that_comes_back_hears_the_newest(
    environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with RunningBroker(environment=environment) as running:
        publish(running, "orders", 50)
        told = ProgressReporter(running.url, "job")
        port = running.tcp_port
        running.kill()
        told.report({("orders", 0): 10})
        told.report({("orders", 0): 20})
        with RunningBroker("--tcp-port", str(port), data=running.data, environment=environment) as again:
            until = time.monotonic() + DEADLINE_SECONDS
            while told._pending or told._failed:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert described(again, "orders", "job")["partitions"][0]["floor"] == 20
            told.close(DEADLINE_SECONDS)
    assert "is reported to the broker" in warnings(caplog)[-1]


def test_one_who_answers_nothing_does_not_hold_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_ASK_SECONDS", 600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = ProgressReporter(f"127.0.0.1:{silent.getsockname()[1]}", "job")
        told.report({("orders", 0): 1})
        told.report({("orders", 0): 2})
        told.close(seconds=0.05)
        told.report({("orders", 0): 3})  # after the end it is nobody's
        assert told._pending in ({}, {("orders", 0): 2})
    assert told._thread is not None
    told._thread.join(DEADLINE_SECONDS)
    assert not told._thread.is_alive()


def test_who_has_nothing_to_say_connects_to_nobody() -> None:
    told = ProgressReporter("127.0.0.1:9", "job")
    told.report({})
    assert told._thread is None
    told.close(DEADLINE_SECONDS)
    assert (told._thread, told._client) == (None, None)


def test_a_topic_that_is_none_is_told_and_no_more(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told = ProgressReporter(broker.url, "job")
    told.report({("nowhere", 0): 1, ("no name!", 0): 1})
    told.close(DEADLINE_SECONDS)
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(
    ("address", "name", "words"),
    [
        ("nowhere", "job", "broker='nowhere'"),
        ("http://127.0.0.1:8081", "job", "broker='http://127.0.0.1:8081'"),
        ("127.0.0.1:7450", "no name!", "subscription='no name!'"),
        ("127.0.0.1:7450", "", "subscription=''"),
    ],
)
def test_what_cannot_be_is_refused_at_the_start_with_the_option(address: str, name: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ProgressReporter(address, name)
    assert words in caught.value.message


def test_what_is_as_it_was_is_not_said_again_and_all_is_said_when_it_is_waited_for(broker: RunningBroker) -> None:
    publish(broker, "flushed", 9)
    told = ProgressReporter(broker.url, "job")
    assert told.flush(seconds=0.0), "there is nothing to say"
    for offset in (3, 5, 5):
        told.report({("flushed", 0): offset})
        assert told.flush(DEADLINE_SECONDS)
        assert described(broker, "flushed", "job")["partitions"][0]["floor"] == offset
    told.report({("flushed", 0): 5})
    assert not told._pending
    told.close(DEADLINE_SECONDS)


def test_who_waits_for_a_broker_that_is_not_there_does_not_wait_long() -> None:
    told = ProgressReporter("127.0.0.1:9", "job")
    told.report({("orders", 0): 1})
    assert not told.flush(DEADLINE_SECONDS)
    told.close(DEADLINE_SECONDS)
