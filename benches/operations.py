"""The cost of monitoring that is allowed on any machine, as ratios taken in one run. `./dev bench` runs this."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.report import report

from penstock.bench import Figure, operations

TARGETS = {
    "publish while /metrics is scraped": 0.95,
    "publish while the admin API is asked": 0.95,
    "scrape of": 1.0,
    "longest round trip while scraped": 1.0,
}


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    messages, rounds, topics = (20_000, 1, 50) if quick else (3_000_000, 5, 1000)
    yield from operations.measure(folder, messages=messages, rounds=rounds, topics=topics)


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        return report("benches/operations.py", measure(Path(scratch), quick=quick), TARGETS, quick=quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
