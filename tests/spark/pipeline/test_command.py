"""`penstock pipeline`: what it prints, its exit codes, and what becomes of it when it is stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.spark.pipeline.kit import STREAM, TYPED, Directory, orders, write_topic
from tests.spark.processes import gone

from penstock.cli.app import run

FILES = '[sinks.out]\nfrom = "typed"\nfile = "out"\nformat = "json"\n'
SLOWLY = f"{STREAM}options = {{ maxOffsetsPerTrigger = 5 }}\n"
SPARK = '[spark]\nmaster = "local[2]"\n'


@pytest.fixture
def shop(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


@pytest.fixture
def file(shop: Directory) -> Path:
    return shop.pipeline(STREAM, TYPED, FILES).file


def called(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = run(["pipeline", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


# without Spark


def test_a_valid_file_is_said_to_be(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, "validate", file, "--no-spark") == (0, f"{file}: valid\n", "")


def test_problems_and_warnings_are_told_one_a_line(shop: Directory, capsys: pytest.CaptureFixture[str]) -> None:
    file = shop.root / "bad.toml"
    file.write_text(f'{STREAM}rad = 1\n{FILES}[sinks.x]\nfrom = "orders"\n')
    code, out, err = called(capsys, "validate", file, "--no-spark")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "[sources.orders] rad: not a key here; did you mean read?",
        "[sinks.x]: exactly one of topic, table, file, console says what it is; there is none",
        f"{file}: 2 problems",
    ]


def test_findings_are_json_for_scripts(shop: Directory, capsys: pytest.CaptureFixture[str]) -> None:
    file = shop.pipeline(STREAM, TYPED, FILES, '[sources.x]\ntopic = "x"').file
    code, out, _ = called(capsys, "validate", file, "--no-spark", "--json")
    assert code == 0
    assert json.loads(out) == {
        "file": str(file),
        "valid": True,
        "problems": [],
        "warnings": ["[sources.x] is used by no sink: it is not run"],
    }


@pytest.mark.parametrize("command", ["run", "validate", "explain"])
def test_a_file_that_is_not_there_could_not_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, out, err = called(capsys, command, tmp_path / "none.toml")
    assert (code, out) == (2, "")
    assert "INVALID_REQUEST: the pipeline" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_wrong_file_is_refused_in_one_sentence(
    shop: Directory, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (shop.root / "bad.toml").write_text(f"{STREAM}rad = 1\n{FILES}")
    code, out, err = called(capsys, command, shop.root / "bad.toml")
    assert (code, out) == (2, "")
    assert "[sources.orders] rad: not a key here" in err
    assert len(err.splitlines()) == 1


def test_the_graph_is_shown_without_secrets(
    shop: Directory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKET", "sesame")
    file = shop.root / "secret.toml"
    file.write_text(
        STREAM.replace('"data"', '"s3://${BUCKET}/data"') + '[sinks.out]\nfrom = "orders"\nfile = "s3://${BUCKET}/o"'
    )
    code, out, _ = called(capsys, "explain", file, "--no-spark")
    assert code == 0
    assert "source orders <- stream: topic /default/orders" in out
    assert "parquet s3://${BUCKET}/o" in out
    assert "sesame" not in out


# with Spark


@contextmanager
def started(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, killed at the end if it is still there, with nothing left of it."""
    command = [sys.executable, "-m", "penstock", "pipeline", *map(str, arguments)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            gone(process.pid)


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    return (json.loads(line) for line in process.stdout)


def first_batch(process: subprocess.Popen[str]) -> dict[str, Any]:
    return next(line for line in lines(process) if "rows_in" in line)


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("commands_share_spark")
def test_what_is_stopped_or_killed_goes_on_and_nothing_is_lost_or_twice(
    shop: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lives in processes of their own, and a last one in this."""
    write_topic(shop.data, orders(0, 100))
    file = shop.pipeline(SLOWLY, SPARK, TYPED, f'{FILES}trigger = "0s"').file
    with started("run", file, "--json") as process:
        assert first_batch(process)["query"] == "shop.out"
        process.send_signal(signal.SIGINT)
        *_, report = lines(process)
        assert process.wait() == 130
        assert [each["state"] for each in report["queries"]] == ["stopped"]
    with started("run", file, "--json") as process:
        first_batch(process)
        process.kill()
    code, out, err = called(capsys, "run", file, "--once", "--json")
    assert (code, err) == (0, "")
    assert [each["state"] for each in json.loads(out.splitlines()[-1])["queries"]] == ["done"]
    assert sorted(row["id"] for row in shop.rows()) == list(range(100))


@pytest.mark.usefixtures("commands_share_spark")
def test_a_failure_is_told_with_exit_code_2(shop: Directory, capsys: pytest.CaptureFixture[str]) -> None:
    write_topic(shop.data, orders(0, 100))
    failing = TYPED.replace("select o.*", "select o.id, raise_error(concat('order ', o.id)) as x")
    file = shop.pipeline(STREAM, SPARK, failing, FILES).file
    code, out, err = called(capsys, "run", file, "--once", "--json")
    assert code == 2
    assert [each["state"] for each in json.loads(out.splitlines()[-1])["queries"]] == ["failed"]
    told = json.loads(err.splitlines()[-1])["error"]
    assert told["message"].startswith("query shop.out failed: ")
    assert "order 0" in told["message"]
