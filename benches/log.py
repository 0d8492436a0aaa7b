"""Targets of the log on any machine, as ratios taken in one run. `./dev bench` runs this."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.report import report

from penstock.bench import Figure, disk, kernels, start

TARGETS = {
    "scan and verify, 100 B": 0.15,
    "scan and verify, 1 KiB": 0.35,
    "scan and verify, 64 KiB": 0.50,
    "scan without verifying, 100 B": 0.45,
    "stamp, 100 B": 0.5,
    "stamp, 1 KiB": 0.5,
    "stamp, 64 KiB": 0.5,
    "encode a block, 100 B": 0.5,
    "encode a block, 1 KiB": 0.5,
    "encode a block, 64 KiB": 0.5,
    "durable append, 100 B": 0.6,
    "durable append, 1 KiB": 0.6,
    "64 appenders": 10.0,
    "recover": 1 / 1.5,
    "memory of scanning": 1.0,
    "open a data directory": 1.0,
    "import penstock": 1.0,
    "penstock --help": 1.0,
    "load the cached kernels": 1.0,
}
"""The ratio that a figure whose name begins so must reach; larger is better."""


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    yield from start.measure(folder, megabytes=32 if quick else 1024, topics=20 if quick else 1000)
    yield from kernels.measure(megabytes=4 if quick else 256, rounds=1 if quick else 5)
    yield from disk.measure(folder, megabytes=4 if quick else 256, seconds=0.3 if quick else 4.0)


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        return report("benches/log.py", measure(Path(scratch), quick=quick), TARGETS, quick=quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
