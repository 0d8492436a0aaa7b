"""Clicks to sessions: the processor by itself, row by row, and the whole against a few lines of Python."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from examples.sessions.generate import BEGIN, Click, clicks, write
from examples.sessions.sessions import GAP, Sessions, start
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session = tuple[str, datetime, datetime, int, str, str]


def plain(given: list[Click]) -> list[Session]:
    """Visitor, first and last click, how many, first and last page."""
    found = []
    ordered = sorted(given, key=lambda click: (click.visitor, click.at))
    for visitor, own in groupby(ordered, key=lambda click: click.visitor):
        mine = list(own)
        cuts = [0, *(place for place, (a, b) in enumerate(pairwise(mine), 1) if b.at - a.at > GAP), len(mine)]
        for first, stop in pairwise(cuts):
            part = mine[first:stop]
            found.append((visitor, part[0].at, part[-1].at, len(part), part[0].page, part[-1].page))
    return sorted(found)


def click(minutes: float, page: str = "/") -> Row:
    return Row(at=BEGIN + timedelta(minutes=minutes), page=page)


def fed() -> TwsTester:
    return TwsTester(Sessions(), timeMode="eventTime", eventTimeExtractor=lambda row: ms(row.at))


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def test_a_session_is_given_when_the_next_begins() -> None:
    tester = fed()
    assert tester.test("anna", [click(0), click(20, "/cart"), click(10)]) == []
    (session,) = tester.test("anna", [click(100)])
    assert (session.start, session.end, session.clicks) == (BEGIN, BEGIN + timedelta(minutes=20), 3)
    assert (session.first_page, session.last_page) == ("/", "/cart")


def test_half_an_hour_is_not_yet_a_gap() -> None:
    tester = fed()
    assert tester.test("anna", [click(0), click(30), click(60)]) == []
    assert len(tester.test("anna", [click(90.1)])) == 1


def test_a_late_click_belongs_to_the_session_it_falls_into() -> None:
    tester = fed()
    tester.test("anna", [click(20)])
    tester.test("anna", [click(10, "/late")])
    (session,) = tester.test("anna", [click(100)])
    assert (session.start, session.clicks, session.last_page) == (BEGIN + timedelta(minutes=10), 2, "/")


def test_a_session_is_given_when_nobody_can_click_any_more() -> None:
    tester = fed()
    tester.test("anna", [click(0), click(20)])
    assert tester.setWatermark(ms(BEGIN + timedelta(minutes=49))) == []
    (session,) = tester.setWatermark(ms(BEGIN + timedelta(minutes=50)))
    assert (session.visitor, session.clicks) == ("anna", 2)
    assert tester.setWatermark(ms(BEGIN + timedelta(days=1))) == []


def sessions_of(out: Path) -> list[Session]:
    rows = [json.loads(line) for path in (out / "sessions").glob("*.json") for line in path.read_text().splitlines()]
    return sorted(
        (
            row["visitor"],
            datetime.fromisoformat(row["start"]),
            datetime.fromisoformat(row["end"]),
            row["clicks"],
            row["first_page"],
            row["last_page"],
        )
        for row in rows
    )


def test_every_session_is_found_once(spark: SparkSession, tmp_path: Path) -> None:
    made = clicks(20)
    write(tmp_path / "data", made)
    query = start(spark, tmp_path / "data", tmp_path / "out", once=True)
    assert query.awaitTermination(500)
    expected = [each for each in plain(made) if each[0] != "visitor-late"]  # whose session is still open
    assert sessions_of(tmp_path / "out") == expected
