"""Make a data directory, a warehouse and a Spark checkpoint as the installed release writes them.

    python -m tests.golden.make_data_directory data-0.1.1.tar.xz

`test_data_directory.py` opens them with the code of today. Only commands and the public client are used, so that any
release can run it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import penstock
from penstock.testing import RunningBroker

ORDERS = "shop.orders"
PAYMENTS = "shop.payments"
MESSAGES = 40
SCHEMA = {"type": "object", "required": ["cents"], "properties": {"cents": {"type": "integer"}}}
HERE = "@HERE@"
"""Stands in the packed files for the directory that they are unpacked into."""
POISON = 7
"""The number of the order that becomes a dead letter."""


def command(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "penstock", *words], check=True, capture_output=True, text=True)
    return done.stdout


def produce(client: Any, start: int, count: int) -> None:
    with client.producer(ORDERS, name="till", type="order.created") as producer:
        for number in range(start, start + count):
            producer.send(
                json.dumps({"order": number}), key=f"customer-{number % 5}", attributes={"number": str(number)}
            )


def consume_some(client: Any) -> None:
    """Acknowledge the even orders and leave the odd ones, but for one that is refused until it is a dead letter."""
    options: dict[str, Any] = {"type": "shared", "start": "earliest", "redeliveries": 1, "backoff_ms": 1}
    seen: set[int] = set()
    refused = 0
    with client.consumer(ORDERS, "billing", **options) as consumer:
        while len(seen) < MESSAGES or refused < 2:
            message = consumer.receive(timeout=30)
            number = message.json()["order"]
            seen.add(number)
            if number == POISON:
                consumer.nack(message, reason="no price")
                refused += 1
            elif number % 2 == 0:
                consumer.ack(message)
        consumer.flush()


def fill(broker: RunningBroker) -> None:
    os.environ["PENSTOCK_URL"] = broker.url
    command("topic", "create", ORDERS, "--partitions", "2")
    Path("payment.json").write_text(json.dumps(SCHEMA))
    command("schema", "register", f"{PAYMENTS}-value", "payment.json")
    command("topic", "create", PAYMENTS)
    command("topic", "schema", "set", PAYMENTS, "--policy", "enforce", "--payloads", "--default", "latest")
    with penstock.connect(broker.url) as client:
        produce(client, 0, MESSAGES)
        client.publish(PAYMENTS, '{"cents": 1999}')
        consume_some(client)
    while ORDERS not in command("dlq", "ls"):
        time.sleep(0.1)


def stream_once(data: str, checkpoint: str) -> None:
    import penstock.spark

    spark = penstock.spark.session(quick=True)
    rows = spark.readStream.format("penstock").options(path=data, subscribe=ORDERS, startingOffsets="earliest").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


def replace_in_json(folder: Path, before: str, after: str) -> None:
    """Replace a directory's name in all JSON files: an archive notes where its log and its tables are."""
    for file in folder.rglob("*.json"):
        file.write_text(file.read_text().replace(before, after))


def make(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with RunningBroker(data=Path("data").absolute()) as broker:
            fill(broker)
        command("archive", ORDERS, "--data", "data", "--warehouse", "lake", "--once")
        stream_once("data", "checkpoint")
        replace_in_json(Path("lake"), str(Path.cwd()), HERE)
        with tarfile.open(archive, "w:xz") as packed:
            for name in ("data", "lake", "checkpoint"):
                packed.add(name)
    print(archive, archive.stat().st_size)


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
