"""Files of a data directory that are gone when the broker starts: said, counted, and never made up for in silence."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.cli.kit import child_environment
from typer.testing import CliRunner

import penstock
from penstock.cli.app import app
from penstock.core.names import TopicName
from penstock.storage.catalog.reader import CatalogReader
from penstock.storage.log.segment import base_of, index_path
from penstock.storage.store import Store
from penstock.testing import RunningBroker

SMALL = {
    "PENSTOCK_STORAGE_SEGMENT_BYTES_FIRST": "8KiB",
    "PENSTOCK_STORAGE_SEGMENT_BYTES_MAX": "16KiB",
    "PENSTOCK_STORAGE_BLOCK_BYTES_MAX": "16KiB",
    "PENSTOCK_STORAGE_PAYLOAD_BYTES_MAX": "8KiB",
}
COUNT = 40


@pytest.fixture
def small(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> RunningBroker:
    """Return a broker with segments of a few KiB, not started yet."""
    return RunningBroker(
        "--http-port", "0", data=tmp_path / "data", environment=child_environment(tmp_path_factory) | SMALL
    )


def asked(broker: RunningBroker, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> Any:
    with urlopen(Request(f"{broker.http_url}{path}", body, dict(headers)), timeout=60) as answer:
        return json.loads(answer.read())


def post(broker: RunningBroker, body: bytes = bytes(900), **headers: str) -> Any:
    return asked(broker, "/api/events?topic=t.x&type=t", body, {k.replace("_", "-"): v for k, v in headers.items()})


def noted(data: Path) -> int:
    ends = CatalogReader(data / "catalog.db").log_ends()
    return max((end.next_offset for end in ends.values()), default=0)


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, " ".join(done.output.split())


def wait_for_note(data: Path, next_offset: int) -> None:
    until = time.monotonic() + 60
    while noted(data) < next_offset:
        assert time.monotonic() < until
        time.sleep(0.05)


def verified(data: Path) -> tuple[int, str]:
    return command("segment", "verify", str(data), "--json")


def described(broker: RunningBroker) -> str:
    return command("topic", "describe", "t.x", "--url", broker.url)[1]


def segments(data: Path) -> list[Path]:
    return sorted(path for path in (data / "topics/default/t.x").iterdir() if base_of(path.name) is not None)


def remove(segment: Path) -> None:
    segment.unlink()
    index_path(segment).unlink()


def test_a_newest_segment_that_is_gone_after_a_kill_is_told_everywhere(small: RunningBroker) -> None:
    data = small.data
    with small as broker:
        assert [post(broker)["offset"] for _ in range(COUNT)] == list(range(COUNT))
        wait_for_note(data, COUNT)
        broker.kill()
        assert verified(data)[0] == 0
        newest = segments(data)[-1]
        remove(newest)
        gap = [int(newest.stem), COUNT]
        code, said = verified(data)
        assert code == 1
        assert f"[{gap[0]}, {gap[1]})" in said
        broker.start()
        assert post(broker)["offset"] == COUNT, "no offset is given twice"
        ready = asked(broker, "/readyz")
        assert ready["status"] == "ready"
        (check,) = [check for check in ready["checks"] if check["name"] == "data"]
        assert f"{COUNT - gap[0]} messages of 1 logs are missing" in check["reason"]
        with penstock.connect(broker.url) as client:
            (log,) = client.ask("system.topic.describe", {"topic": "t.x"})["logs"]
        assert (log["missing"], log["damages"], log["next_offset"]) == ([gap], 1, COUNT + 1)
        assert f"offsets [{gap[0]}, {gap[1]}) are missing" in broker.log
        with urlopen(f"{broker.http_url}/metrics", timeout=60) as answer:
            measured = answer.read()
        assert f"penstock_corruption_found_total {COUNT - gap[0]}\n".encode() in measured
        assert b'penstock_check_ok{check="data"} 1\n' in measured, "it is ready, and the alert of losses is another"
    code, said = verified(data)
    assert code == 1, "the gap stays until the files are back, or retention is past it"
    assert f"[{gap[0]}, {gap[1]})" in said


def test_a_topics_folder_that_is_gone_after_an_orderly_stop_is_told(small: RunningBroker) -> None:
    data = small.data
    with small as broker:
        for _ in range(5):
            post(broker)
        broker.stop()
        shutil.rmtree(data / "topics")
        code, said = verified(data)
        assert code == 1
        assert "offsets [0, 5) were stored once and are missing: its folder is gone" in said
        broker.start()
        said = described(broker)
        assert "messages 0 size 0 B" in said
        assert "partition 0: offsets 0 to 4 are gone with their files" in said
        with penstock.connect(broker.url) as client:
            answer = client.ask("system.topic.delete", {"topic": "t.x"})
        assert answer["status"] == "confirm", "the files may be put back"
        assert post(broker)["offset"] == 5
        assert "messages 1 " in described(broker)
        assert "offsets [0, 5) are missing" in broker.log


@pytest.mark.parametrize("place", [0, 1, -1], ids=["first", "middle", "newest"])
def test_a_subscription_counts_the_messages_of_a_segment_that_is_gone(small: RunningBroker, place: int) -> None:
    with small as broker:
        for _ in range(COUNT):
            post(broker)
        with penstock.connect(broker.url) as client:
            client.ask("system.subscription.create", {"topic": "t.x", "subscription": "s", "from": "earliest"})
        broker.stop()
        found = segments(small.data)
        start, stop = [*(int(each.stem) for each in found), COUNT][place % len(found) :][:2]
        remove(found[place])
        broker.start()
        left = [each for each in range(COUNT) if not start <= each < stop]
        with penstock.connect(broker.url) as client, client.consumer("t.x", "s") as consumer:
            received = [consumer.receive(timeout=60) for _ in left]
            assert [message and message.offset for message in received] == left
            post(broker)  # behind a gap at the end there is something to come
            assert (after := consumer.receive(timeout=60)) is not None
            assert after.offset == COUNT
            facts = client.ask("system.subscription.describe", {"topic": "t.x", "subscription": "s"})
            assert (facts["lost"], consumer.lost) == (stop - start, stop - start)
        said = described(broker)
        assert f"partition 0: offsets {start} to {stop - 1} are gone with their files" in said
        assert f"messages {len(left) + 1} " in said


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_an_idempotency_key_is_recognised_after_retention_and_a_restart(small: RunningBroker, killed: bool) -> None:
    with small as broker:
        client = penstock.connect(broker.url)
        client.ask("system.topic.create", {"topic": "t.x", "retention": {"count": 1}})
        client.close()
        first = post(broker, Idempotency_Key="order-7")
        for _ in range(COUNT):
            post(broker)
        broker.kill() if killed else broker.stop()
        with Store.open(small.data) as store:
            assert store.retain() > 0
            assert store.log(TopicName.parse("t.x")).first_offset > first["offset"]
        broker.start()
        again = post(broker, Idempotency_Key="order-7")
        assert (again["duplicate"], again["offset"], again["id"]) == (True, first["offset"], None)
        other = post(broker, Idempotency_Key="order-8")
        assert (other.get("duplicate", False), other["offset"]) == (False, COUNT + 1)
