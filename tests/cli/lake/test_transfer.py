"""`penstock export` and `penstock import`: files and directories, there and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.kit import Fill, Run
from tests.spark.jobs.data_kit import flip, segments

from penstock.record.message import Message
from penstock.testing import RunningBroker


@pytest.fixture
def data(fill: Fill) -> Path:
    return fill([Message(payload=b"%d" % number, key=b"k%d" % (number % 3), type="t") for number in range(50)])


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.csv"])
def test_a_topic_goes_into_a_file_and_back(here: Run, data: Path, tmp_path: Path, name: str) -> None:
    exported = here("export", tmp_path / name, "orders", "--data", data, "--json").rows[0]
    assert (exported["rows"], exported["lost"], exported["topics"]) == (50, 0, ["/default/orders"])
    into: list[str | Path] = ["--into", tmp_path / "new", "--partitions", "2", "--run", "one", "--json"]
    for published in (50, 0):
        report = here("import", tmp_path / name, *into).rows[0]
        assert (report["run"], report["published"], report["known"]) == ("one", published, 50 - published)
    assert "0 messages published" in here("import", tmp_path / name, *into[:-1]).out
    read = here("log", "read", "--data", tmp_path / "new", "orders", "--json").rows
    assert sorted(int(row["payload"]) for row in read) == list(range(50))


def test_a_directory_is_copied(here: Run, data: Path, tmp_path: Path) -> None:
    copied = here("export", tmp_path / "copy", "--format", "directory", "--data", data, "--json").rows[0]
    assert copied["published"] == 50
    report = here("import", tmp_path / "copy", "elsewhere", "--into", tmp_path / "third", "--json").rows[0]
    assert (report["published"], report["target"]) == (50, "/default/elsewhere")


def test_what_is_lost_is_told_with_the_option_that_leaves_it_out(here: Run, data: Path, tmp_path: Path) -> None:
    flip(segments(data)[0], 300)
    words: list[str | Path] = ["--data", data, "--run", "x"]
    here("export", tmp_path / "a.csv", *words[:2]).refused("offset 3 is lost", "and have it counted, give --skip-lost")
    into: list[str | Path] = ["export", tmp_path / "copy", "--format", "directory", *words]
    here(*into).refused("give --skip-lost. (what is published stays; --run x goes on")
    copied = here(*into, "--skip-lost")
    assert (copied.code, "; 1 could not be read and are missing (run x)" in copied.out) == (1, True)
    here("import", data, "--into", tmp_path / "third", "--run", "y").refused("give --skip-lost")


def test_what_cannot_be_is_said(here: Run, data: Path, tmp_path: Path) -> None:
    here("export", tmp_path / "a.txt", "--data", data).refused("'a.txt' does not tell its format")
    here("export", tmp_path / "a.csv", "none", "--data", data).refused("there is no topic /default/none")
    here("export", tmp_path / "a.csv", "--data", data, "--run", "x").refused("--run is for a copy")
    here("import", tmp_path / "a.csv").refused("is no file")
    (tmp_path / "a.csv").write_text("value,colour\n1,2\n")
    here("import", tmp_path / "a.csv", "t", "--into", data, "--run", "x").refused(
        "no field 'colour'", "--run x goes on behind it"
    )
    here("import", tmp_path / "a.csv", "t", "--into", data, "--rate", "5").refused("--rate is for a broker")
    failed = here("import", tmp_path / "a.csv", "t", "--into", data, "--run", "x", "--json")
    assert failed.error["code"] == "INVALID_REQUEST"


def test_the_name_of_a_run_that_was_made_up_is_told_at_its_start(here: Run, data: Path, tmp_path: Path) -> None:
    """A process that is killed says nothing at its end."""
    here("export", tmp_path / "a.jsonl", "orders", "--data", data)
    into: list[str | Path] = ["import", tmp_path / "a.jsonl", "other", "--into", data, "--partitions", "1"]
    first = here(*into)
    name = first.err.removeprefix("penstock: run ").partition(";")[0]
    assert first.err == f"penstock: run {name}; if it breaks off, --run {name} goes on\n"
    assert f"(run {name})" in first.out
    again = here(*into, "--run", name)
    assert (again.err, "0 messages published" in again.out) == ("", True)
    scripted = here(*into, "--json")
    assert json.loads(scripted.err) == {"run": scripted.rows[0]["run"]}


def test_an_import_goes_through_a_broker(here: Run, data: Path, tmp_path: Path, keeper: RunningBroker) -> None:
    here("export", tmp_path / "a.jsonl", "orders", "--data", data, "--from", "10", "--only-type", "t*")
    for published in (40, 0):
        report = here("import", tmp_path / "a.jsonl", "imported", "-b", keeper.url, "--run", "b", "--json").rows[0]
        assert report["published"] == published


def test_a_directory_that_is_not_there_is_made_by_an_import(here: Run, tmp_path: Path) -> None:
    lines = [{"topic": f"/default/{name}", "value": name} for name in ("orders", "payments")]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = here("import", tmp_path / "a.jsonl", "--into", tmp_path / "new", "--json")
    assert (done.code, done.rows[0]["published"]) == (0, 2), done.err
    assert here("log", "read", "payments", "--payload", "--data", tmp_path / "new").raw == b"payments\n"
    more = here("import", tmp_path / "a.jsonl", "others", "--into", tmp_path / "new", "--partitions", "3", "--json")
    assert more.code == 0, more.err
    rows = {row["topic"]: row for row in here("log", "info", "--data", tmp_path / "new", "--json").rows}
    assert sorted(rows) == ["/default/orders", "/default/others", "/default/payments"]
