"""An audit as one HTML page: it loads nothing and runs no script.

It is made of the fields of the JSON report. Every text from a log or a table goes through `escape`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

from penstock import __version__
from penstock.spark.jobs.audit.report.figures import figures, size_text, table

_ROWS_MAX: Final = 1000
"""Most rows of one table, so that a page stays readable and a browser can show it. The JSON report has all rows."""
_HASHES: Final = (
    "Hash of a message: HighwayHash-64 of its id, its offset and the HighwayHash-64 of its payload (zeros where the"
    " archive keeps no payloads); of a day: their sum modulo 2^64. The order of messages does not matter to it."
    " All other fields are compared in the same way."
)


def page(report: dict[str, Any]) -> str:
    """Return the whole page, for the dict of `fields.as_dict`."""
    style = files("penstock.spark.jobs.audit.report").joinpath("page.css").read_text(encoding="utf-8")
    title = f"Audit of {report['data']}"
    parts = [
        _header(report),
        _facts(report),
        _findings(report["findings"]),
        _notes(report["notes"]),
        _topics(report["topics"]),
        figures(report),
        _archive(report),
        _partitions(report["topics"]),
        _footer(report),
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(parts)}</main>\n</body>\n</html>\n"
    )


def _header(report: dict[str, Any]) -> str:
    count = report["findings"]["total"]
    verdict = "clean" if report["clean"] else f"{count:,} finding{'s' if count != 1 else ''}"
    kind = "good" if report["clean"] else "bad"
    where = f"<code>{escape(report['data'])}</code> · {escape(str(report['began']))} · {report['seconds']:.1f} s"
    return (
        f'<header>\n<h1>Audit</h1><span class="verdict {kind}">{verdict}</span>\n'
        f'<p class="where">{where}</p>\n</header>\n'
    )


def _facts(report: dict[str, Any]) -> str:
    summary = report["summary"]
    facts = [
        ("Messages", f"{summary['messages']:,}"),
        ("Bytes", size_text(summary["bytes"])),
        ("Topics", f"{summary['topics']:,}"),
        ("Partitions", f"{summary['partitions']:,}"),
        ("Segments", f"{summary['segments']:,}"),
        ("Lost", f"{summary['lost']:,}"),
    ]
    facts += _archive_facts(report)
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{items}</dl>\n'


def _archive_facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    if report["checked"]["archive"] is None:
        return []
    partitions = [partition for topic in report["topics"] for partition in topic["partitions"]]
    compared = sum(partition["archive"]["messages"] for partition in partitions if partition["archive"])
    lag = sum(
        partition["archive"]["lag"] if partition["archive"] else partition["next_offset"] - partition["first_offset"]
        for partition in partitions
    )
    return [("Compared", f"{compared:,}"), ("Lag", f"{lag:,}")]


# tables


def _text(value: object) -> str:
    """Return the HTML of a cell: a number with separators, a text escaped, a dash for None."""
    if value is None:
        return '<span class="soft">–</span>'
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _findings(findings: dict[str, Any]) -> str:
    if not findings["total"]:
        return '<h2>Findings</h2>\n<p class="soft">None: all that was looked at is as it should be.</p>\n'
    kinds = ", ".join(f"{escape(kind)} {count:,}" for kind, count in findings["by_kind"].items())
    rows = [
        (
            f'<span class="tag bad">{escape(finding["kind"])}</span>',
            *(_text(finding[name]) for name in ("topic", "partition", "offset", "count", "position")),
            _what(finding),
        )
        for finding in findings["told"][:_ROWS_MAX]
    ]
    heads = ("Kind", "Topic", "Partition", "Offset", "Messages", "Position", "What")
    rest = _more(findings["total"] - len(rows))
    return (
        f'<h2>Findings</h2>\n<p class="soft">{kinds}</p>\n'
        f"{table(heads, rows, label='Findings', numbers=(2, 3, 4, 5))}{rest}"
    )


def _more(count: int) -> str:
    return f'<p class="soft">… and {count:,} more.</p>\n' if count > 0 else ""


def _what(finding: dict[str, Any]) -> str:
    segment = f' <code class="soft">{escape(finding["segment"])}</code>' if finding["segment"] else ""
    return f"{escape(finding['what'])}{segment}"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<h2>Worth knowing</h2>\n<ul class="notes">{items}</ul>\n'


def _topics(topics: Sequence[dict[str, Any]]) -> str:
    heads = ("Topic", "Messages", "Size", "Payload, median", "Payload, largest", "First", "Last", "Schemas")
    rows = [
        (
            escape(topic["topic"]),
            f"{topic['messages']:,}",
            size_text(topic["bytes"]),
            _size(topic["sizes"]["median"]),
            _size(topic["sizes"]["max"]),
            _time(topic["first_time"]),
            _time(topic["last_time"]),
            _text(len(topic["schemas"])),
        )
        for topic in topics
    ]
    return f"<h2>Topics</h2>\n{table(heads, rows, label='Topics', numbers=(1, 2, 3, 4, 7))}"


def _time(text: str | None) -> str:
    """Return the HTML of an ISO time, cut to the second and with a space instead of `T`; a dash for None."""
    return _text(None if text is None else text.replace("T", " ").partition(".")[0])


def _size(value: int | None) -> str:
    return _text(None) if value is None else size_text(value)


def _partitions(topics: Sequence[dict[str, Any]]) -> str:
    names = ("messages", "segments", "damaged", "missing", "out_of_order", "producers")
    heads = ["Topic", "Partition", "Offsets", *(name.replace("_", " ").capitalize() for name in names), "Quarantine"]
    rows = [
        (
            escape(topic["topic"]),
            f"{partition['partition']}",
            f"{partition['first_offset']:,} – {partition['next_offset']:,}",
            *(f"{partition[name]:,}" for name in names),
            f"{partition['quarantine']['files']:,}",
        )
        for topic in topics
        for partition in topic["partitions"]
    ]
    more = _more(len(rows) - _ROWS_MAX)
    return f"<h2>Partitions</h2>\n{table(heads, rows[:_ROWS_MAX], label='Partitions', numbers=range(1, 10))}{more}"


def _archive(report: dict[str, Any]) -> str:
    if report["checked"]["archive"] is None:
        return ""
    heads = ("Topic", "Partition", "Table", "Day", "In the log", "In the archive", "Hash", "Verdict")
    rows = [
        _day(topic["topic"], partition, day)
        for topic in report["topics"]
        for partition in topic["partitions"]
        if partition["archive"]
        for day in partition["archive"]["days"]
    ]
    shown = sorted(rows, key=lambda row: "good" in row[-1])[:_ROWS_MAX] if len(rows) > _ROWS_MAX else rows
    checked = report["checked"]["archive"]
    where = f"<code>{escape(checked['warehouse'])}</code> ({escape(checked['format'])})"
    return (
        f'<h2>Log and archive</h2>\n<p class="soft">{where}</p>\n'
        f"{table(heads, shown, label='Log and archive, day by day', numbers=(1, 4, 5))}{_more(len(rows) - len(shown))}"
    )


def _day(topic: str, partition: dict[str, Any], day: dict[str, Any]) -> tuple[str, ...]:
    archive = partition["archive"]
    word, kind = ("equal", "good") if day["equal"] else ("differs", "bad")
    hashes = dict.fromkeys((day["log"]["hash"], day["archive"]["hash"]))
    if day["equal"] and not archive["payloads"]:
        word = "equal, without payloads"
    return (
        escape(topic),
        f"{partition['partition']}",
        escape(archive["table"]),
        escape(day["day"]),
        f"{day['log']['messages']:,}",
        f"{day['archive']['messages']:,}",
        "<br>".join(f"<code>{escape(text)}</code>" for text in hashes),
        f'<span class="tag {kind}">{word}</span>',
    )


def _footer(report: dict[str, Any]) -> str:
    checked = report["checked"]
    looked = [
        "every checksum",
        "the order of ids",
        "the density of offsets",
        "every index entry",
        f"request numbers within each {checked['duplicates']}",
    ]
    looked += ["every payload against the schema it names"] if checked["schemas"] else []
    looked += ["the archive, by count and by hash"] if checked["archive"] else []
    hashes = f"<p>{escape(_HASHES)}</p>" if checked["archive"] else ""
    return f"<footer><p>Looked at: {', '.join(looked)}. Penstock {escape(__version__)}.</p>{hashes}</footer>\n"
