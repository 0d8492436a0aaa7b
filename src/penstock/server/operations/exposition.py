"""Measurements as Prometheus reads them: text, one line a sample. Values in, text out; no clock and no broker.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from penstock.storage.base.metrics import Distribution

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Kind(StrEnum):
    COUNTER = "counter"
    """Only grows, from nothing when the broker starts."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One measurement: its name, what it is, and by what it is told apart."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()


Value = float | Distribution
Sample = tuple[tuple[str, ...], Value]
"""The values of a family's labels, in their order, and what was measured."""


def render(measured: Iterable[tuple[Family, Iterable[Sample]]]) -> bytes:
    """All of them, each with what it is about. A family without samples is named all the same."""
    return "".join(line for family, samples in measured for line in _lines(family, samples)).encode()


def _lines(family: Family, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {family.name} {_escaped(family.about)}\n# TYPE {family.name} {family.kind.value}\n"
    for values, value in samples:
        labels = _labels(family.labels, values) if values or family.labels else ""
        if isinstance(value, Distribution):
            yield from _buckets(family.name, labels, value)
        else:
            yield f"{family.name}{_braced(labels)} {number(value)}\n"


@lru_cache(maxsize=1024)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Remembered, since a topic has the same in every family."""
    return ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in zip(names, values, strict=True))


def _buckets(name: str, labels: str, found: Distribution) -> Iterator[str]:
    comma = "," if labels else ""
    for bound, count in zip((*map(number, found.bounds), "+Inf"), found.counts, strict=True):
        yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {count}\n'
    yield f"{name}_sum{_braced(labels)} {number(found.total)}\n{name}_count{_braced(labels)} {found.count}\n"


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def number(value: float) -> str:
    """Whole numbers without a point, others as exactly as they are."""
    if isinstance(value, int):
        return str(int(value))
    return str(int(value)) if value == int(value) else repr(float(value))
