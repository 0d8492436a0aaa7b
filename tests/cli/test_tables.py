"""Tables at every width: no digit is lost, no line is longer than the terminal, and room that there is, is used."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.cli.kit import Fill, Run

import penstock
from penstock.cli import tables
from penstock.cli.output import cell
from penstock.cli.tables import columns_of, drawn, elided

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
    lines = shown(drawn("subscriptions", columns_of(SUBSCRIPTIONS, ROWS, cell), 250), 250)
    assert lines[1].startswith("┏")
    (row,) = [line for line in lines if "billing" in line]
    assert STATE in row


def test_words_are_folded_before_anything_else_happens() -> None:
    lines = shown(drawn("subscriptions", columns_of(SUBSCRIPTIONS, ROWS, cell), 150), 150)
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
    lines = shown(drawn("subscriptions", columns_of(SUBSCRIPTIONS, ROWS, cell), 88), 88)
    place = next(number for number, line in enumerate(lines) if "1,234,567" in line)
    assert "12,345.68" in lines[place]
    assert " ".join(" ".join(lines[place:]).split()).count(STATE) == 1
    assert "    state: window full" in lines[place + 1] or "    state: window full" in lines[place + 2]


def test_rows_become_lists_where_nothing_else_helps() -> None:
    lines = shown(drawn("subscriptions", columns_of(SUBSCRIPTIONS, ROWS, cell), 40), 40)
    assert "lag           1,234,567" in lines
    assert "lag seconds   12,345.68" in lines
    assert max(map(len, lines)) <= 40


def test_a_table_without_rows_has_its_headings() -> None:
    for width in (20, 80, 200):
        assert "topic" in " ".join(shown(drawn("topics", columns_of(("topic", "lag"), [], cell), width), width))


def test_what_is_watched_has_a_line_a_row_and_leaves_columns_out_before_digits() -> None:
    columns = columns_of(SUBSCRIPTIONS, ROWS, cell)
    for width in (80, 60, 200):
        lines = shown(elided("subscriptions", columns, width), width)
        (row,) = [line for line in lines if "billing" in line]
        assert "1,234,567" in row
        assert len(row) <= width
    assert len(elided("subscriptions", columns, 60).columns) < len(SUBSCRIPTIONS)


@pytest.mark.parametrize("width", [20, 40, 120])
def test_what_looks_like_markup_is_shown_as_it_is(width: int) -> None:
    columns = columns_of(("[bold]", "n"), [("[/]a", 1), ("[red]", 2), ("日本語のトピック", 3)], cell)
    for way in (drawn, elided):
        said = "\n".join(shown(way("[/] of [x]", columns, width), width))
        for words in ("[/] of [x]", "[bold]", "[/]a", "[red]", "日本語のトピック"):
            assert words in said


words = st.text("abcdefgh /.-", min_size=1, max_size=60).map(str.strip).filter(bool)
numbers = st.integers(0, 10**15)


@given(st.lists(st.tuples(words, numbers, words, numbers, numbers), max_size=4), st.integers(60, 220))
def test_no_digit_is_ever_lost_and_no_line_too_long(rows: list[tuple[Any, ...]], width: int) -> None:
    columns = columns_of(("name", "count", "longer text", "total of it", "n"), rows, cell)
    lines = shown(drawn("t", columns, width), width)
    assert all(len(line) <= width for line in lines)
    found = " ".join(lines)
    assert all(f"{number:,}" in found for row in rows for number in row if isinstance(number, int))


# the commands


@pytest.fixture
def filled(here: Run, at_keeper: str, fill: Fill) -> Iterator[None]:
    """Something to show for every command: a topic, a subscription with a long reason, a schema, a dead letter."""
    fill([b"x" * 1000] * 3, topic="sales")
    here("sub", "create", TOPIC, "billing-of-the-eastern-branch")
    here("produce", TOPIC, given=b"order\n" * COUNT)
    here("key", "create", "tables", "--data", "penstock-data")
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


COMMANDS: Final[list[tuple[list[str], str]]] = [
    (["top", "--rows", "500"], "1,234"),
    (["topic", "ls"], "1,234"),
    (["topic", "describe", TOPIC], "1,234"),
    (["sub", "ls"], "1,234"),
    (["sub", "describe", TOPIC, "billing-of-the-eastern-branch"], "1,234"),
    (["schema", "ls"], "tables-orders-value"),
    (["schema", "versions", "tables-orders-value"], "NUMBER"),
    (["dlq", "ls"], "orders.created"),
    (["connection", "ls"], "127.0.0.1:"),
    (["services"], "tables.price"),
    (["log", "info"], "3"),
    (["segment", "ls", "sales"], "3"),
    (["doctor"], "memory"),
    (["key", "ls", "--data", "penstock-data"], "tables"),
]


@pytest.mark.usefixtures("filled")
def test_every_table_of_a_command_fits_the_terminal(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for command, expected in COMMANDS:
        narrow, wide = (at_width(here, monkeypatch, command, width) for width in (80, 200))
        for said in (narrow, wide):
            assert expected in said, command
            assert "…" not in said or command[0] == "top", command
        assert max(map(len, narrow.splitlines())) <= max(map(len, wide.splitlines())), command


def at_width(here: Run, monkeypatch: pytest.MonkeyPatch, command: list[str], width: int) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    done = here(*command)
    assert done.code == 0, done.err
    assert all(len(line) <= width for line in done.out.splitlines()), (command, max(done.out.splitlines(), key=len))
    return done.out


def test_all_tables_are_drawn_in_one_place() -> None:
    """So that what holds for one width and one command holds for all."""
    for module in Path(str(tables.__file__)).parent.glob("*.py"):
        names = {each.name for node in ast.walk(ast.parse(module.read_text())) for each in _imported(node)}
        if module.name not in ("tables.py", "schema_diff.py"):  # a diff has two sides, and is no table
            assert "Table" not in names, module.name


def _imported(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.ImportFrom) and node.module == "rich.table" else []
