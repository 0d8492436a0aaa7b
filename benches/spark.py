"""Targets of Spark with topics on any machine, as ratios taken in one run. `./dev bench` runs this."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.report import report

from benches import scheduled_archive, spark_growth
from penstock.bench import Figure
from penstock.bench import spark as spark_jobs

TARGETS = {
    "read, every column, verified": 0.7,
    "read, metadata alone": 1.5,
    "read, a type that one message in a hundred has": 2.0,
    "read, a tenth by offset": 5.0,
    "JSON to typed columns": 1.0,
    "archive to Delta": 1.0,
    "audit of a data directory": 0.6,
    "append to sink, median": 0.5,
    "read, rate of all": 0.9,
    # A few new messages by Spark may take half as long again as its session; without Spark, less than that.
    "archive 3 messages, engine local": 1.0,
    "archive 3 messages, engine spark": 0.67,
}

GROWTH = {
    "read, rate of 16 times": 0.9,
    "archive, rate of 16 times": 0.9,
    "audit, rate of 16 times": 0.9,
    "read, memory": 0.8,
    "archive, memory": 0.8,
    "audit, memory": 0.8,
    "read, live heap": 0.8,
    "archive, live heap": 0.8,
    "audit, live heap": 0.8,
}
"""Targets with `--growth`. Time within a tenth; memory is the operating system's to count, and it counts in steps."""


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    messages, rounds, seconds = (50_000, 1, 1.0) if quick else (4_000_000, 3, 20.0)
    yield from spark_jobs.measure(folder, messages=messages, rounds=rounds, seconds=seconds)
    yield from scheduled_archive.measure(folder / "scheduled", rounds=rounds)


def measure_growth(folder: Path, *, quick: bool) -> Iterator[Figure]:
    yield from spark_growth.measure(folder, messages=10_000 if quick else 1_000_000)


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        if "--growth" in arguments:
            return report("benches/spark.py --growth", measure_growth(Path(scratch), quick=quick), GROWTH, quick=quick)
        return report("benches/spark.py", measure(Path(scratch), quick=quick), TARGETS, quick=quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
