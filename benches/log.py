"""The speeds the log must reach on any machine, as ratios taken in one run. `./dev bench` runs this.

Exit code 1 if one is missed. `--quick` measures too little to judge, and only shows that everything runs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.bench import Figure, disk, kernels, start
from penstock.cli.output import table

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


def target(figure: Figure) -> float | None:
    return next((goal for name, goal in TARGETS.items() if figure.name.startswith(name)), None)


def missed(figure: Figure) -> bool:
    goal = target(figure)
    return goal is not None and figure.ratio is not None and figure.ratio < goal


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        figures = []
        for figure in measure(Path(scratch), quick=quick):
            sys.stderr.write(f"  {figure.name}\n")
            figures.append(figure)
    columns = ("what", "result", "unit", "compared with", "its result", "ratio", "wanted", "")
    rows = [
        (f.name, f.value, f.unit, f.reference, f.reference_value, f.ratio, target(f), "MISSED" if missed(f) else "ok")
        for f in figures
    ]
    table("benches/log.py", columns, rows)
    return 1 if not quick and any(missed(figure) for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
