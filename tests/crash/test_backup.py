"""Backups of a broker under load, killed at any moment, both of them: the log is restored, and nothing is skipped."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from tests.cli.kit import child_environment

import penstock
from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.names import TopicName
from penstock.core.offset_set import OffsetSet
from penstock.core.positions import Earliest
from penstock.record import layout as at
from penstock.storage.backup.backup import back_up
from penstock.storage.backup.restore import check_backup, restore
from penstock.storage.base.disk import OsDisk
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.store import Store
from penstock.testing import RunningBroker

KILLS: Final = 4
MANY: Final = 10_000
"""Orders before the first backup; then they come slowly enough for the biller."""
ORDERS, BILLS = TopicName.parse("orders"), TopicName.parse("bills")
LETTERS: Final = ORDERS.dead_letters
Place = tuple[int, int]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return child_environment(tmp_path_factory)


@dataclass
class Load:
    """Orders come in; for each that is consumed a bill is written, and then it is acknowledged."""

    url: str
    stopped: threading.Event = field(default_factory=threading.Event)
    confirmed: list[Place] = field(default_factory=list)
    billed: int = 0

    def produce(self) -> None:
        with penstock.connect(self.url, name="till", reconnect=False) as client, client.producer("orders") as producer:
            number = 0
            while not self.stopped.is_set():
                sent = producer.send_many([b"order %d" % each + b"." * 150 for each in range(number, number + 200)])
                known = (each for each in sent.outcomes(60) if not isinstance(each, PenstockError))
                self.confirmed += [(each.partition, each.offset) for each in known]
                number += 200
                self.stopped.wait(0.05 if number > MANY else 0)

    def consume(self) -> None:
        with (
            penstock.connect(self.url, name="biller", reconnect=False) as client,
            client.consumer("orders", "billing", type="shared", start="earliest") as consumer,
            client.producer("bills") as producer,
        ):
            while not self.stopped.is_set():
                try:
                    batch = consumer.receive_batch(0.5)
                except TimeoutError:
                    continue
                assert batch is not None
                names = [f"{batch.partition} {message.offset}".encode() for message in batch]
                producer.send_many(names).stored(60)
                consumer.ack(batch)
                self.billed += len(names)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._until_gone, args=(each,)) for each in (self.produce, self.consume)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            for thread in threads:
                thread.join()

    def _until_gone(self, work: Callable[[], None]) -> None:
        """The broker may be killed under it."""
        with suppress(PenstockError, TimeoutError):
            work()
        self.stopped.set()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def child(root: Path, target: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.crash.backups", str(root), str(target)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def records(root: Path, topic: TopicName) -> dict[int, list[bytes]]:
    """Every record with its id, offset and bytes, by partition."""
    found: dict[int, list[bytes]] = {}
    reader = DataReader(root).topic(topic)
    for number in reader.logs:
        log = reader.partition(number)
        offset, rows = int(log.view.first_offset), []
        while offset < log.view.next_offset:
            block = log.read(offset).block
            rows += [bytes(block.select(row, row + 1).raw) for row in range(len(block))]
            offset = int(block.columns[-1, at.OFFSET]) + 1
        found[number] = rows
    return found


def payloads(root: Path, topic: TopicName) -> Iterator[str]:
    reader = DataReader(root).topic(topic)
    for number in reader.logs:
        for record, _ in reader.partition(number).follow(Earliest()):
            if record is not None:
                yield record.message.payload.decode()


def settled(root: Path) -> set[Place]:
    """Return the offsets that the restored subscription counts as acked."""
    with Catalog.open(root / "catalog.db", clock=SystemClock(), create=False) as catalog:
        (found,) = catalog.list_subscriptions()
        cursors = catalog.load_cursors(found.subscription_uid)
    done = {number: OffsetSet([(0, int(cursor.floor))] if cursor.floor else []) for number, cursor in cursors.items()}
    for number, cursor in cursors.items():
        for span in cursor.acked:
            done[number].add(int(span.start), int(span.stop))
    return {
        (number, offset) for number, spans in done.items() for start, stop in spans for offset in range(start, stop)
    }


@pytest.mark.slow
def test_a_backup_under_load_restores_the_log_and_no_message_is_skipped(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Killed again and again, the backup and at last the broker, too; then whole, restored, and gone on with."""
    chance = random.Random(7)
    target, new = tmp_path / "backup", tmp_path / "new"
    broker = RunningBroker(data=tmp_path / "data", environment=environment)
    with broker:
        with penstock.connect(broker.url) as client:
            client.ask("system.topic.create", {"topic": "orders", "partitions": 2, "segment_bytes_max": 262_144})
            client.ask("system.topic.create", {"topic": "bills", "segment_bytes_max": 262_144})
        load = Load(broker.url)
        with load.running():
            wait_until(lambda: len(load.confirmed) > MANY and load.billed > 1_000)
            for _ in range(KILLS):
                process = child(broker.data, target, environment)
                tell(process)
                time.sleep(chance.uniform(0, 0.5))
                kill(process)
                with suppress(InvalidRequest):  # none is whole yet
                    assert check_backup(target).problems == ()
            process = child(broker.data, target, environment)
            confirmed = list(load.confirmed)
            tell(process)
            time.sleep(chance.uniform(0, 0.2))
            broker.kill()
            assert process.stdout is not None
            assert int(process.stdout.readline()) >= len(confirmed)
            process.communicate()
    assert check_backup(target).problems == ()
    restore(target, new)
    Store.open(broker.data).close()  # what was written and not listed yet is there once the log is recovered
    for topic in (ORDERS, BILLS):
        original = records(broker.data, topic)
        for number, rows in records(new, topic).items():
            assert rows == original[number][: len(rows)]
    there = {number: len(rows) for number, rows in records(new, ORDERS).items()}
    assert all(offset < there[partition] for partition, offset in confirmed)
    bills = {tuple(map(int, text.split())) for text in payloads(new, BILLS)}
    done = settled(new)
    assert done <= bills
    assert len(done) > 500
    goes_on(new, environment, there, done)


def goes_on(root: Path, environment: dict[str, str], there: dict[int, int], done: set[Place]) -> None:
    """The subscription gets all that it has not acknowledged, and what is published now comes behind."""
    wanted = {(number, offset) for number, count in there.items() for offset in range(count)} - done
    with RunningBroker(data=root, environment=environment) as broker, penstock.connect(broker.url) as client:
        got: set[Place] = set()
        with client.consumer("orders", "billing", type="shared") as consumer:
            while not wanted <= got:
                batch = consumer.receive_batch(60)
                assert batch is not None, f"{len(wanted - got)} are missing"
                got |= {(batch.partition, message.offset) for message in batch}
                consumer.ack(batch)
        assert got == wanted
        receipt = client.publish("orders", b"the next one")
        assert receipt is not None
        assert receipt.offset == there[receipt.partition]


@pytest.mark.slow
def test_a_producer_that_retries_after_a_restore_is_recognised(tmp_path: Path, environment: dict[str, str]) -> None:
    with RunningBroker(data=tmp_path / "data", environment=environment) as broker:
        with penstock.connect(broker.url) as client, client.producer("orders", name="till-1") as producer:
            producer.send_many([b"order %d" % each for each in range(300)]).stored(60)
            number = producer.producer_id
        back_up(broker.data, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    with (
        RunningBroker(data=tmp_path / "new", environment=environment) as broker,
        penstock.connect(broker.url) as client,
        client.producer("orders", name="till-1") as producer,
    ):
        assert (producer.producer_id, producer.last_request_id) == (number, 300)
        (found,) = client.ask("system.topic.catalog")["topics"]
        assert found["messages"] == 300


class Between(OsDisk):
    """Does something once the messages were looked at, and before the dead letters are."""

    def __init__(self, what: Callable[[], None]) -> None:
        self._what = [what]

    def names(self, path: Path) -> list[str]:
        if path.parent.name == LETTERS.namespace and self._what:
            self._what.pop()()
        return super().names(path)


def bury(broker: RunningBroker, payload: str) -> int:
    """Publish a message that fails, and wait until it is a dead letter; its offset."""
    with penstock.connect(broker.url) as client:
        receipt = client.publish("orders", payload.encode())
        with client.consumer("orders", "s", type="shared", start="earliest", redeliveries=0) as consumer:
            message = consumer.receive(60)
            while message is not None and message.payload != payload.encode():
                consumer.nack(message, reason="poison")
                message = consumer.receive(60)
            assert message is not None
            consumer.nack(message, reason="poison")
            wait_until(lambda: LETTERS in known(broker.data) and payload in payloads(broker.data, LETTERS))
    assert receipt is not None
    return receipt.offset


def known(root: Path) -> set[TopicName]:
    return {topic.name for topic in DataReader(root).topics()}


@pytest.mark.slow
def test_after_a_restore_a_message_that_fails_at_an_offset_that_is_given_again_is_a_dead_letter(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """A message behind the watermark is already a dead letter, under the number of its offset."""
    with RunningBroker(data=tmp_path / "data", environment=environment) as broker:
        bury(broker, "first")
        offsets: list[int] = []
        back_up(broker.data, tmp_path / "backup", disk=Between(lambda: offsets.append(bury(broker, "behind"))))
    restore(tmp_path / "backup", tmp_path / "new")
    assert set(payloads(tmp_path / "new", LETTERS)) == {"first", "behind"}
    assert list(payloads(tmp_path / "new", ORDERS)) == ["first"]
    with RunningBroker(data=tmp_path / "new", environment=environment) as broker:
        assert [bury(broker, "another")] == offsets
    assert "another" in set(payloads(tmp_path / "new", LETTERS))


@pytest.mark.slow
def test_the_command_backs_up_beside_a_running_broker(tmp_path: Path, environment: dict[str, str]) -> None:
    with RunningBroker(data=tmp_path / "data", environment=environment) as broker:
        with penstock.connect(broker.url) as client:
            client.publish_many("orders", [b"order"] * 500)
        command = [sys.executable, "-m", "penstock", "backup", str(tmp_path / "backup"), "--data", str(broker.data)]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, env=environment, check=True)
    assert json.loads(done.stdout)["backup"]["messages"] == 500
    assert check_backup(tmp_path / "backup").problems == ()
