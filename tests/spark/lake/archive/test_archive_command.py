"""`penstock archive`: until it is done, and as a user runs it, in a process of its own, until it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.spark.lake.kit import TABLE_FORMATS
from tests.spark.lake.tables.test_killed import in_lake, in_log
from tests.spark.lake.test_typed import Shop
from tests.spark.log_kit import ORDERS, append, make_data

from penstock.cli import options
from penstock.cli.app import run
from penstock.spark.files.location import Location
from penstock.spark.lake import open_table
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.run import archive
from penstock.storage.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def start(data: Path, lake: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock", "archive", "--data", str(data), "--warehouse", str(lake), *words]
    environment = os.environ | {"SPARK_MASTER": "local[2]"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, text=True, **pipes)


@pytest.mark.usefixtures("commands_share_spark")
def test_it_archives_reports_and_stops_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, lake = make_data(tmp_path / "data", messages=300), tmp_path / "lake"
    places = ["--data", str(data), "--warehouse", str(lake)]
    code = run(["archive", *places, "orders", "--from", "100", "--to", "200", "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["rows"] == 100
    with start(data, lake, "--every", "200ms", "--json") as running:
        assert running.stdout is not None
        first = json.loads(running.stdout.readline())
        assert first["rows"] == 115
        with Store.open(data) as store:
            append(store, ORDERS, range(20))
        added = 0
        while added < 20:
            added += json.loads(running.stdout.readline())["rows"]
        running.send_signal(signal.SIGINT)
        report = json.loads(running.stdout.readlines()[-1])
    assert (added, report["rows"], running.returncode) == (20, 135, 130)
    code = run(["archive", *places, "orders", "--from", "earliest", "--to", "150"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "100 rows in 1 batch" in out
    assert "default.orders" in out
    assert in_lake(lake, "delta") == in_log(data)


def test_what_cannot_be_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options.SparkOptions, "session", lambda *_, **__: pytest.fail("Spark was started"))
    data, lake = ["--data", str(make_data(tmp_path / "data", messages=1))], tmp_path / "lake"
    store = ["--warehouse", "s3://bucket/lake", "--checkpoint", str(tmp_path / "checkpoint")]
    archive(None, Location(data[1]), ["orders"], warehouse=str(lake), once=True)
    wrong = {
        "say where to keep the checkpoint": ["--warehouse", "s3://bucket/lake"],
        "are not for a backfill": ["--from", "0", "--once"],
        "is not a span of time": ["--every", "often"],
        "is not a size": ["--batch", "much"],
        "letters, digits": ["--name", "../x"],
        "expected name=value": ["--catalog-option", "uri"],
        "expected one of auto, local, spark": ["--engine", "flink"],
        "is not a size ": ["--local-max", "little"],
        "expected one of delta, iceberg, parquet": ["--format", "hudi"],
        "needs a catalog beside it": [*store, "--format", "iceberg"],
        "did you mean aws_allow_http?": [*store, "--storage-option", "allow_htp=true"],
        "names /default/nothing, which is not there": ["nothing"],
        "is a table of the format delta": ["orders", "--format", "iceberg", "--name", "other"],
        "--take-over": ["orders", "--name", "other"],
    }
    for sentence, words in wrong.items():
        code = run(["archive", *data, "--warehouse", str(lake), "--engine", "spark", *words])
        on_batch = capsys.readouterr().err
        assert (code, sentence in on_batch) == (2, True), (sentence, on_batch)
    assert not (tmp_path / "checkpoint").exists()
    assert run(["archive", "--data", str(tmp_path / "none"), "--warehouse", str(tmp_path / "lake")]) == 2
    refused = "is not a Penstock data directory: create one with `penstock log create`"
    assert capsys.readouterr().err == f"penstock: INVALID_REQUEST: {tmp_path / 'none'} {refused}\n"
    assert not open_table("delta", str(lake), "shop.parts_sold").exists()


WITHOUT_SPARK = """
import sys
from penstock.cli.app import run
code = run(sys.argv[1:])
print(sorted({"pyspark", "py4j", "pandas"} & set(sys.modules)))
sys.exit(code)
"""


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_little_is_archived_without_spark_and_much_is_not(tmp_path: Path, table_format: str) -> None:
    """The command runs in a process of its own, which does not import Spark; the bound says how much is much."""
    data, lake = make_data(tmp_path / "data", messages=30), tmp_path / "lake"
    words = ["archive", "--data", str(data), "--warehouse", str(lake), "--format", table_format, "--once"]
    command = [sys.executable, "-c", WITHOUT_SPARK, *words]
    said = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert said.returncode == 0, said.stderr
    assert "engine: local, 45 new messages, " in said.stderr
    assert "45 rows in 1 batch" in said.stdout
    heavy = json.loads(said.stdout.splitlines()[-1].replace("'", '"'))
    assert heavy in (
        [],
        ["pandas"] if table_format == "iceberg" else [],
    )  # PyIceberg asks Arrow for times, which imports it
    assert in_lake(lake, table_format) == in_log(data)


@pytest.mark.usefixtures("commands_share_spark")
def test_what_is_much_is_for_spark_unless_that_is_said_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, lake = make_data(tmp_path / "data", messages=30), tmp_path / "lake"
    words = ["archive", "--data", str(data), "--warehouse", str(lake), "--once"]
    engines = []
    for more in (["--local-max", "0"], ["--local-max", "0", "--engine", "local"], ["--engine", "spark"], []):
        assert run([*words, *more]) == 0
        engines.append(capsys.readouterr().err.splitlines()[0].partition(",")[0])
        with Store.open(data) as store:
            append(store, ORDERS, range(5))
    assert engines == ["engine: spark", "engine: local", "engine: spark", "engine: local"]
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["engine"] == "local"
    assert run(words) == 0
    assert "engine: local, nothing new" in capsys.readouterr().err
    assert in_lake(lake, "delta") == in_log(data)


def test_it_says_where_bad_records_are_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Checkpoint(tmp_path / "unused") as state:
        shop = Shop(tmp_path, "delta", state)
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 0}, b"{", {"id": "\x1b[2J"}, {"id": "three"}, b"{", schema=schema)
    words = ["archive", "--data", str(shop.data), "--warehouse", str(tmp_path / "lake"), "--once"]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert "4 bad records of default.orders in default.orders__bad: /default/orders[0] offsets 1 to 4" in said
    assert "        2  " in said
    assert "\x1b" not in said
    shop.publish(*({"id": text} for text in "abcdef"), schema=schema)
    assert run([*words, "--json"]) == 0
    table = json.loads(capsys.readouterr().out.splitlines()[-1])["tables"]["default.orders"]
    assert (table["bad"], table["bad_table"]) == (6, "default.orders__bad")
    assert table["bad_rows"]["places"] == {"/default/orders[0]": [5, 10]}
    assert 1 <= len(table["bad_rows"]["reasons"]) <= 3
