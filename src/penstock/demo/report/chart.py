"""The revenue chart for a terminal: a column for every hour, of eighths of a character."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from penstock.demo.base.orders import BEGIN, HOURS
from penstock.demo.lake.revenue import Revenue
from penstock.demo.report.plot import DAY

ROWS: Final = 8
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_PLAIN: Final = " ......##"
"""Characters for terminals without block characters: `#` for a nearly full cell, a dot for less."""
_ASCII: Final = str.maketrans({"€": " ", "└": "|"})
_MARGIN: Final = 8
_LONG: Final = 100_000
"""The sum in euros from which labels are in thousands."""


def lines(revenue: Revenue, *, plain: bool = False) -> list[str]:
    """Return the lines from the top; no line is wider than 80 characters."""
    blocks = f"{_PLAIN}#" if plain else _EIGHTHS
    highest = max(1, int(revenue.cents.max()))
    heights = [round(int(cent) * ROWS * 8 / highest) for cent in revenue.cents]
    found = [_label(row, highest) + _row(heights, row, blocks) for row in reversed(range(ROWS))]
    drawn = [each.rstrip() for each in (*found, _days())]
    return [line.translate(_ASCII) for line in drawn] if plain else drawn


def _row(heights: list[int], row: int, blocks: str) -> str:
    return "".join(blocks[max(0, min(8, height - row * 8))] for height in heights)


def _label(row: int, highest: int) -> str:
    """Return the label of a line: a sum at the top, and in the middle."""
    if row not in (ROWS - 1, ROWS // 2 - 1):
        return " " * _MARGIN
    euros = highest * (row + 1) / ROWS / 100
    text = f"€{euros:,.0f}" if euros < _LONG else f"€{euros / 1000:,.0f}k"
    return f"{text:>{_MARGIN - 1}} "


def _days() -> str:
    names = (f"{BEGIN + timedelta(hours=day):%a %d %b}" for day in range(0, HOURS, DAY))
    return " " * _MARGIN + "".join(f"{f'└ {name}':<{DAY}}" for name in names)
