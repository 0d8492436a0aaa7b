"""PySpark releases: the supported ones, the refusal of others, and their differences."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import StructType

import penstock.spark
from penstock.core.errors import ServiceUnavailable
from penstock.spark.runtime import jvm, versions
from penstock.spark.scan.columns import COLUMNS
from penstock.spark.sink.writers import as_batches
from penstock.spark.source.data_source import PenstockSource

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("installed", ["3.5.4", "4.4.0", "5.0.0.dev1", "strange"])
def test_a_spark_that_was_never_tried_is_refused_before_it_starts(
    installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", installed)
    monkeypatch.setattr(jvm, "start", lambda *_, **__: pytest.fail("Spark was started"))
    words = f"works with PySpark 4.0, 4.1, 4.2 and 4.3, and {installed} is installed"
    with pytest.raises(ServiceUnavailable, match=re.escape(words)):
        penstock.spark.session()
    with pytest.raises(ServiceUnavailable, match=re.escape(words)):
        PenstockSource({})


def test_the_package_and_the_older_sparks_that_are_tried_are_those_that_are_taken() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [".".join(map(str, each)) for each in versions.SUPPORTED]
    (first, last) = versions.SUPPORTED[0], versions.SUPPORTED[-1]
    assert f"pyspark>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}" in extras["spark"]
    assert f"${{*:-{' '.join(texts[:-1])}}}" in (ROOT / "dev").read_text()
    assert versions.release() == last


def test_schemas_become_arrow_s_and_spark_s_alike() -> None:
    assert versions.arrow_schema(versions.spark_schema(COLUMNS)) == COLUMNS
    local = pa.schema([pa.field("at", pa.timestamp("us"))])
    assert versions.spark_schema(local).simpleString() == "struct<at:timestamp_ntz>"
    assert versions.arrow_schema(versions.spark_schema(local)) == local


def test_rows_become_the_batches_that_newer_sparks_give() -> None:
    schema = versions.spark_schema(COLUMNS)
    names = ["key", "value", "partition", "attributes"]
    rows = [
        (bytearray(b"k"), bytearray(b"v"), 3, {"a": "1", "b": ""}),
        (None, bytearray(), 0, {}),
    ]
    (batch,) = as_batches(iter(rows), StructType([schema[name] for name in names]))
    assert batch.schema == pa.schema([COLUMNS.field(name) for name in names])
    assert batch.column("key").to_pylist() == [b"k", None]
    assert batch.column("attributes").to_pylist() == [[("a", "1"), ("b", "")], []]
    assert list(as_batches(iter([]), schema)) == []
