"""Targets of events over HTTP, as ratios taken in one run."""  # noqa: A005 - never a top-level module

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.report import report

from penstock.bench import Figure, http

TARGETS = {
    "durable publish over HTTP": 0.5,
    "SSE to 100 readers, read back": 1.0,
    "SSE to 100 readers, as it happens": 1.0,
}


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    requests, events, rounds = (640, 2_000, 1) if quick else (60_000, 50_000, 3)
    yield from http.measure(folder, requests=requests, events=events, rounds=rounds)


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        return report("benches/http.py", measure(Path(scratch), quick=quick), TARGETS, quick=quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
