"""The report: fields that scripts rely on, and a page that loads nothing, runs nothing, and shows all results."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.jobs.data_kit import archived, audited, flip, make_data, segments
from tests.spark.log_kit import ORDERS

from penstock.spark.jobs.audit.findings import FindingKind
from penstock.spark.jobs.audit.inventory import LogSnapshot, time_spans
from penstock.spark.jobs.audit.report.fields import as_dict
from penstock.spark.jobs.audit.report.figures import size_text, span_text
from penstock.spark.jobs.audit.report.page import page
from penstock.spark.jobs.audit.report.plots import SERIES_MAX, Bars, Series, draw, limit_series, short_number, ticks
from penstock.spark.jobs.audit.run import AuditRequest
from penstock.spark.jobs.stats.groups import BY

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>&'
VOID = {"meta", "br", "line", "rect"}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the report of a log with a finding, a lag and an archive."""
    root = make_data(tmp_path_factory.mktemp("report") / "data")
    warehouse = archived(root, stop=60)
    flip(segments(root)[0], 20)
    return as_dict(audited(root, AuditRequest(against=warehouse)))


def spoiled(value: Any) -> Any:
    """Return a report with every text replaced by a harmful one."""
    match value:
        case dict():
            return {key: spoiled(each) for key, each in value.items()}
        case list():
            return [spoiled(each) for each in value]
        case str():
            return HOSTILE
        case _:
            return value


class Reader(HTMLParser):
    """A parser of a page's tags and text that checks the order of closing tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


# JSON


def test_the_report_is_json_and_has_the_fields_that_the_page_of_the_manual_names(report: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report)) == report
    assert list(report) == [
        "version", "data", "began", "seconds", "clean", "checked", "summary", "topics", "volume", "findings", "notes",
    ]  # fmt: skip
    assert report["summary"]["messages"] == 399
    assert report["summary"]["lost"] == 1
    assert report["findings"]["by_kind"] == {"damaged": 1}
    assert report["findings"]["told"][0]["topic"] == str(ORDERS)


MANUAL = (Path(__file__).parents[5] / "docs" / "jobs.md").read_text()


def rows_below(heading: str) -> list[str]:
    """Return the first column of the tables of a section of the manual, without their heads."""
    section = re.split(r"^#{2,3} ", MANUAL.split(f"{heading}\n", 1)[1], flags=re.MULTILINE)[0]
    return re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)


def names_in(value: Any) -> set[str]:
    """Return every name of a field, however deep."""
    match value:
        case dict():
            return {*value, *(name for each in value.values() for name in names_in(each))}
        case list():
            return {name for each in value for name in names_in(each)}
        case _:
            return set()


def test_every_field_kind_and_group_is_in_the_manual(report: dict[str, Any]) -> None:
    fields = rows_below("### The report")
    assert fields[: len(report)] == list(report)
    assert fields[len(report) :] == [kind.value for kind in FindingKind]
    assert rows_below("## Stats") == list(BY)
    assert [name for name in names_in(report) if f"`{name}`" not in MANUAL] == []


def test_numbers_of_the_archive_are_by_day(report: dict[str, Any]) -> None:
    (partition,) = report["topics"][0]["partitions"]
    archive = partition["archive"]
    assert (archive["lag"], archive["equal"], archive["recovered"]) == (140, True, 1)
    assert sum(day["log"]["messages"] for day in archive["days"]) == 59
    assert all(re.fullmatch("[0-9a-f]{16}", day["archive"]["hash"]) for day in archive["days"])
    assert report["topics"][0]["latency_ms"]["count"] == 59


def test_the_volume_adds_up_to_the_messages(report: dict[str, Any]) -> None:
    assert sum(each["messages"] for each in report["volume"]["spans"]) == report["summary"]["messages"]
    assert report["volume"]["count"] <= 120


def test_a_report_of_an_empty_topic_has_nothing_and_says_so(tmp_path: Path) -> None:
    from penstock.storage.store import Store

    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(ORDERS)
    empty = as_dict(audited(tmp_path / "data"))
    assert empty["summary"]["messages"] == 0
    assert empty["topics"][0]["sizes"]["median"] is None
    assert "clean" in read(page(empty)).text


# the page


def test_the_page_shows_what_was_found(report: dict[str, Any]) -> None:
    text = read(page(report)).text
    assert "1 finding" in text
    assert "the checksum does not match" in text
    assert "not yet archived from offset 60 on (lag 140)" in text
    assert "From publish to archive" in text
    assert "equal" in text


def test_the_page_loads_nothing_and_runs_nothing(report: dict[str, Any]) -> None:
    text = page(report)
    reader = read(text)
    assert not reader.tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    assert not [name for name in reader.attributes if name.startswith("on") or name in ("href", "src", "style")]
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "@import" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_no_text_of_a_log_becomes_a_tag(report: dict[str, Any]) -> None:
    texts = ("data", "began", "topics", "volume", "findings", "notes")
    harmful = page(report | {name: spoiled(report[name]) for name in texts})
    reader = read(harmful)
    assert not reader.tags & {"script", "img"}
    assert "onerror" not in reader.attributes
    assert HOSTILE in reader.text


def test_a_topic_of_any_name_is_harmless_in_the_plots(report: dict[str, Any]) -> None:
    volume = report["volume"] | {"spans": [each | {"topic": HOSTILE} for each in report["volume"]["spans"]]}
    topics = [each | {"topic": HOSTILE} for each in report["topics"]]
    assert not read(page(report | {"volume": volume, "topics": topics})).tags & {"script", "img"}


def test_a_page_of_very_many_findings_shows_the_first_and_says_how_many_more(report: dict[str, Any]) -> None:
    told = report["findings"]["told"] * 5000
    text = read(page(report | {"findings": {"total": 20_000, "by_kind": {"damaged": 20_000}, "told": told}})).text
    assert text.count("the checksum does not match") == 1000
    assert "… and 19,000 more." in text


def test_every_picture_has_a_text_and_every_table_has_heads(report: dict[str, Any]) -> None:
    text = page(report)
    assert text.count("<svg") == text.count('role="img" aria-label="')
    assert text.count("<table") == text.count("<thead>")
    assert 'lang="en"' in text
    assert "prefers-color-scheme: dark" in text


# plots


@given(st.lists(st.floats(0, 1e15), min_size=1, max_size=30), st.text(max_size=20))
def test_a_drawing_is_well_formed_and_its_bars_are_inside(values: list[float], name: str) -> None:
    labels = [name] * len(values)
    bars = Bars(title=name, description=name, labels=labels, hints=labels, series=[Series(name, values)])
    drawn = draw(bars)
    if all(character.isprintable() for character in name):
        for bar in ET.fromstring(drawn).iter("rect"):
            x, y, width, height = (float(bar.attrib[each]) for each in ("x", "y", "width", "height"))
            assert 0 <= x <= x + width <= bars.width
            assert -1 <= y <= y + height <= 250


@given(st.floats(1e-3, 1e15))
def test_ticks_begin_at_nothing_and_reach_the_largest(largest: float) -> None:
    found = ticks(largest)
    assert found[0] == 0
    assert found[-1] >= largest * 0.999999
    assert 2 <= len(found) <= 7


def test_too_many_series_are_added_up_as_the_last() -> None:
    found = limit_series([Series(str(number), [1, 2]) for number in range(10)])
    assert len(found) == SERIES_MAX
    assert (found[-1].name, found[-1].values) == ("5 others", [5, 10])
    assert limit_series([Series("nothing", [0, 0])]) == []


def test_numbers_are_short() -> None:
    assert [short_number(value) for value in (0, 950, 1500, 2e6, 3.25e9)] == ["0", "950", "1.5k", "2M", "3.25G"]
    assert [size_text(value) for value in (0, 1023, 1536, 2**40)] == ["0 B", "1023 B", "1.5 KiB", "1 TiB"]
    assert [span_text(value) for value in (5, 1500, 90_000, 7_200_000, 2 * 86_400_000)] == [
        "5 ms", "1.5 s", "1.5 min", "2 h", "2 d",
    ]  # fmt: skip


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 4_000_000_000_000))
def test_spans_of_time_cover_the_log_and_are_few(first: int, length: int) -> None:
    log = LogSnapshot(
        topic="/default/t", partition=0, start=0, next_offset=2, size=1, segments=1, oldest_ms=first,
        newest_ms=first + length,
    )  # fmt: skip
    spans = time_spans([log])
    assert spans.count <= 120
    assert spans.since_ms <= first
    assert first + length < spans.since_ms + spans.width_ms * spans.count
