"""A real broker says how it is doing, and what it says is what was done to it."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.kit import child_environment

import penstock
from penstock.server.operations.metrics import FAMILIES
from penstock.testing import RunningBroker

Labels = tuple[tuple[str, str], ...]
Samples = dict[str, dict[Labels, float]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as running:
        yield running


def get(broker: RunningBroker, path: str) -> tuple[int, str, bytes]:
    try:
        with urlopen(f"{broker.http_url}{path}", timeout=20) as answer:
            return answer.status, answer.headers["content-type"], answer.read()
    except HTTPError as error:
        return error.code, error.headers["content-type"], error.read()


def scraped(broker: RunningBroker) -> Samples:
    """Return metrics that are newer than the call: an answer may be a second old."""
    status, media, first = get(broker, "/metrics")
    assert (status, media.partition(";")[0]) == (200, "text/plain")
    until = time.monotonic() + 20
    while (body := get(broker, "/metrics")[2]) == first:
        assert time.monotonic() < until
        time.sleep(0.05)
    found: Samples = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name][tuple(sorted(labels.items()))]


def test_alive_and_ready_are_said_with_every_condition(broker: RunningBroker) -> None:
    assert get(broker, "/livez")[0] == 200
    status, media, body = get(broker, "/readyz")
    found = json.loads(body)
    assert (status, media, found["status"]) == (200, "application/json", "ready")
    assert {check["name"]: check["ok"] for check in found["checks"]} == dict.fromkeys(
        ("log", "catalog", "writer", "listeners", "disk", "data"), True
    )


def test_every_family_is_there_under_a_name_of_the_right_form(broker: RunningBroker) -> None:
    body = get(broker, "/metrics")[2].decode()
    families = {family.name: family for family in text_string_to_metric_families(body)}
    for family, _ in FAMILIES:
        found = families[family.name.removesuffix("_total")]
        assert (found.type, found.documentation) == (family.kind.value, family.about)
        assert family.name.endswith("_total") == (family.kind.value == "counter")
    names = [family.name for family, _ in FAMILIES]
    assert len(names) == len(set(names))


def test_what_was_published_delivered_acknowledged_and_buried_is_counted(broker: RunningBroker) -> None:
    before, began = scraped(broker), time.monotonic()
    topic, sub = "/default/counted", "billing"
    with penstock.connect(broker.url) as client:
        options = {"start": "earliest", "type": "shared", "redeliveries": 0, "backoff_ms": 1}
        with client.consumer("counted", sub, **options) as consumer, client.producer("counted") as producer:
            producer.send_many([b"order %d" % number for number in range(10)]).stored(20)
            got = [consumer.receive(20) for _ in range(10)]
            delivered = time.monotonic()
            for message in got[:6]:
                consumer.ack(message)
            consumer.nack(got[6], reason="no")
            consumer.flush()
            until = time.monotonic() + 20
            while time.monotonic() < until:
                facts = client.ask("system.topic.catalog", {"namespace": "default-dlq"})["topics"]
                if facts and facts[0]["messages"]:
                    break
            asked = time.monotonic()
            found = scraped(broker)
            assert of(found, "penstock_topic_published_messages_total", topic=topic) == 10
            assert of(found, "penstock_topic_messages", topic=topic) == 10
            size = of(found, "penstock_topic_segment_bytes", topic=topic)
            assert of(found, "penstock_topic_published_bytes_total", topic=topic) == size > 500
            expected = {"delivered": 10, "acked": 6, "failed": 1, "redelivered": 0, "lost": 0, "dropped": 0}
            for what, count in expected.items():
                name = f"penstock_subscription_{what}_messages_total"
                assert of(found, name, topic=topic, subscription=sub) == count, what
            assert of(found, "penstock_subscription_dead_letters_total", topic=topic, subscription=sub) == 1
            assert of(found, "penstock_subscription_lag_messages", topic=topic, subscription=sub) == 3
            assert of(found, "penstock_subscription_unacked_messages", topic=topic, subscription=sub) == 3
            assert of(found, "penstock_subscription_consumers", topic=topic, subscription=sub) == 1
            for name in ("lag", "oldest_unacked"):
                seconds = of(found, f"penstock_subscription_{name}_seconds", topic=topic, subscription=sub)
                assert asked - delivered - 0.01 < seconds < time.monotonic() - began + 0.01
                assert seconds > 0
            assert of(found, "penstock_connections") == 1
            assert of(found, "penstock_dead_letters_left_messages", topic="/default-dlq/counted") == 1
            client.ask("system.deadletter.drop", {"topic": "counted", "type": "none of them"})
            again = scraped(broker)
            assert of(again, "penstock_dead_letters_left_messages", topic="/default-dlq/counted") == 1
            assert of(again, "penstock_subscriptions") == of(found, "penstock_subscriptions")
            assert not [each for named in again.values() for each in named if ("subscription", "redrive") in each]
            listed = client.ask("system.subscription.list")["subscriptions"]
            assert {each["subscription"] for each in listed if each["internal"]} == {"redrive"}
        left = scraped(broker)
    assert of(left, "penstock_subscription_redelivered_messages_total", topic=topic, subscription=sub) == 3
    assert of(left, "penstock_subscription_oldest_unacked_seconds", topic=topic, subscription=sub) == 0
    for name in ("penstock_sync_seconds_count", "penstock_group_messages_sum", "penstock_group_bytes_total"):
        assert of(found, name) > of(before, name)
    assert of(found, "penstock_group_messages_sum") - of(before, "penstock_group_messages_sum") == 11


def test_live_messages_connections_and_refusals_are_counted(broker: RunningBroker) -> None:
    before = scraped(broker)
    with penstock.connect(broker.url) as client, penstock.connect(broker.url) as other:
        client.ask("system.topic.create", {"topic": "news", "dispatch": "live"})
        subscription = client.subscribe("news")
        other.publish("news", b"hello")
        assert subscription.get(20) is not None
        with pytest.raises(penstock.errors.PenstockError):
            client.ask("system.topic.describe", {"topic": "nowhere"})
    found = scraped(broker)

    def grown(name: str) -> float:
        return of(found, name) - of(before, name)

    assert grown("penstock_live_delivered_messages_total") == 1
    assert (grown("penstock_connections_opened_total"), grown("penstock_connections_closed_total")) == (2, 2)
    assert grown("penstock_wire_errors_total") == 1


def test_http_requests_are_counted_by_route_and_never_by_what_was_asked_for(broker: RunningBroker) -> None:
    for path in ("/livez", "/livez", "/etc/passwd", "/subjects/nowhere/versions"):
        get(broker, path)
    found = scraped(broker)["penstock_http_requests_total"]
    counted = {tuple(value for _, value in labels): count for labels, count in found.items()}
    assert counted["200", "GET", "/livez"] >= 2
    assert counted["404", "none", "none"] >= 1
    assert not any("passwd" in word or "nowhere" in word for labels in counted for word in labels)


def test_streams_of_events_that_are_open_are_counted(broker: RunningBroker) -> None:
    assert of(scraped(broker), "penstock_http_streams") == 0
    with urlopen(f"{broker.http_url}/api/events?topic=streamed", timeout=20) as stream:
        assert stream.readline().startswith(b"retry")
        found = scraped(broker)
        assert of(found, "penstock_http_streams") == 1
        assert of(found, "penstock_http_streams_queued_bytes") == 0
        assert of(found, "penstock_http_streams_opened_total") == 1


def test_with_many_topics_and_subscriptions_the_lines_are_bounded_and_the_sums_are_right(
    broker: RunningBroker,
) -> None:
    with penstock.connect(broker.url) as client:
        for number in range(205):
            client.publish(f"many.topic{number}", b"hello")
        for number in range(305):
            topic, name = f"many.topic{number % 205}", f"sub{number}"
            positions = {"topic": topic, "subscription": name, "positions": {"0": 0}}
            client.ask("system.subscription.report", positions)
        stored = sum(each["messages"] for each in client.topics())
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: get(broker, "/metrics")[0], range(16)))
    assert answers == [200] * 16
    found = scraped(broker)
    topics, subscriptions = found["penstock_topic_messages"], found["penstock_subscription_lag_messages"]
    assert (len(topics), len(subscriptions)) == (201, 301)
    assert (("topic", "_other"),) in topics
    assert sum(topics.values()) == stored
    assert of(found, "penstock_topics") >= 205
    assert sum(subscriptions.values()) >= 305
    check_nothing_falls(broker, found)


def check_nothing_falls(broker: RunningBroker, before: Samples) -> None:
    """Though topics go, some of which have lines of their own, which others then get."""
    with penstock.connect(broker.url) as client:
        for number in range(0, 205, 40):
            topic = f"many.topic{number}"
            token = client.ask("system.topic.delete", {"topic": topic})["confirm"]
            client.ask("system.topic.delete", {"topic": topic, "confirm": token})
    after = scraped(broker)
    fallen = {
        (name, labels): (value, after[name][labels])
        for name, lines in before.items()
        if name.endswith("_total")
        for labels, value in lines.items()
        if after[name].get(labels, value) < value
    }
    assert fallen == {}


def test_where_authentication_is_on_only_health_is_for_everybody(tmp_path_factory: pytest.TempPathFactory) -> None:
    environment = child_environment(tmp_path_factory)
    with RunningBroker("--http-port", "0", "--auth", "on", environment=environment) as broker:
        assert [get(broker, path)[0] for path in ("/livez", "/readyz", "/metrics")] == [200, 200, 401]


def test_a_broker_whose_disk_is_too_small_is_not_ready_and_says_why(tmp_path_factory: pytest.TempPathFactory) -> None:
    environment = child_environment(tmp_path_factory) | {"PENSTOCK_STORAGE_DISK_RESERVE_BYTES": "900000GiB"}
    with RunningBroker("--http-port", "0", environment=environment) as broker:
        status, _, body = get(broker, "/readyz")
        error = json.loads(body)["error"]
        assert (status, error["code"]) == (503, "SERVICE_UNAVAILABLE")
        assert "disk: " in error["message"]
        assert {check["name"]: check["ok"] for check in error["details"]["checks"]}["disk"] is False
        assert get(broker, "/livez")[0] == 200
        assert of(scraped(broker), "penstock_check_ok", check="disk") == 0


def test_a_catalog_whose_disk_failed_is_told_everywhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No file may grow for a moment, which to the catalog's journal is an error of the disk."""
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as broker:
        unlimited = resource.RLIM_INFINITY
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (4096, unlimited))
        assert make_topic(broker, "n.one") == "STORAGE_FAILED"
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        assert make_topic(broker, "n.two") == "STORAGE_FAILED", "it is final until the next start"
        status, _, body = get(broker, "/readyz")
        checks = {check["name"]: check for check in json.loads(body)["error"]["details"]["checks"]}
        assert status == 503
        assert [name for name, check in checks.items() if not check["ok"]] == ["catalog"]
        assert "catalog.db" in checks["catalog"]["reason"]
        samples = scraped(broker)
        assert of(samples, "penstock_check_ok", check="catalog") == 0
        assert of(samples, "penstock_catalog_failed") == 1
        said = [line for line in broker.log.splitlines() if "Until the broker starts again" in line]
        assert len(said) == 1
        assert "ERROR" in said[0].upper()
        broker.stop()
        broker.start()
        assert get(broker, "/readyz")[0] == 200
        assert make_topic(broker, "n.two") is None


def make_topic(broker: RunningBroker, topic: str) -> str | None:
    """The code of the refusal, if it was one."""
    body = json.dumps({"topic": topic}).encode()
    request = Request(f"{broker.http_url}/v1/topics", data=body, headers={"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=60):
            return None
    except HTTPError as error:
        return str(json.loads(error.read())["error"]["code"])
