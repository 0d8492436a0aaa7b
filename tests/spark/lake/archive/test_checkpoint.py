"""The checkpoint of an archive: one holder, one query, and the plans of its batches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.spark.lake.archive.backfill import backfill_checkpoint
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.run import checkpoint_of

HOLD = """
import sys
from pathlib import Path
from penstock.spark.lake.archive.checkpoint import Checkpoint
Checkpoint(Path(sys.argv[1])).__enter__()
"""


def test_only_one_process_holds_it(tmp_path: Path) -> None:
    with Checkpoint(tmp_path):
        command = [sys.executable, "-c", HOLD, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert "another archive is running with the checkpoint" in done.stderr
    with Checkpoint(tmp_path):
        pass


def test_the_query_is_the_same_for_ever_and_is_the_one_that_spark_takes(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as state:
        first = state.query_id()
        assert json.loads((state.query / "metadata").read_text()) == {"id": first}
    with Checkpoint(tmp_path) as state:
        assert state.query_id() == first
        state.start_new_query()
        assert state.query_id() != first
    assert len(list(tmp_path.glob("replaced-*"))) == 1


def test_a_damaged_name_is_not_replaced_by_another(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as state:
        state.query_id()
        (state.query / "metadata").write_text("{")
        with pytest.raises(StorageFailed, match="--take-over"):
            state.query_id()


def test_it_belongs_to_what_it_was_made_for(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as state:
        state.check_settings({"kind": "delta", "warehouse": "/lake"})
        state.check_settings({"kind": "delta", "warehouse": "/lake"})
        with pytest.raises(InvalidRequest, match="was made with warehouse='/lake', and this is '/other'"):
            state.check_settings({"kind": "delta", "warehouse": "/other"})


def test_plans_are_kept_until_the_next(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as state:
        assert state.plan(0) is None
        state.save(0, {"a": 1})
        state.save(1, {"a": 2})
        assert (state.plan(0), state.plan(1), state.plans()) == (None, {"a": 2}, [1])
        state.start_new_query()
        assert state.plans() == []


def _state(state: Checkpoint) -> tuple[bool, bool]:
    return state.log.in_flight, state.log.last_begun < 0


def test_a_batch_is_in_flight_until_it_is_noted_as_done(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as state:
        assert _state(state) == (False, True)
        for name in ("offsets", "commits"):
            (state.query / name).mkdir(parents=True)
        (state.query / "offsets" / "0").touch()
        assert _state(state) == (True, False)
        (state.query / "commits" / "0").touch()
        assert _state(state) == (False, False)


def test_only_the_last_few_of_those_that_were_replaced_are_kept(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as state:
        for number in range(8):
            (tmp_path / f"replaced-{number:015d}").mkdir()
        state.query_id()
        state.start_new_query()
        assert state.known_query() is None
    kept = sorted(each.name for each in tmp_path.glob("replaced-*"))
    assert len(kept) == 5
    assert kept[:4] == [f"replaced-{number:015d}" for number in range(4, 8)]


def test_a_backfill_has_one_of_its_own(tmp_path: Path) -> None:
    given = str(tmp_path / "mine")
    assert backfill_checkpoint("s3://bucket/lake", "a", given) == tmp_path / "mine" / "backfill"
    assert backfill_checkpoint(str(tmp_path), "a", None) == tmp_path / "_checkpoints" / "a-backfill"
    with Checkpoint(checkpoint_of(str(tmp_path), "a", given)) as one:
        one.check_settings({"kind": "delta"})
        with Checkpoint(backfill_checkpoint(str(tmp_path), "a", given)) as other:
            other.check_settings({"kind": "delta", "backfill": True})


def test_where_it_is(tmp_path: Path) -> None:
    assert checkpoint_of(str(tmp_path), "a-b", None) == tmp_path / "_checkpoints" / "a-b"
    assert checkpoint_of("s3://bucket/lake", "a", str(tmp_path)) == tmp_path
    with pytest.raises(InvalidRequest, match="say where to keep the checkpoint"):
        checkpoint_of("s3://bucket/lake", "a", None)
    with pytest.raises(InvalidRequest, match="letters, digits"):
        checkpoint_of(str(tmp_path), "../a", None)
    with pytest.raises(InvalidRequest, match="a directory on the machine"):
        checkpoint_of(str(tmp_path), "a", "s3://bucket/x")
