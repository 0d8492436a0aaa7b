"""Bar charts as SVG, written here: no script, font or picture from elsewhere. Every text in them is escaped.

Colours come from the page's style sheet by class, so that a plot is readable in light and in dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDE: Final = 1080
NARROW: Final = 530
"""Width of a narrow plot. Like `WIDE` it is in units of the drawing and about as large as the plot's width in pixels,
so that letters have the same size in all plots."""
HEIGHT: Final = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 14, 34
_LABEL_CHARS: Final = 6.6
"""Width of a letter of the labels, in units of the drawing."""
SERIES_MAX: Final = 6
"""Most series of a plot, one for each colour that can be told apart. Of more, the last is the sum of all others."""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A bar chart: one bar for each label, in which the values of all series are stacked."""

    title: str
    description: str
    labels: Sequence[str]
    """Text below each bar. Only as many are drawn as there is room for."""
    hints: Sequence[str]
    """Tooltip of each bar, before its numbers."""
    series: Sequence[Series]
    unit: str = "messages"
    width: int = WIDE

    @property
    def totals(self) -> list[float]:
        return [sum(series.values[bar] for series in self.series) for bar in range(len(self.labels))]


def limit_series(series: Sequence[Series]) -> list[Series]:
    """Return at most `SERIES_MAX` series: the first ones, and if there are more the sum of the others as the last.
    Series without values are left out."""
    used = [one for one in series if any(one.values)]
    if len(used) <= SERIES_MAX:
        return used
    kept, rest = used[: SERIES_MAX - 1], used[SERIES_MAX - 1 :]
    others = [sum(values) for values in zip(*(one.values for one in rest), strict=True)]
    return [*kept, Series(f"{len(rest)} others", others)]


def ticks(largest: float, count: int = 4) -> list[float]:
    """Return the marks of an axis: round numbers in equal steps, from 0 to the first that is not below `largest`. There
    are about `count` steps."""
    if largest <= 1:
        return [0.0, 1.0]
    rough = largest / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999999)
    if step < 1:
        step = 1.0
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]


def short_number(value: float) -> str:
    """Return a number with three digits at most: 1.5k, 20M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def draw(bars: Bars) -> str:
    """Return the chart as SVG."""
    marks = ticks(max(bars.totals, default=0))
    pieces = [_grid(marks, bars.width), _columns(bars, marks[-1]), _labels(bars.labels, bars.width)]
    return (
        f'<svg viewBox="0 0 {bars.width} {HEIGHT}" role="img"'
        f' aria-label="{escape(bars.title)}: {escape(bars.description)}">{"".join(pieces)}</svg>'
    )


def legend(series: Sequence[Series]) -> str:
    """Return the legend of colours; empty for a single series."""
    if len(series) < 2:
        return ""
    items = "".join(f'<li><i class="s{number}"></i>{escape(one.name)}</li>' for number, one in enumerate(series))
    return f'<ul class="legend">{items}</ul>'


def _across(width: int) -> float:
    return width - _LEFT - _RIGHT


def _height() -> float:
    return HEIGHT - _TOP - _BOTTOM


def _grid(marks: Sequence[float], width: int) -> str:
    lines = []
    for mark in marks:
        y = _TOP + _height() * (1 - mark / marks[-1])
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short_number(mark)}</text>'
        )
    return "".join(lines)


def _columns(bars: Bars, top: float) -> str:
    step = _across(bars.width) / max(1, len(bars.labels))
    gap = min(3.0, step * 0.18)
    return "".join(_column(bars, bar, _LEFT + step * bar + gap / 2, step - gap, top) for bar in _non_empty_bars(bars))


def _non_empty_bars(bars: Bars) -> list[int]:
    return [bar for bar, total in enumerate(bars.totals) if total > 0]


def _column(bars: Bars, bar: int, x: float, width: float, top: float) -> str:
    """Return the SVG of one bar: a piece for each series, from the bottom up. Every piece is at least 0.75 units high,
    so that it can be seen."""
    y, pieces = _TOP + _height(), []
    for number, series in enumerate(bars.series):
        if series.values[bar] > 0:
            height = max(0.75, _height() * series.values[bar] / top)
            y -= height
            pieces.append(
                f'<rect class="s{number}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'
            )
    return f"<g><title>{escape(_hint(bars, bar))}</title>{''.join(pieces)}</g>"


def _hint(bars: Bars, bar: int) -> str:
    total = f"{bars.hints[bar]}: {bars.totals[bar]:,.0f} {bars.unit}"
    if len(bars.series) < 2:
        return total
    parts = [f"{series.name} {series.values[bar]:,.0f}" for series in bars.series if series.values[bar] > 0]
    return f"{total} ({', '.join(parts)})"


def _labels(labels: Sequence[str], width: int) -> str:
    """Return the SVG of labels, each below the middle of its bar. Labels that would overlap are left out."""
    step = _across(width) / max(1, len(labels))
    longest = max((len(label) for label in labels), default=0) + 2
    half = longest * _LABEL_CHARS / 2
    drawn, taken = [], 0.0
    for bar in range(0, len(labels), math.ceil(2 * half / step)):
        x = min(max(_LEFT + step * (bar + 0.5), half), width - half)
        if x - half >= taken:
            drawn.append(_label(labels[bar], x))
            taken = x + half
    return "".join(drawn)


def _label(text: str, x: float) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{HEIGHT - _BOTTOM + 20}" text-anchor="middle">{escape(text)}</text>'
