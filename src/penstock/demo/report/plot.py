"""Revenue per hour as a picture: bars over three days, with the busiest hour of each day named."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.demo.base.orders import BEGIN, HOURS
from penstock.demo.lake.revenue import Revenue

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK: Final = "#22303c"
_FAINT: Final = "#8a97a3"
_WATER: Final = "#2f7f9e"
_PEAK: Final = "#e07a3f"
_SIZE: Final = (10.0, 4.2)
_DOTS: Final = 150
_PLACE: Final = (0.07, 0.17, 0.915, 0.66)
"""The position of the axes in the picture: left, bottom, width, height."""
DAY: Final = 24


def draw(revenue: Revenue, events: int, file: Path) -> None:
    """Draw the revenue per hour into a PNG file. No window is opened, and no display is needed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, dpi=_DOTS)
    FigureCanvasAgg(figure)
    axes = figure.add_axes(_PLACE)
    _bars(axes, revenue)
    _frame(axes, revenue)
    paid = int(revenue.orders.sum())
    axes.set_title("Revenue per hour", loc="left", fontsize=15, fontweight="bold", color=_INK, pad=26)
    told = f"{paid:,} paid orders among {events:,} events, summed by SQL over the log"
    axes.text(0, 1.05, told, fontsize=9.5, color=_FAINT, transform=axes.transAxes)
    figure.savefig(file)


def peaks(revenue: Revenue) -> list[int]:
    """Return the hour of each day with the highest revenue, counted from `BEGIN`."""
    days = range(0, HOURS, DAY)
    return [day + int(revenue.cents[day : day + DAY].argmax()) for day in days]


def _bars(axes: Axes, revenue: Revenue) -> None:
    euros = revenue.cents / 100
    busiest = peaks(revenue)
    colours = [_PEAK if hour in busiest else _WATER for hour in range(HOURS)]
    axes.bar(range(HOURS), euros, width=0.82, align="edge", color=colours, zorder=2)
    for hour in busiest:
        text = f"{hour % DAY:02}:00\n€{euros[hour]:,.0f}"
        axes.annotate(
            text,
            (hour + 0.4, euros[hour]),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            color=_PEAK,
            fontweight="bold",
        )


def _frame(axes: Axes, revenue: Revenue) -> None:
    axes.set_xlim(-0.4, HOURS + 0.2)
    axes.set_ylim(0, float(revenue.cents.max()) / 100 * 1.2 or 1.0)
    axes.set_xticks(range(0, HOURS + 1, 6), [f"{hour % DAY:02}:00" for hour in range(0, HOURS + 1, 6)])
    axes.yaxis.set_major_formatter(lambda euros, _: f"€{euros:,.0f}")
    axes.tick_params(colors=_FAINT, labelsize=8.5, length=0)
    axes.grid(axis="y", color="#e3e8ec", linewidth=0.8, zorder=0)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color("#c9d1d8")
    for day in range(0, HOURS, DAY):
        name = f"{BEGIN + timedelta(hours=day):%a %d %b}"
        axes.text(day + DAY / 2, -0.14, name, ha="center", va="top", transform=axes.get_xaxis_transform(), color=_INK)
        if day:
            axes.axvline(day, color="#c9d1d8", linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
