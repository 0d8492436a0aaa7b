"""A damaged message is reported on every surface that would have shown it."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.kit import child_environment
from tests.server.kit import ID, Link, TcpClient, WsClient

import penstock
import penstock.aio
from penstock import Gap
from penstock.testing import RunningBroker

COUNT, DAMAGED = 10, 6


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with a topic whose message 6 has a flipped bit."""
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as running:
        with penstock.connect(running.url) as client, client.producer("damaged") as producer:
            producer.send_many([b"message %d" % number for number in range(COUNT)])
        flip(running.data / "topics/default/damaged", b"message %d" % DAMAGED)
        yield running


def flip(topic: Path, payload: bytes) -> None:
    (segment,) = topic.rglob("*.seg")
    with segment.open("r+b") as file:
        place = file.read().index(payload)
        file.seek(place)
        file.write(bytes([payload[0] ^ 1]))


def facts(**more: object) -> dict[str, object]:
    return {"partition": 0, "start": DAMAGED, "stop": DAMAGED + 1} | more


def described(broker: RunningBroker, subscription: str) -> dict[str, object]:
    with penstock.connect(broker.url) as client:
        asked = {"topic": "damaged", "subscription": subscription}
        return client.ask("system.subscription.describe", asked)


def told(client: Link, subscription: str) -> tuple[list[int], list[dict[str, object]]]:
    """The offsets that a consumer gets on this transport, and the gaps that it is told of."""
    asked = {"subscription": subscription, "from": "earliest", "format": "message"}
    client.send(f"subscribe:damaged:1.0.0:{ID}", json.dumps(asked).encode())
    offsets: list[int] = []
    gaps: list[dict[str, object]] = []
    while len(offsets) < COUNT - 1:
        message = client.receive()
        if message.action == "message":
            metadata = json.loads(message.payload.partition(b"\n")[0])
            offsets.append(metadata["msg_id"]["topic_offset"])
        elif message.topic == "system.subscription.gap":
            gaps.append(message.json)
    return offsets, gaps


@pytest.mark.parametrize("transport", [TcpClient, WsClient])
def test_a_consumer_on_the_wire_is_told_which_offsets_are_missing_and_why(
    damaged: RunningBroker, transport: type[TcpClient | WsClient]
) -> None:
    port = damaged.tcp_port if transport is TcpClient else damaged.ws_port
    name = f"wire-{transport.__name__.lower()}"
    with transport(port) as client:
        offsets, (gap,) = told(client, name)
    assert offsets == [each for each in range(COUNT) if each != DAMAGED]
    assert str(gap.pop("reason")).startswith("damaged: ")
    own = {"topic": "damaged", "subscription": name, "subscribeId": ID, "messages": 1}
    assert gap == facts(**own)
    assert described(damaged, name)["lost"] == 1


def test_the_client_counts_what_is_missing_and_warns(damaged: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    with penstock.connect(damaged.url) as client, client.consumer("damaged", "client", start="earliest") as consumer:
        received = [consumer.receive(timeout=20) for _ in range(COUNT - 1)]
        offsets = [message.offset for message in received if message is not None]
        assert offsets == [each for each in range(COUNT) if each != DAMAGED]
        (gap,) = consumer.gaps
        assert (consumer.lost, gap.partition, gap.start, gap.stop, gap.messages) == (1, 0, DAMAGED, DAMAGED + 1, 1)
    (warned,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert warned.getMessage().startswith("/default/damaged: messages are missing: offset 6 of partition 0: damaged: ")


def test_the_client_for_asyncio_counts_it_too(damaged: RunningBroker) -> None:
    async def story() -> tuple[int, list[Gap]]:
        async with penstock.aio.connect(damaged.url) as client, client.consumer("damaged", start="earliest") as reader:
            for _ in range(COUNT - 1):
                await reader.receive(timeout=20)
            return reader.lost, list(reader.gaps)

    lost, (gap,) = asyncio.run(story())
    assert (lost, gap.start, gap.stop) == (1, DAMAGED, DAMAGED + 1)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--subscription", "command", "--from", "earliest"), 3),
        ((), 3),
        (("--from", "7"), 0),
        (("--to", "6"), 0),
    ],
)
def test_the_command_prints_it_and_ends_with_a_code_of_its_own(
    damaged: RunningBroker, options: tuple[str, ...], code: int
) -> None:
    command = [sys.executable, "-m", "penstock", "consume", "damaged", "--url", damaged.url, *options]
    done = subprocess.run([*command, "--format", "%o"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    if code:
        assert done.stdout.split() == [str(each) for each in range(COUNT) if each != DAMAGED]
        assert "messages are missing: offset 6 of partition 0: damaged: " in done.stderr


def test_readers_over_http_are_told(damaged: RunningBroker) -> None:
    url = f"{damaged.http_url}/api/events?topic=damaged&from=earliest&follow=false"
    request = urllib.request.Request(url, headers={"Accept": "application/x-ndjson"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        (gap,) = [row["gap"] for row in map(json.loads, answer) if "gap" in row]
    assert gap | facts() == gap
    assert gap["reason"].startswith("damaged: ")


def test_the_metrics_count_it(damaged: RunningBroker) -> None:
    with penstock.connect(damaged.url) as client, client.consumer("damaged", "metrics", start="earliest") as consumer:
        for _ in range(COUNT - 1):
            consumer.receive(timeout=20)
        with urllib.request.urlopen(f"{damaged.http_url}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
    (line,) = [
        each
        for each in lines
        if each.startswith("penstock_subscription_lost_messages_total") and 'subscription="metrics"' in each
    ]
    assert line.endswith(" 1")
