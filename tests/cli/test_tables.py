"""Tables at every width: no digit is lost, no line is longer than the terminal, and the width is used."""

from __future__ import annotations

import ast
import io
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.cli.kit import Fill, Run

import penstock
from penstock.bench import Figure
from penstock.cli import options, output, tables
from penstock.cli.lake import pipeline
from penstock.cli.output import cell
from penstock.cli.service import bench, demo, top
from penstock.cli.tables import Column, columns_of, draw_cut_table, draw_table
from penstock.demo.base.orders import HOURS
from penstock.demo.lake.revenue import Revenue
from penstock.demo.report.account import Counts
from penstock.demo.story import DemoResult
from penstock.spark.jobs.audit import run
from penstock.spark.jobs.audit.runners import LocalRunner
from penstock.spark.jobs.stats import stats
from penstock.spark.pipeline.run.queries import ConsoleRows
from penstock.spark.pipeline.run.run import Result as Ran

COUNT: Final = 1234
TOPIC: Final = "/tables-of-the-command-line/orders.created.europe"
STATE: Final = "window full: consumer 'worker' at 127.0.0.1:53211 has as much in flight as it asked for"
SUBSCRIPTIONS: Final = ("topic", "subscription", "type", "lag", "lag seconds", "in flight", "consumers", "state")
ROWS: Final[list[tuple[Any, ...]]] = [
    ("/default/orders.created", "billing", "key_shared", 1_234_567, 12_345.678, 1_000, 12, STATE),
    ("/shop/orders", "a-long-name-of-a-subscription", "shared", 0, 0.0, 0, 0, "caught up"),
]


def shown(renderable: Any, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False, soft_wrap=True, color_system=None).print(renderable)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


# the ways to draw one


def test_where_there_is_room_there_is_a_frame_and_a_line_a_row() -> None:
    lines = shown(draw_table("subscriptions", columns_of(SUBSCRIPTIONS, ROWS, cell), 250), 250)
    assert lines[1].startswith("┏")
    (row,) = [line for line in lines if "billing" in line]
    assert STATE in row


def test_words_are_folded_before_anything_else_happens() -> None:
    lines = shown(draw_table("subscriptions", columns_of(SUBSCRIPTIONS, ROWS, cell), 150), 150)
    (row,) = [line for line in lines if "billing" in line]
    assert row.split()[:7] == [
        "/default/orders.created",
        "billing",
        "key_shared",
        "1,234,567",
        "12,345.68",
        "1,000",
        "12",
    ]
    assert len(lines) < 8


def test_the_longest_text_goes_below_its_row_where_it_would_make_a_tower_of_it() -> None:
    lines = shown(draw_table("subscriptions", columns_of(SUBSCRIPTIONS, ROWS, cell), 88), 88)
    place = next(number for number, line in enumerate(lines) if "1,234,567" in line)
    assert "12,345.68" in lines[place]
    assert " ".join(" ".join(lines[place:]).split()).count(STATE) == 1
    assert "    state: window full" in lines[place + 1] or "    state: window full" in lines[place + 2]


def test_rows_become_lists_where_nothing_else_helps() -> None:
    lines = shown(draw_table("subscriptions", columns_of(SUBSCRIPTIONS, ROWS, cell), 40), 40)
    assert "lag           1,234,567" in lines
    assert "lag seconds   12,345.68" in lines
    assert max(map(len, lines)) <= 40


def test_a_table_without_rows_has_its_headings() -> None:
    for width in (20, 80, 200):
        assert "topic" in " ".join(shown(draw_table("topics", columns_of(("topic", "lag"), [], cell), width), width))


def test_what_is_watched_has_a_line_a_row_and_leaves_columns_out_before_digits() -> None:
    columns = columns_of(SUBSCRIPTIONS, ROWS, cell)
    for width in (80, 60, 200):
        lines = shown(draw_cut_table("subscriptions", columns, width), width)
        (row,) = [line for line in lines if "billing" in line]
        assert "1,234,567" in row
        assert len(row) <= width
    assert len(draw_cut_table("subscriptions", columns, 60).columns) < len(SUBSCRIPTIONS)


@pytest.mark.parametrize("width", [20, 40, 120])
def test_what_looks_like_markup_is_shown_as_it_is(width: int) -> None:
    columns = columns_of(("[bold]", "n"), [("[/]a", 1), ("[red]", 2), ("日本語のトピック", 3)], cell)
    for way in (draw_table, draw_cut_table):
        said = "\n".join(shown(way("[/] of [x]", columns, width), width))
        for words in ("[/] of [x]", "[bold]", "[/]a", "[red]", "日本語のトピック"):
            assert words in said


words = st.text("abcdefgh /.-", min_size=1, max_size=60).map(str.strip).filter(bool)
numbers = st.integers(0, 10**15)


@given(st.lists(st.tuples(words, numbers, words, numbers, numbers), max_size=4), st.integers(60, 220))
def test_no_digit_is_ever_lost_and_no_line_too_long(rows: list[tuple[Any, ...]], width: int) -> None:
    columns = columns_of(("name", "count", "longer text", "total of it", "n"), rows, cell)
    lines = shown(draw_table("t", columns, width), width)
    assert all(len(line) <= width for line in lines)
    found = " ".join(lines)
    assert all(f"{number:,}" in found for row in rows for number in row if isinstance(number, int))


# what is watched


MANY: Final = 123_456_789_012
SEEN: Final = top.BrokerSnapshot(
    at_ms=1_767_225_600_000,
    metrics={"connection.active": 12_345, "router.publish.rate": 1_234_567.0, "router.message.rate": 7_654_321.0}
    | {"schema.refused.total": 1_234_567, "router.message.count.error": 2_345_678, "process.uptime": 9_000_000}
    | {"connection.rejected.total": 3_456_789, "storage.group.count": 10, "storage.group.messages": 123_456}
    | {"storage.sync.seconds.p99": 0.123_45, "process.memory.bytes": 8 << 30},
    topics=[
        {"topic": TOPIC, "rate": 1_234_567.89, "messages": MANY, "bytes": 987 << 40}
        | {"subscriptions": 1_234, "partitions": 1_024}
    ],
    subscriptions=[
        {"topic": TOPIC, "subscription": "billing-of-the-eastern-branch", "state": [STATE]}
        | {"lag": MANY, "lag_seconds": 9_876_543.21, "in_flight": 1_000_000, "consumers": 4_321}
    ],
    sync_ms=1_234.56,
)
FIGURES: Final = {
    "/tables": ["1,234,567.89", "123,456,789,012", "987.0 TiB", "1,234", "1,024"],
    "billing": ["123,456,789,012", "9,876,543.21", "1,000,000", "4,321"],
}
"""Numbers in every column of the topic and of the subscription."""


@pytest.mark.parametrize("width", [80, 200])
def test_top_loses_no_digit_of_any_column_of_numbers(width: int) -> None:
    lines = shown(top._render(SEEN, 12, width), width)
    assert all(len(line) <= width for line in lines)
    for name, has_figures in FIGURES.items():
        (row,) = [line for line in lines if line.startswith((name, f"│ {name}"))]
        assert [figure for figure in has_figures if figure not in row] == []
    head = "\n".join(lines[:5])
    for figure in ("12,345", "1,234,567", "7,654,321", "123.45", "1234.56", "12,345.6", "2,345,678", "3,456,789"):
        assert figure in head


def test_top_uses_the_room_that_there_is() -> None:
    narrow, wide = (shown(top._render(SEEN, 12, width), width) for width in (80, 200))
    assert TOPIC not in "\n".join(narrow)
    assert "\n".join(wide).count(TOPIC) == 2
    assert "state" in "\n".join(wide)


# the commands


@pytest.fixture
def filled(here: Run, at_keeper: str, fill: Fill) -> Iterator[None]:
    """Fill a broker with something for every command: a topic, a subscription with a long reason, a schema, a dead
    letter."""
    fill([b"x" * 1000] * COUNT, topic=TOPIC)
    here("sub", "create", TOPIC, "billing-of-the-eastern-branch")
    here("produce", TOPIC, given=b"order\n" * COUNT)
    here("key", "create", "tables", "--data", "penstock-data")
    here("access", "grant", "key:tables", f"publisher@topic:{TOPIC}", "--data", "penstock-data")
    here("schema", "register", "tables-orders-value", "--type", "number")
    with (
        penstock.connect(at_keeper, name="tables-service", description="prints tables, and nothing else") as client,
        client.consumer(TOPIC, "poisoned", start="earliest", redeliveries=0, window=1) as consumer,
        client.respond("tables.price", lambda _: b"1"),
    ):
        message = consumer.receive(timeout=20)
        assert message is not None
        consumer.nack(message, reason="no")
        consumer.flush()
        yield
    here("topic", "delete", TOPIC, "--yes")


@pytest.fixture
def archived(here: Run, filled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archive into a table, then damage the log and its backup. Jobs run without Spark."""
    here("backup", "create", "backup")
    here("archive", "--once", "--engine", "local", "--warehouse", "lake")
    for segment in (*Path("penstock-data").rglob("*.seg"), *Path("backup").rglob("*.seg")):
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 1
        segment.write_bytes(content)
    monkeypatch.setattr(options.SparkOptions, "session", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    for job in (run, stats):
        monkeypatch.setattr(job, "SparkRunner", lambda _: LocalRunner())


COMMANDS: Final[list[tuple[list[str], str]]] = [
    (["topic", "ls"], "1,234"),
    (["topic", "describe", TOPIC], "1,234"),
    (["sub", "ls"], "1,234"),
    (["sub", "describe", TOPIC, "billing-of-the-eastern-branch"], "1,234"),
    (["sub", "describe", TOPIC, "poisoned"], "127.0.0.1:"),
    (["schema", "ls"], "tables-orders-value"),
    (["schema", "versions", "tables-orders-value"], "NUMBER"),
    (["dlq", "ls"], "orders.created"),
    (["connection", "ls"], "127.0.0.1:"),
    (["services"], "tables.price"),
    (["log", "info"], "1,234"),
    (["segment", "ls", TOPIC], "1,234"),
    (["doctor"], "memory"),
    (["key", "ls", "--data", "penstock-data"], "tables"),
    (["access", "show", "--data", "penstock-data"], "publisher"),
]
JOBS: Final[list[tuple[list[str], int, str]]] = [
    (["archive", "--once", "--engine", "local", "--warehouse", "again", "--allow-loss"], 1, "1,233"),
    (["lake", "show", "--warehouse", "lake"], 0, "1,234"),
    (["lake", "show", "tables-of-the-command-line.orders_created_europe", "--warehouse", "lake"], 0, "1,234"),
    (["audit", "--against", "lake"], 1, "findings"),
    (["stats", "--by", "topic,type,producer,hour"], 1, "1,233"),
    (["segment", "verify", "penstock-data"], 1, "findings"),
    (["backup", "verify", "backup"], 1, "findings"),
]


def print_bench() -> None:
    figure = Figure(
        name="append durably, 1 KiB each, 64 producers",
        value=1_234_567.89,
        unit="messages/s",
        reference="pwrite + fdatasync of the same bytes, a thread each",
        reference_value=2_345_678.91,
        ratio=12_345.67,
    )
    bench._show("penstock bench log", iter([figure, Figure(name="start", value=0.1, unit="s")]), json=False)


def print_demo() -> None:
    counts: dict[str, Any] = {each.name: 1_234_567 for each in fields(Counts)}
    counts["by_transport"] = {"tcp": 411_522, "websocket": 411_522, "http": 411_523}
    hours = Revenue(np.arange(HOURS), np.arange(HOURS))
    demo._print(
        DemoResult(
            counts=Counts(**counts), seconds=12.3, folder=Path("demo"), revenue=hours, broker={}, look_around=[]
        ),
        kept=False,
    )


def print_pipeline() -> None:
    told = pipeline._Printer(json=False, quiet=False)
    name = "revenue-by-hour-of-the-eastern-branch"
    ran = Ran(query=name, batches=1_234, rows_in=MANY, rows_out=MANY, late=12_345, ms=9_876_543, lag=MANY)
    told.report(SimpleNamespace(name="revenue"), [ran])  # type: ignore[arg-type]  # its name is all that is asked for
    row = ["2026-01-31T12:00:00.000Z", "the eastern branch, with everything that it has", MANY, 1_234_567.89]
    told(ConsoleRows(query=name, batch=7, columns=["hour", "branch", "orders", "revenue"], rows=[row], more=False))


FIGURE: Final = re.compile(r"-?[0-9][0-9,.:TZ-]*( [KMGT]?i?B)?")
"""Numbers, sizes, times and addresses."""
Drawn = dict[tuple[str, str], list[tuple[str, Sequence[Column]]]]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Record every table that is drawn, by the calling module and function."""
    found: Drawn = defaultdict(list)

    def record(title: str, columns: Sequence[Column], width: int) -> Any:
        code = sys._getframe(2).f_code
        found[Path(code.co_filename).name, code.co_name].append((title, columns))
        return draw_table(title, columns, width)

    monkeypatch.setattr(output, "draw_table", record)
    return found


@pytest.mark.usefixtures("archived")
def test_every_table_of_the_command_line_keeps_its_digits_at_80_columns_and_uses_200(
    here: Run, recorded: Drawn, at_keeper: str
) -> None:
    for command, code, expected in [*((words, 0, expected) for words, expected in COMMANDS), *JOBS]:
        done = here(*command)
        assert (done.code, expected in done.out) == (code, True), (command, done.out, done.err)
    for printed in (print_bench, print_demo, print_pipeline):
        printed()
    assert sorted(recorded) == sorted(tables_asked_for())
    for title, columns in (each for made in recorded.values() for each in made):
        narrow, wide = (shown(draw_table(title, columns, width), width) for width in (80, 200))
        assert_intact(columns, narrow, 80)
        assert_intact(columns, wide, 200)
        if sum(each.natural_width for each in columns) > 80:
            assert max(map(len, wide)) > 80 or len(wide) < len(narrow), (title, wide)


def assert_intact(columns: Sequence[Column], lines: list[str], width: int) -> None:
    """Check that no line is longer than the terminal, every figure is in one piece, and every digit of the words is
    there."""
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines), text
    cells = [each for column in columns for each in column.cells]
    assert [each for each in cells if FIGURE.fullmatch(each) and each not in text] == [], text
    assert not digits("".join(cells)) - digits(text), text


def digits(text: str) -> Counter[str]:
    return Counter(filter(str.isdecimal, text))


def tables_asked_for() -> set[tuple[str, str]]:
    """Return the module and function of every call of `table` in the source, to find those that are not drawn here."""
    found = set()
    for module in Path(str(tables.__file__)).parent.rglob("*.py"):
        functions = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.FunctionDef)]
        found |= {(module.name, each.name) for each in functions if any(map(_asks_for_table, ast.walk(each)))}
    return found


def _asks_for_table(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "table"


@pytest.mark.usefixtures("filled")
def test_what_a_command_prints_fits_the_terminal(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for command, expected in [*COMMANDS, (["top", "--rows", "500"], "1,234")]:
        for width in (80, 200):
            said = at_width(here, monkeypatch, command, width)
            assert expected in said, command
            assert "…" not in said or command[0] == "top", command


def at_width(here: Run, monkeypatch: pytest.MonkeyPatch, command: list[str], width: int) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    done = here(*command)
    assert done.code == 0, done.err
    assert all(len(line) <= width for line in done.out.splitlines()), (command, max(done.out.splitlines(), key=len))
    return done.out


def test_all_tables_are_drawn_in_one_place() -> None:
    """One drawing function serves every width and command."""
    for module in Path(str(tables.__file__)).parent.rglob("*.py"):
        names = {each.name for node in ast.walk(ast.parse(module.read_text())) for each in _imported(node)}
        if module.name not in ("tables.py", "diff.py"):  # a diff has two sides, and is no table
            assert "Table" not in names, module.name


def _imported(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.ImportFrom) and node.module == "rich.table" else []
