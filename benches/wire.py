"""Targets of the wire on any machine, as ratios taken in one run. `./dev bench` runs this.

`--reference 'node dist/index.js' --reference-port 8081` also measures the founding system's own server.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from benches.report import report

from penstock.bench import Figure, wire

TARGETS = {
    "parse headers in blocks": 1.0,
    "route live messages": 0.5,
    "beside the founding server": 5.0,
    "request answered by the broker, p50": 1 / 1.5,
    "request answered by a service, p50": 1 / 1.5,
}


def measure(*, quick: bool, founding: wire.ReferenceServer | None = None) -> Iterator[Figure]:
    messages, trips, rounds = (20_000, 200, 1) if quick else (1_000_000, 5000, 3)
    yield from wire.measure(messages=messages, trips=trips, rounds=rounds, founding=founding)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="too little to judge: only shows that everything runs")
    parser.add_argument("--reference", help="command that starts the founding server")
    parser.add_argument("--reference-port", type=int, default=8081, help="the TCP port it then listens on")
    given = parser.parse_args(arguments)
    founding = wire.ReferenceServer(command=given.reference, port=given.reference_port) if given.reference else None
    figures = measure(quick=given.quick, founding=founding)
    return report("benches/wire.py", figures, TARGETS, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
