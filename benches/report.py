"""Figures beside their targets. The exit code is 1 if one is missed.

`--quick` measures too little to judge, and only shows that everything runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from penstock.bench import Figure
from penstock.cli.output import table

Targets = Mapping[str, float]
"""The ratio that a figure whose name begins so must reach; larger is better."""


def target(figure: Figure, targets: Targets) -> float | None:
    return next((goal for name, goal in targets.items() if figure.name.startswith(name)), None)


def missed(figure: Figure, targets: Targets) -> bool:
    goal = target(figure, targets)
    return goal is not None and figure.ratio is not None and figure.ratio < goal


def report(title: str, measured: Iterable[Figure], targets: Targets, *, quick: bool) -> int:
    figures = []
    for figure in measured:
        sys.stderr.write(f"  {figure.name}\n")
        figures.append(figure)
    columns = ("what", "result", "unit", "compared with", "its result", "ratio", "wanted", "")
    rows = [
        (
            f.name,
            f.value,
            f.unit,
            f.reference,
            f.reference_value,
            f.ratio,
            target(f, targets),
            "MISSED" if missed(f, targets) else "ok",
        )
        for f in figures
    ]
    table(title, columns, rows)
    return 1 if not quick and any(missed(figure, targets) for figure in figures) else 0
