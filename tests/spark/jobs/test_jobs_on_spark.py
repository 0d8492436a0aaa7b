"""Audit and stats on a real Spark: the same results as in one process, and effects of Spark's workers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.jobs.data_kit import append, archived, audited, flip, kinds, make_data, numbered, segments
from tests.spark.log_kit import SOLD

from penstock.core.errors import InvalidRequest
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit import inventory
from penstock.spark.jobs.audit.findings import FindingKind
from penstock.spark.jobs.audit.run import Audit, AuditRequest, audit
from penstock.spark.jobs.audit.runners import LocalRunner, SparkRunner
from penstock.spark.jobs.stats.stats import stats, stats_with
from penstock.spark.jobs.worker_jobs import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data")


@pytest.fixture(autouse=True)
def many_slices() -> Iterator[None]:
    """A small log in many slices, so that there are seams between tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inventory, "SLICE_BYTES", 2000)
        yield


def at(root: Path) -> Location:
    return Location.parse(path=str(root))


def timeless(found: Audit) -> Audit:
    return replace(found, began_ms=0, seconds=0.0)


def test_spark_finds_what_one_process_finds(spark: SparkSession, root: Path) -> None:
    warehouse = archived(root, stop=70)
    flip(segments(root)[0], 20)
    segments(root)[2].unlink()
    append(root, [numbered(17), numbered(11)])
    wanted = AuditRequest(against=warehouse)
    told: list[tuple[str, int, int]] = []
    found = audit(spark, at(root), wanted, stage=lambda *stage: told.append(stage))
    assert timeless(found) == timeless(audited(root, wanted))
    assert set(kinds(found)) == {FindingKind.DAMAGED, FindingKind.MISSING, FindingKind.DUPLICATE_REQUEST}
    assert {what for what, _, _ in told} >= {"scanning the log", "reading the archive"}
    assert all(0 <= done <= count for _, done, count in told)


def test_requests_across_partitions_are_found_by_a_shuffle(spark: SparkSession, root: Path) -> None:
    append(root, [numbered(199)], topic=SOLD, partition=0)
    found = audit(spark, at(root), AuditRequest(duplicates=True))
    assert kinds(found) == [FindingKind.DUPLICATE_REQUEST]
    assert "request 200 of producer 7 is there 2 times: at 0:100, 1:99" in found.found.listed[0].what


def test_stats_on_spark_are_those_of_one_process(spark: SparkSession, root: Path) -> None:
    by = ("topic", "producer", "hour")
    assert stats(spark, at(root), by=by).rows == stats_with(LocalRunner(), at(root), by=by).rows


def refuse(number: int) -> int:
    raise InvalidRequest(f"number {number} is not wanted")


def double(number: int) -> int:
    return 2 * number


def test_results_come_in_the_order_of_their_tasks(spark: SparkSession) -> None:
    assert run(spark, double, range(7), what="doubling") == [0, 2, 4, 6, 8, 10, 12]
    assert run(spark, double, [], what="nothing") == []


def test_what_a_worker_raises_is_raised_as_it_was(spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest, match=r"^number 3 is not wanted$"):
        SparkRunner(spark).run("refusing", refuse, [3], lambda _done, _all: None)
