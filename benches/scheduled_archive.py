"""The time of a scheduled archive of a few new messages, beside the start of a Spark session that does nothing.

Each is a process of its own, as a timer would start it, and they take turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from penstock.bench import Figure
from penstock.bench.kernels import sample
from penstock.bench.spark import CORES, TOPIC
from penstock.bench.stream import best_in_turns
from penstock.record.block import Draft
from penstock.record.kernels import kernel_cache
from penstock.storage.store import Store

_MASTER: Final = f"local[{CORES}]"
_MESSAGES: Final = 3
_BARE: Final = f"import penstock.spark; penstock.spark.session(master={_MASTER!r}, quick=True).stop()"
"""The quickest session that there is: with kept classes, and compiled as little as that of the archive."""


def measure(folder: Path, *, rounds: int = 3) -> Iterator[Figure]:
    kernel_cache.load_all()
    data, lake = folder / "data", folder / "lake"
    with Store.open(data, create=True) as store:
        store.create_topic(TOPIC)
    sides: dict[str, Callable[[], float]] = {
        "local": partial(_archived, data, lake, "local"),
        "spark": partial(_archived, data, lake, "spark"),
        "session": lambda: _speed([sys.executable, "-c", _BARE]),
    }
    best = {name: 1 / speed for name, speed in best_in_turns(sides, rounds).items()}
    for engine in ("local", "spark"):
        yield _beside(f"archive {_MESSAGES} messages, engine {engine}", best[engine], "a bare session", best["session"])


def _archived(data: Path, lake: Path, engine: str) -> float:
    with Store.open(data) as store:
        store.append(TOPIC, Draft.of([sample(200)] * _MESSAGES))
    words = ["archive", "--data", str(data), "--warehouse", str(lake), "--once", "--engine", engine]
    return _speed([sys.executable, "-m", "penstock", *words])


def _speed(command: list[str]) -> float:
    """Return runs a second of a process, from its start to its end."""
    began = time.perf_counter()
    subprocess.run(command, check=True, env=os.environ | {"SPARK_MASTER": _MASTER}, capture_output=True)
    return 1 / (time.perf_counter() - began)


def _beside(name: str, seconds: float, reference: str, bare: float) -> Figure:
    """Return a figure whose ratio is above 1 if it is quicker than the bare start."""
    return Figure(name=name, value=seconds, unit="s", reference=reference, reference_value=bare, ratio=bare / seconds)
