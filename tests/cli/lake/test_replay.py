"""`penstock replay` and `penstock compact`; once with a Spark of their own, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.kit import Fill, Outcome, Run, Start
from tests.spark.jobs.data_kit import flip, segments

from penstock.record.message import Message
from penstock.testing import RunningBroker


@pytest.fixture
def data(fill: Fill) -> Path:
    return fill([Message(payload=b"%d" % number, key=b"k%d" % (number % 3), type="t") for number in range(50)])


def ended(here: Run, *arguments: str | Path) -> str:
    """Return the output of a command that has succeeded."""
    done = here(*arguments)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.usefixtures("commands_share_spark")
def test_a_replay_is_reported_and_goes_on_under_its_run(here: Run, data: Path, keeper: RunningBroker) -> None:
    given: list[str | Path] = ["replay", "orders", "-t", "replay.command", "--data", data, "--broker", keeper.url]
    given += ["--from", "10", "--only-key", "k1", "--where", "length(value) = 2", "--run", "r", "--master", "local[1]"]
    report = json.loads(ended(here, *given, "--json"))
    assert (report["run"], report["target"], report["rows"]) == ("r", "/default/replay.command", 14)
    assert (report["published"], report["known"]) == (14, 0)


@pytest.mark.usefixtures("commands_share_spark")
def test_a_topic_is_compacted_into_another(here: Run, data: Path) -> None:
    given: list[str | Path] = ["compact", "orders", "-t", "latest", "--data", data, "--into", data, "--partitions", "1"]
    out = ended(here, *given, "--run", "c", "--master", "local[1]")
    assert "3 messages published into /default/latest" in out
    assert [row["payload"] for row in here("log", "read", "latest", "--data", data, "--json").rows] == [
        "47",
        "48",
        "49",
    ]


def test_what_a_worker_cannot_read_ends_a_run_with_a_sentence(start: Start, data: Path, tmp_path: Path) -> None:
    flip(segments(data)[0], 300)
    given: list[str | Path] = ["replay", "orders", "-t", "again", "--data", data, "--into", tmp_path / "new"]
    with start(*given, "--partitions", "1", "--run", "r", "--master", "local[1]") as process:
        out, err = process.communicate(timeout=240)
    Outcome(process.returncode, out, err.decode()).refused("is lost", "give --skip-lost", "--run r goes on behind it")


def test_what_cannot_be_is_said_before_spark_is_started(here: Run, data: Path, tmp_path: Path) -> None:
    here("replay", "orders", "-t", "a", "--data", tmp_path / "none").refused("is not a Penstock data directory")
    here("replay", "orders", "-t", "a", "--data", data, "--from", "latest").refused("there is nothing to read")
    here("replay", "orders", "-t", "not a topic", "--data", data).refused("not a topic")
    here("replay", "orders", "-t", "a", "--data", data, "--run", "../x").refused("run='../x'")
    here("replay", "orders", "-t", "a", "--archive", tmp_path, "-f", "orc").refused("format 'orc'")
    here("compact", "orders", "--data", data).refused("Give one of --to-topic and --to-table")
