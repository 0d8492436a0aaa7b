"""Problems that Spark finds in a pipeline before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.pipeline.kit import STREAM, TYPED, Directory

from penstock.spark.pipeline.file.parsing import parse
from penstock.spark.pipeline.run.checks import problems
from penstock.spark.pipeline.run.explain import plans
from penstock.spark.pipeline.run.frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOW = '[sinks.show]\nfrom = "{}"\nconsole = true\n'
SUMS = '[steps.sums]\nsql = "select id, sum(cents) as cents from typed group by id"\n'
STEPS = """
def gives_nothing(orders):
    pass
def fails(orders):
    return orders.where(orders.nothing > 1)
def raises(orders):
    raise KeyError("what is this")
def stands(orders):
    return orders.sparkSession.range(3)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Directory:
    """No data at all: nothing of it is needed."""
    (tmp_path / "steps.py").write_text(STEPS)
    return Directory(tmp_path)


def test_a_pipeline_is_valid_before_its_topics_are_there(spark: SparkSession, shop: Directory) -> None:
    before = spark.catalog.listTables()
    assert problems(spark, shop.pipeline(STREAM, TYPED, SHOW.format("typed"))) == []
    assert spark.catalog.listTables() == before


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([TYPED.replace("o.*", "o.nothing"), SHOW.format("typed")], ["[steps.typed]: ", "nothing"]),
        ([TYPED.replace("from_json", "from_jsn"), SHOW.format("typed")], ["[steps.typed]: ", "`from_jsn`"]),
        ([TYPED.replace("select o.*", "selct o.*"), SHOW.format("typed")], ["PARSE_SYNTAX_ERROR", "'selct'"]),
        ([TYPED, "watermark = { column = 'at', delay = '1h' }", SHOW.format("typed")], ["[steps.typed]: ", "`at`"]),
        (
            [TYPED, "watermark = { column = 'id', delay = '1h' }", SHOW.format("typed")],
            ["[steps.typed]: ", "TIMESTAMP"],
        ),
        ([TYPED, SUMS, SHOW.format("sums")], ['output = "append" cannot be had of sums', "watermark", "try update"]),
        ([TYPED, SHOW.format("typed") + 'output = "complete"'], ['output = "complete" cannot be had of typed']),
        (
            [TYPED, '[sinks.t]\nfrom = "typed"\ntable = "t"\npartition_by = "dy"'],
            ["no column 'dy'; known are cents, id"],
        ),
        ([TYPED, '[sinks.t]\nfrom = "typed"\ntopic = "t"'], ["[sinks.t]: the sink has no column ", 'encode = "json"']),
        (['[sinks.t]\nfrom = "orders"\ntopic = "t"\nencode = "json"'], ["there is one already"]),
        (
            [
                "[steps.k]\nsql = \"select 'a' as key from orders\"",
                '[sinks.t]\nfrom = "k"\ntopic = "t"\nencode = "json"',
            ],
            ["no column to encode beside key"],
        ),
        (
            [
                '[steps.j]\nsql = "select a.value, b.value from orders a join orders b on a.offset = b.offset"',
                SHOW.format("j"),
            ],
            ["two columns are called 'value'"],
        ),
        (
            ['[sources.t]\ntable = "none"\n[steps.j]\nsql = "select * from t, orders"', SHOW.format("j")],
            ["[sources.t]: "],
        ),
        (['[sources.f]\nfile = "no.csv"\n[steps.j]\nsql = "select * from f, orders"', SHOW.format("j")], ["no.csv"]),
    ],
)
def test_what_is_wrong_is_told_with_its_part(
    spark: SparkSession, shop: Directory, parts: list[str], words: list[str]
) -> None:
    (problem,) = problems(spark, shop.pipeline(STREAM, *parts))
    for word in words:
        assert word in problem


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("gives_nothing", "gave NoneType, and a DataFrame is wanted"),
        ("fails", "line 5 of steps.py: "),
        ("raises", "line 7 of steps.py: KeyError: 'what is this'"),
        ("stands", "stands gave a DataFrame that is no stream"),
        ("fals", "fals is not there in "),
    ],
)
def test_a_function_that_does_not_do_is_told_with_its_line(
    spark: SparkSession, shop: Directory, function: str, words: str
) -> None:
    step = f'[steps.{function}]\npython = "steps.py:{function}"\ninputs = "orders"\n'
    (problem,) = problems(spark, shop.pipeline(STREAM, step, SHOW.format(function)))
    assert words in problem


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("nowhere.py:f", "there is no file"),
        ("no_such_module:f", "there is no module no_such_module"),
        ("json:tool", ""),
    ],
)
def test_a_function_that_is_not_there_is_told(spark: SparkSession, shop: Directory, place: str, words: str) -> None:
    step = f'[steps.s]\npython = "{place}"\ninputs = "orders"\n'
    (problem,) = problems(spark, shop.pipeline(STREAM, step, SHOW.format("s")))
    assert problem.startswith("[steps.s]: ")
    assert words in problem


def test_a_file_that_cannot_be_imported_is_told_with_its_line(spark: SparkSession, shop: Directory) -> None:
    (shop.root / "broken.py").write_text("import json\nnonsense\n")
    step = '[steps.s]\npython = "broken.py:f"\ninputs = "orders"\n'
    (problem,) = problems(spark, shop.pipeline(STREAM, step, SHOW.format("s")))
    assert "broken.py cannot be imported: line 2 of broken.py: NameError: name 'nonsense' is not defined" in problem


def test_one_mistake_is_one_problem_and_what_is_not_used_is_looked_at_too(spark: SparkSession, shop: Directory) -> None:
    chain = '[steps.a]\nsql = "select x from orders"\n[steps.b]\nsql = "select * from a"\n'
    unused = '[steps.c]\nsql = "select y from orders"\n'
    found = problems(spark, shop.pipeline(STREAM, chain, unused, SHOW.format("b")))
    assert [problem.partition(":")[0] for problem in found] == ["[steps.a]", "[steps.c]"]


def test_a_plan_is_explained_without_secrets(spark: SparkSession, shop: Directory) -> None:
    step = "[steps.s]\nsql = \"select '${SECRET}' as s, count(*) as n from orders group by 1\"\n"
    text = f'{STREAM}{step}{SHOW.format("s")}output = "update"'
    pipeline = parse(text, shop.root / "shop.toml", {"SECRET": "open sesame"})
    (plan,) = plans(pipeline, Frames(spark).build(pipeline), extended=True).values()
    assert "Physical Plan" in plan
    assert "${SECRET}" in plan
    assert "sesame" not in plan
