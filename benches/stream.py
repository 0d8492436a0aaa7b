"""Targets of streams on any machine, as ratios taken in one run. `./dev bench` runs this.

Redis and NATS are measured where their servers are installed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.report import report

from benches import rivals
from penstock.bench import Figure, stream

TARGETS = {
    "durable publish, 100 B, beside Redis by redis-py": 10.0,
    "durable publish, 1 KiB, beside Redis by redis-py": 5.0,
    "durable publish, 100 B, beside JetStream by nats-py": 3.0,
    "durable publish, 1 KiB, beside JetStream by nats-py": 2.0,
    "publish one message at a time, 1,024 in flight, beside Redis by redis-py": 2.0,
    "catch-up read as Arrow, 100 B": 1.0,
    "catch-up read as Python objects, 100 B": 1.0,
    "end-to-end latency at 1,000 messages/s, p50": 1.0,
    "end-to-end latency at 1,000 messages/s, p99": 1.0,
    "broker memory": 1.0,
    "start with": 1.0,
    "memory with": 1.0,
}


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    messages, rounds, seconds, topics = (10_000, 1, 0.3, 200) if quick else (1_000_000, 3, 10.0, 10_000)
    servers = [server for server in rivals.RIVALS if server.available()]
    yield from stream.measure(folder, messages=messages, rounds=rounds, seconds=seconds, topics=topics, rivals=servers)


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        return report("benches/stream.py", measure(Path(scratch), quick=quick), TARGETS, quick=quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
