"""A disk that fills up under a real broker: what is refused, what goes on, who is told, and what comes back."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.cli.kit import child_environment
from tests.crash.disks import fill_to_the_last_byte, mounted

from penstock import aio
from penstock.core.errors import DiskFull
from penstock.testing import RunningBroker

TOPIC: Final = "full"
MIB: Final = 1 << 20
RESERVE: Final = 8 * MIB
FIRST: Final = 256 * 1024
SETTINGS: Final = {
    "PENSTOCK_STORAGE_DISK_RESERVE_BYTES": str(RESERVE),
    "PENSTOCK_STORAGE_SEGMENT_BYTES_FIRST": str(FIRST),
    "PENSTOCK_STORAGE_SEGMENT_BYTES_MAX": str(32 * MIB),
}
REFUSED: Final = "takes no messages for want of room"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", 40) as place:
        yield place


@pytest.fixture
def broker(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    environment = child_environment(tmp_path_factory) | SETTINGS
    with RunningBroker("--http-port", "0", data=disk / "data", environment=environment) as running:
        yield running


def unmet(broker: RunningBroker) -> dict[str, str]:
    """The conditions of being ready that are not met, with their reasons."""
    try:
        with urlopen(f"{broker.http_url}/readyz", timeout=60):
            return {}
    except HTTPError as error:
        checks = json.loads(error.read())["error"]["details"]["checks"]
        return {check["name"]: check["reason"] for check in checks if not check["ok"]}


def metric(broker: RunningBroker, name: str) -> float:
    with urlopen(f"{broker.http_url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def wait_for(is_so: Callable[[], Any]) -> None:
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 300))


async def publish_until_full(client: aio.AsyncClient) -> int:
    for count in range(10_000):
        try:
            await client.publish(TOPIC, bytes(50_000))
        except DiskFull:
            return count
    raise AssertionError("the disk is larger than it should be")


@pytest.mark.slow
def test_all_room_is_used_and_a_topic_that_refuses_is_told_once_and_recovers(broker: RunningBroker, disk: Path) -> None:
    filler = disk / "filler"
    filler.write_bytes(bytes(4 * MIB))
    run(_fill(broker, disk))
    assert broker.log.count(REFUSED) == 1
    assert metric(broker, "penstock_logs_full") == 1
    filler.unlink()
    wait_for(lambda: unmet(broker) == {})  # there is room, and nobody need publish to find out
    run(_publish(broker, 3))
    wait_for(lambda: metric(broker, "penstock_logs_full") == 0)
    assert "takes messages again" in broker.log


async def _fill(broker: RunningBroker, disk: Path) -> None:
    async with aio.connect(broker.url) as client:
        stored = await publish_until_full(client)
        free = shutil.disk_usage(disk).free
        assert free - RESERVE < FIRST + MIB, "room was left over"
        assert stored * 50_000 > 20 * MIB
        assert list(unmet(broker)) == ["disk"]
        assert "make room" in unmet(broker)["disk"]
        for _ in range(5):
            with pytest.raises(DiskFull):
                await client.publish(TOPIC, b"small" * 50_000)


async def _publish(broker: RunningBroker, count: int) -> None:
    async with aio.connect(broker.url) as client:
        for _ in range(count):
            await client.publish(TOPIC, bytes(1000))


@pytest.mark.slow
def test_acknowledgements_go_on_with_no_byte_free(broker: RunningBroker, disk: Path) -> None:
    run(_acknowledge(broker, disk))
    assert not (broker.data / "reserve").exists(), "it was given up"
    (disk / "filler").unlink()
    run(_publish(broker, 1))
    broker.kill()
    broker.start()
    assert (broker.data / "reserve").exists(), "it was taken again"
    run(_nothing_comes_twice(broker))
    assert "Traceback" not in broker.log


async def _acknowledge(broker: RunningBroker, disk: Path) -> None:
    async with aio.connect(broker.url) as client:
        for number in range(600):
            await client.publish(TOPIC, b"%d" % number)
        consumer = await client.consumer(TOPIC, "s", start="earliest", window=600)
        taken = [await consumer.receive(60.0) for _ in range(600)]
        assert (broker.data / "reserve").stat().st_size == RESERVE // 4
        fill_to_the_last_byte(disk / "filler")
        assert shutil.disk_usage(disk).free == 0
        for place in range(600):  # every other first: what is acked above the first that is not takes room too
            message = taken[place * 2 % 600 + (place * 2 >= 600)]
            assert message is not None
            consumer.ack(message)
            if place % 4 == 3:
                await consumer.flush()
        assert "disk" in unmet(broker)


async def _nothing_comes_twice(broker: RunningBroker) -> None:
    async with aio.connect(broker.url) as client:
        facts = json.dumps({"topic": TOPIC, "subscription": "s"})
        assert json.loads(await client.request("system.subscription.describe", facts))["lag"] == 1


def test_whoever_may_not_mount_is_told_that_it_takes_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = tmp_path / "mount"
    refusing.write_text("#!/bin/sh\necho 'mount: permission denied' >&2\nexit 32\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    told = "mount: permission denied: .* takes root; .* `unshare --user --map-root-user --mount"
    with pytest.raises(pytest.fail.Exception, match=told), mounted(tmp_path / "disk", 1):
        pass
