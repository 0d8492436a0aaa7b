"""`penstock audit` and `penstock stats`: output and exit codes; once as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cli.kit import Outcome, child_environment
from tests.spark.jobs.data_kit import archived, flip, make_data, segments

from penstock.cli.app import run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data")


@pytest.fixture
def here(commands_share_spark: None, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Outcome]:
    """Run a command in this process, with its Spark."""

    def call(*arguments: str | Path) -> Outcome:
        code = run([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return Outcome(code, out, err.decode())

    return call


@pytest.mark.slow
def test_an_audit_has_findings_a_page_and_exit_code_1(
    root: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As a user runs it, in a process of its own."""
    warehouse = archived(root)
    flip(segments(root)[0], 20)
    page = tmp_path / "audit.html"
    arguments = ["audit", "--data", root, "--against", warehouse.uri, "--html", page, "--json", "--master", "local[2]"]
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    environment = child_environment(tmp_path_factory)
    found = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path, check=False)
    assert found.returncode == 1, found.stderr.decode()
    report = json.loads(found.stdout)
    assert report["findings"]["by_kind"] == {"damaged": 1}
    assert report["topics"][0]["partitions"][0]["archive"]["equal"]
    assert "the checksum does not match" in page.read_text()


def test_a_clean_audit_says_so_in_a_table_and_ends_with_0(root: Path, here: Callable[..., Outcome]) -> None:
    found = here("audit", "orders", "--data", root)
    assert found.code == 0, found.err
    assert "200 messages" in found.out
    assert ": clean" in found.out


def test_stats_are_rows_of_json(root: Path, here: Callable[..., Outcome]) -> None:
    found = here("stats", "--data", root, "--by", "topic,day", "--json")
    assert found.code == 0, found.err
    assert sum(row["messages"] for row in found.rows) == 400
    assert list(found.rows[0])[:3] == ["topic", "day", "messages"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit", "--data", "nowhere"], ["nowhere", "not a Penstock data directory"]),
        (["audit", "--catalog", "c"], ["--against"]),
        (["audit", "--against", "w", "--format", "orc"], ["orc", "delta, iceberg, parquet"]),
        (["audit", "--html", "no/such/page.html"], ["--html", "no directory"]),
        (["audit", "bad topic"], ["bad topic"]),
        (["stats", "--by", "colour"], ["--by 'colour'", "topic, partition, type"]),
        (["stats", "--data", "s4://bucket"], ["s4://bucket"]),
        (["stats", "--data-option", "x"], ["--data-option 'x'", "name=value"]),
    ],
)
def test_what_cannot_be_is_said_before_spark_is_started(
    arguments: Sequence[str],
    words: Sequence[str],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(root.parent)
    monkeypatch.setenv("PENSTOCK_DATA", str(root))
    assert run(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    for word in words:
        assert word in said.err
