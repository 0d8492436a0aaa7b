"""Forks writers on one data directory and kills each with SIGKILL; holds what is left against what they were promised.

    python killed_writers.py DIR KILLS SEED DURABILITY

Everything is imported once, here, so that a kill costs milliseconds and hundreds fit in a test. Each writer has several
threads that append one message at a time; a message says which writer, thread and turn it is. Prints one JSON object.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.kernels.kernel_cache import load_all
from penstock.record.message import Message
from penstock.storage.log.append_result import Durability
from penstock.storage.store import Store

TOPIC = TopicName.parse("killed")
PARTITIONS = 2
THREADS = 4
LIMITS = Limits(
    payload_bytes_max=4096,
    block_bytes_max=8192,
    segment_bytes_first=8192,
    segment_bytes_max=65_536,
    disk_reserve_bytes=1,
)


def write_until_killed(root: Path, writer: int, durability: Durability, acknowledge: int) -> None:
    store = Store.open(root, limits=LIMITS, durability=durability)
    os.write(acknowledge, b"ready\n")

    def work(thread: int) -> None:
        turn = 0
        while True:
            payload = f"{writer} {thread} {turn} ".encode() + bytes(turn * 37 % 600)
            done = store.append(TOPIC, Draft.of([Message(payload=payload)]), partition=thread % PARTITIONS)
            os.write(acknowledge, f"{thread} {turn} {done.offset}\n".encode())
            turn += 1

    for thread in range(THREADS):
        threading.Thread(target=work, args=(thread,), daemon=True).start()
    time.sleep(60)


def one_kill(root: Path, writer: int, durability: Durability, chance: random.Random) -> list[tuple[int, int, int]]:
    """Return the appends acknowledged to the writer before it died: (thread, turn, offset)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            write_until_killed(root, writer, durability, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as promises:
        ready = promises.readline()
        # Most die some time after their first promise, however slow the machine is; the others before it.
        first = promises.readline() if chance.random() < 0.8 else b""
        time.sleep(chance.random() ** 2 * 0.04)
        os.kill(child, signal.SIGKILL)
        lines = (first + promises.read()).split(b"\n")
    os.waitpid(child, 0)
    if ready != b"ready\n":
        raise AssertionError("the writer could not open what its predecessor left")
    whole = lines[:-1]  # the last one may be cut
    return [tuple(int(word) for word in line.split()) for line in whole]  # type: ignore[misc]


class Ledger:
    """The acknowledged appends, by partition and offset."""

    def __init__(self) -> None:
        self.promised: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.last_turn: dict[tuple[int, int], int] = {}

    def add(self, writer: int, promises: list[tuple[int, int, int]]) -> None:
        for thread, turn, offset in promises:
            self.promised[thread % PARTITIONS, offset] = (writer, thread, turn)
            self.last_turn[writer, thread] = turn

    def check(self, root: Path) -> int:
        """Raises if anything promised is missing, moved, invented, doubled or out of order; how many there are."""
        found: dict[tuple[int, int], tuple[int, int, int]] = {}
        turns: dict[tuple[int, int], int] = {}
        with Store.open(root, limits=LIMITS) as store:
            for partition in range(PARTITIONS):
                last_id = b""
                for record in store.log(TOPIC, partition).records():
                    writer, thread, turn = (int(word) for word in record.message.payload.split()[:3])
                    found[partition, int(record.offset)] = (writer, thread, turn)
                    assert record.id > last_id, "ids go back"
                    assert turn == turns.get((writer, thread), -1) + 1, "a turn is missing or doubled"
                    last_id, turns[writer, thread] = record.id, turn
                assert store.log(TOPIC, partition).damages == []
        for place, message in self.promised.items():
            assert found.get(place) == message, f"promised {message} at {place}, found {found.get(place)}"
        for who, turn in turns.items():
            assert turn <= self.last_turn.get(who, -1) + 1, "more than was sent"
        return len(found)


def main(arguments: list[str]) -> None:
    root, kills, chance, durability = Path(arguments[0]), int(arguments[1]), random.Random(arguments[2]), arguments[3]
    logging.disable(logging.CRITICAL)
    load_all()
    with Store.open(root, create=True, limits=LIMITS) as store:
        store.create_topic(TOPIC, partitions=PARTITIONS)
    ledger, found = Ledger(), 0
    for writer in range(kills):
        ledger.add(writer, one_kill(root, writer, Durability(durability), chance))
        if writer % 25 == 24 or writer == kills - 1:
            found = ledger.check(root)
    print(json.dumps({"kills": kills, "promised": len(ledger.promised), "found": found}))


if __name__ == "__main__":
    main(sys.argv[1:])
