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
from tests.spark.lake.test_killed import in_lake, in_log
from tests.spark.log_kit import ORDERS, append, make_data

from penstock.cli import options
from penstock.cli.app import run
from penstock.spark.lake import open_table
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
    monkeypatch.setattr(options.Spark, "session", lambda *_, **__: pytest.fail("Spark was started"))
    data = ["--data", str(make_data(tmp_path / "data", messages=1))]
    wrong = {
        "say where to keep the checkpoint": ["--warehouse", "s3://bucket/lake"],
        "are not for a backfill": ["--from", "0", "--once"],
        "is not a span of time": ["--every", "often"],
        "is not a size": ["--batch", "much"],
        "letters, digits": ["--name", "../x"],
        "expected name=value": ["--catalog-option", "uri"],
    }
    for sentence, words in wrong.items():
        assert run(["archive", *data, "--warehouse", str(tmp_path / "lake"), *words]) == 2
        assert sentence in capsys.readouterr().err
    assert run(["archive", "--data", str(tmp_path / "none"), "--warehouse", str(tmp_path / "lake")]) == 2
    refused = "is not a Penstock data directory: create one with `penstock log create`"
    assert capsys.readouterr().err == f"penstock: INVALID_REQUEST: {tmp_path / 'none'} {refused}\n"
    assert not open_table("delta", str(tmp_path / "lake"), "orders").exists()
