"""The pictures: what is highest is highest, and nothing is wider than a terminal."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from penstock.demo.base.orders import HOURS
from penstock.demo.lake.revenue import Revenue
from penstock.demo.report import chart, plot


def revenue(**hours: int) -> Revenue:
    cents = np.zeros(HOURS, np.int64)
    for hour, amount in hours.items():
        cents[int(hour.removeprefix("at"))] = amount
    return Revenue((cents > 0).astype(np.int64), cents)


def test_the_chart_is_no_wider_than_a_terminal_and_says_which_day_it_is() -> None:
    drawn = chart.lines(revenue(at71=100_000_00))
    assert all(len(line) <= 80 for line in drawn)
    assert "Mon 02 Mar" in drawn[-1]
    assert drawn[0].startswith("  €100k ")
    assert chart.lines(revenue(at71=99_999_00))[0].startswith("€99,999 ")


def test_only_the_best_hour_reaches_the_top() -> None:
    drawn = chart.lines(revenue(at0=800, at10=400, at20=50))
    assert drawn[0].rstrip().endswith("█")
    assert drawn[0][8] == "█"
    assert drawn[4][18] == "█"
    assert drawn[3][18:19] in ("", " ")
    assert drawn[7][28] != " "


def test_a_chart_without_any_revenue_is_empty() -> None:
    assert "█" not in "".join(chart.lines(revenue()))


def test_a_terminal_without_blocks_gets_plain_characters() -> None:
    drawn = chart.lines(revenue(at0=100, at1=40), plain=True)
    assert "".join(drawn).isascii()
    assert drawn[0][8] == "#"


def test_the_plot_is_a_png_of_its_size(tmp_path: Path) -> None:
    plot.draw(revenue(at12=100, at36=200, at60=300), 1000, tmp_path / "plot.png")
    data = (tmp_path / "plot.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", data[16:24]) == (1500, 630)


def test_a_plot_of_nothing_can_be_drawn(tmp_path: Path) -> None:
    plot.draw(revenue(), 0, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0


def test_the_busiest_hour_of_each_day_is_named() -> None:
    assert plot.peaks(revenue(at12=100, at13=99, at36=200, at60=300)) == [12, 36, 60]
