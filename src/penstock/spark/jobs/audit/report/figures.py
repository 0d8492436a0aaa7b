"""The figures of the audit's page, each with its numbers as a table. Also the functions that write sizes and durations
as text."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from penstock.spark.jobs.audit.report.plots import NARROW, WIDE, Bars, Series, draw, legend, limit_series

Report = dict[str, Any]


def figures(report: Report) -> str:
    """Return the HTML of the plots: volume over time, payload sizes, and with an archive the times from publish to
    archive. A topic has the same colour in all plots."""
    topics = sorted(report["topics"], key=lambda topic: -topic["messages"])
    plots = [
        _figure(_volume(report["volume"], [topic["topic"] for topic in topics])),
        _figure(_doublings(topics, "sizes", "Payload sizes", "messages, by size; each step doubles it", size_text)),
    ]
    if any(topic["latency_ms"] for topic in topics):
        text = f"messages, by time; each step doubles it{_latency_facts(topics)}"
        plots.append(_figure(_doublings(topics, "latency_ms", "From publish to archive", text, span_text)))
    return f'<h2>Plots</h2>\n<div class="plots">\n{"".join(plots)}</div>\n'


def _figure(bars: Bars) -> str:
    rows = [(escape(hint), f"{total:,.0f}") for hint, total in zip(bars.hints, bars.totals, strict=True) if total > 0]
    numbers = table(("", bars.unit.capitalize()), rows, label=f"{bars.title}: numbers", numbers=(1,))
    kind = ' class="wide"' if bars.width == WIDE else ""
    return (
        f"<figure{kind}><figcaption><h3>{escape(bars.title)}</h3>"
        f'<span class="soft">{escape(bars.description)}</span></figcaption>{legend(bars.series)}{draw(bars)}'
        f"<details><summary>Numbers</summary>{numbers}</details></figure>\n"
    )


def _volume(volume: Report, topics: Sequence[str]) -> Bars:
    count, width = volume["count"], volume["width_ms"]
    by_topic = {topic: [0.0] * count for topic in topics}
    for cell in volume["spans"]:
        by_topic[cell["topic"]][cell["span"]] += cell["messages"]
    starts = [volume["since_ms"] + number * width for number in range(count)]
    return Bars(
        title="Volume over time",
        description=f"messages in spans of {span_text(width)}, by the time of publish (UTC)",
        labels=[_moment(start, width) for start in starts],
        hints=[_moment(start, 0) for start in starts],
        series=limit_series([Series(topic, values) for topic, values in by_topic.items()]),
    )


def _doublings(topics: Sequence[Report], name: str, title: str, text: str, show: Callable[[float], str]) -> Bars:
    counts = {topic["topic"]: _buckets(topic[name]) for topic in topics}
    edges = _filled({edge for steps in counts.values() for edge in steps})
    return Bars(
        title=title,
        description=text,
        labels=[show(low) for low, _ in edges],
        hints=[f"{show(low)} to {show(stop)}" for low, stop in edges],
        series=limit_series([Series(topic, [steps.get(edge, 0) for edge in edges]) for topic, steps in counts.items()]),
        width=NARROW,
    )


def _buckets(histogram: Report | None) -> dict[tuple[int, int], int]:
    return {(bucket["from"], bucket["to"]): bucket["count"] for bucket in (histogram or {"buckets": ()})["buckets"]}


def _filled(edges: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the buckets from the lowest to the highest, each twice as wide as the one before. Buckets without messages
    are included, so that the plot's axis has no jumps."""
    steps = [low.bit_length() for low, _ in edges]
    return [(1 << step >> 1, 1 << step) for step in range(min(steps), max(steps) + 1)] if steps else []


def _latency_facts(topics: Sequence[Report]) -> str:
    shown = [topic for topic in topics if topic["latency_ms"]][:3]
    return "".join(
        f" · {topic['topic']}: median {span_text(topic['latency_ms']['median'])},"
        f" 99 % within {span_text(topic['latency_ms']['p99'])}"
        for topic in shown
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, label: str, numbers: Sequence[int] = ()) -> str:
    """Return an HTML table. The cells of `rows` must be HTML already, with all text escaped. The first cell of a row is
    its heading; `numbers` are the indexes of the columns with numbers."""

    def kind(column: int) -> str:
        return ' class="n"' if column in numbers else ' class="what"' if heads[column] == "What" else ""

    head = "".join(f'<th scope="col"{kind(column)}>{name}</th>' for column, name in enumerate(heads))
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f"<td{kind(column)}>{cell}</td>" for column, cell in enumerate(row[1:], 1))
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def span_text(ms: float) -> str:
    """Return a duration in the largest unit that it fills: 250 ms, 1.5 s, 3 h."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.0f} ms"


def _moment(unix_ms: int, width_ms: int) -> str:
    """Return a time (UTC) as text, as exactly as bars of that width need it; with the width 0 to the millisecond."""
    try:
        time = dt.datetime.fromtimestamp(unix_ms / 1000, tz=dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{unix_ms} ms"
    below = f".{unix_ms % 1000:03d}"
    if width_ms == 0:
        return time.strftime("%Y-%m-%d %H:%M:%S") + (below if unix_ms % 1000 else "")
    if width_ms >= 86_400_000:
        return time.strftime("%Y-%m-%d")
    if width_ms >= 3_600_000:
        return time.strftime("%m-%d %H:%M")
    return time.strftime("%H:%M:%S") if width_ms >= 1000 else time.strftime("%M:%S") + below
