"""What docs/spark.md says of options and columns is what there is, and its programs run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.cli.kit import child_environment
from tests.docs.test_docs import DOCS, ROOT, blocks

from penstock.core.names import TopicName
from penstock.core.schemas import Schema, SchemaKind
from penstock.record.block import Draft
from penstock.record.message import SchemaRef
from penstock.schema.languages import SchemaLanguages
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import run_procedure
from penstock.spark.scan.columns import NAMES
from penstock.spark.sink.columns import ACCEPTED, NUMBERED
from penstock.spark.sink.options import NAMES as SINK_OPTIONS
from penstock.spark.sink.options import SinkOptions
from penstock.spark.source import options
from penstock.storage.store import Store
from penstock.testing import RunningBroker

PAGE = DOCS / "spark.md"
TOPIC = TopicName.parse("shop.orders")


def part(heading: str) -> dict[str, list[str]]:
    """The rows of the tables below a heading of any rank, up to the next heading."""
    text = re.split(r"^#+ ", PAGE.read_text().split(f"# {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            first, *rest = (cell.strip() for cell in line.strip("|").split("|"))
            found.update(dict.fromkeys(re.findall(r"`([^`]+)`", first), rest))
    return found


def test_every_option_of_the_source_is_documented() -> None:
    assert list(part("Options")) == [option.name for option in options.OPTIONS]


def test_every_column_is_documented() -> None:
    assert list(part("Columns")) == list(NAMES)


def test_every_option_of_the_sink_is_documented() -> None:
    assert set(SINK_OPTIONS) <= set(part("Writing"))


def test_every_column_of_the_sink_is_documented() -> None:
    assert {*ACCEPTED, *NUMBERED} <= set(part("Writing"))


def test_the_defaults_of_the_sink_are_those_of_the_page() -> None:
    told, made = part("Writing"), SinkOptions.parse({"broker": "127.0.0.1:7450"})
    names = ("timeout", "batch", "producer", "order", "numbers")
    assert [told[name][0] for name in names] == [f"{getattr(made, name)}".removesuffix(".0") for name in names]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "penstock-data", create=True) as store:
        store.create_topic(TOPIC)
        schema = Schema(
            kind=SchemaKind.JSON, text=json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})
        )
        made = run_procedure(Registry(store.catalog.schemas).register("shop.orders-value", schema), SchemaLanguages())
        ref = SchemaRef(made.schema_id, made.version)
        for kind in ("order.created", "order.returned"):
            store.append(TOPIC, Draft.of_payloads([b'{"n": 1}', b'{"n": 2}'], type=kind, schema=ref))
    return tmp_path


def test_the_programs_of_the_page_run(spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    raw = spark.read.format("penstock").options(path=str(data / "penstock-data"), subscribe=str(TOPIC)).load()
    names = {"spark": spark, "raw": raw, "rows": spark.range(5)}
    with RunningBroker() as broker:
        for block in blocks(PAGE, "python"):
            address = broker.url.partition("://")[2]
            text = block.replace("127.0.0.1:7450", address).replace('"penstock-data"', f'"{data}/penstock-data"')
            text = text.replace('"checkpoints/', f'"{data}/checkpoints/')  # the JVM has a directory of its own
            exec(compile(text, str(PAGE), "exec"), names)
    assert names["good"].count() == 4  # type: ignore[attr-defined]
    assert names["bad"].count() == 0  # type: ignore[attr-defined]
    assert names["returned"].count() == 2  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("spark")
def test_the_readme_archives_and_audits(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (block,) = blocks(ROOT / "README.md", "sh", below="Spark and the lakehouse")
    environment = child_environment(tmp_path_factory)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(["sh", "-ec", block], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "default.sales" in done.stdout
    assert "sale.made" in done.stdout
    assert "<svg" in (tmp_path / "audit.html").read_text()
