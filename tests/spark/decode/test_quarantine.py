"""Files of rows that did not decode."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.decode.kit import Shelf, json_schema, properties

from penstock.spark.decode import quarantine
from penstock.spark.decode.quarantine import BadRecords

SHELF = Shelf(json_schema(properties(a={"type": "integer"})))


def bad(*payloads: bytes) -> pa.RecordBatch:
    return SHELF.decode(*((payload, 1) for payload in payloads)).bad


def files(root: Path) -> list[Path]:
    return sorted(each for each in root.rglob("*") if each.is_file())


def test_what_was_added_is_in_a_file_when_the_task_ends(tmp_path: Path) -> None:
    with BadRecords(str(tmp_path / "bad")) as sink:
        sink.add(bad(b"x"))
        sink.add(bad(b'{"a": 1}'))
        sink.add(bad(b"y", b"z"))
        assert files(tmp_path) == []
    (file,) = files(tmp_path)
    assert pq.read_table(file).column("value").to_pylist() == [b"x", b"y", b"z"]
    assert file.name.startswith("default.orders-3-100-")


def test_a_task_that_runs_again_writes_the_same_files(tmp_path: Path) -> None:
    for _ in range(2):
        with BadRecords(str(tmp_path)) as sink:
            sink.add(bad(b"x", b"y"))
    assert len(files(tmp_path)) == 1
    with BadRecords(str(tmp_path)) as sink:
        sink.add(bad(b"x"))
    assert len(files(tmp_path)) == 2


def test_where_nothing_is_bad_there_is_no_file(tmp_path: Path) -> None:
    with BadRecords(str(tmp_path / "bad")) as sink:
        sink.add(bad(b"{}"))
    assert files(tmp_path) == []


def test_a_task_that_fails_writes_nothing_more(tmp_path: Path) -> None:
    sink = BadRecords(str(tmp_path))
    sink.add(bad(b"x"))
    sink.__exit__(RuntimeError, RuntimeError(), None)
    assert files(tmp_path) == []


def test_many_bad_rows_do_not_wait_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "BUFFER_BYTES_MAX", 1)
    with BadRecords(f"file://{tmp_path}") as sink:
        sink.add(bad(b"x"))
        assert len(files(tmp_path)) == 1
        sink.add(bad(b"y", b"z"))
    assert sorted(pq.read_table(tmp_path).column("value").to_pylist()) == [b"x", b"y", b"z"]
