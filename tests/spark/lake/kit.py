"""Small tables of every format, and rows for them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from penstock.spark.lake import CommitMarker, DataFile, LakeTable, OffsetRange, open_table
from penstock.spark.lake.tables.compaction import file_layout_of
from penstock.spark.lake.tables.file_writer import FileWriter

TABLE_FORMATS: Final = ("delta", "iceberg", "parquet")
TOPIC: Final = "/default/orders"
SCHEMA: Final = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", tz="UTC")),
        ("_value", pa.binary()),
        ("_day", pa.date32()),
    ]
)
FIRST_DAY: Final = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


def made(tmp_path: Path, table_format: str, name: str = "orders", *, owner: str | None = None) -> LakeTable:
    table = open_table(table_format, str(tmp_path / table_format), name)
    table.create(SCHEMA, "_day", owner=owner)
    return table


def rows(start: int, stop: int, *, partition: int = 0, days: int = 1) -> pa.RecordBatch:
    """Return messages with these offsets, spread over so many days."""
    offsets = range(start, stop)
    times = [FIRST_DAY + dt.timedelta(days=offset % days, seconds=offset) for offset in offsets]
    return pa.RecordBatch.from_pydict(
        {
            "_topic": [TOPIC] * len(offsets),
            "_partition": [partition] * len(offsets),
            "_offset": list(offsets),
            "_timestamp": times,
            "_value": [f"message {offset}".encode() for offset in offsets],
            "_day": [each.date() for each in times],
        },
        schema=SCHEMA,
    )


def files(table: LakeTable, *batches: pa.RecordBatch, name: str = "part") -> list[DataFile]:
    with FileWriter(table.folder, file_layout_of(table), name) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def marker(batch: int, start: int, stop: int, *, query: str = "q1", partition: int = 0, **more: bool) -> CommitMarker:
    return CommitMarker(query, batch, (OffsetRange(TOPIC, partition, start, stop),), **more)


def offsets(table: LakeTable) -> list[int]:
    """Return the offsets that the table's own reader finds."""
    found: list[int] = []
    for batch in table.read(["_offset"]):
        found += batch.column(0).to_pylist()
    return sorted(found)


def independent(table: LakeTable, columns: Sequence[str]) -> pa.Table:
    """Return the rows as a program reads them that does not know Penstock."""
    if table.table_format == "delta":
        from deltalake import DeltaTable

        return DeltaTable(table.folder.uri).to_pyarrow_dataset().to_table(columns=list(columns))
    if table.table_format == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        root = table.folder.local.parents[1]
        catalog = SqlCatalog("penstock", uri=f"sqlite:///{root / 'catalog.db'}", warehouse=root.as_uri())
        namespace, _, name = table.name.partition(".")
        found: pa.Table = catalog.load_table((namespace, name)).scan(selected_fields=tuple(columns)).to_arrow()
        catalog.close()
        return found.select(list(columns))
    import duckdb

    paths = [str(table.folder.local / each.path) for each in table.live()]
    listed = ", ".join(f'"{name}"' for name in columns)
    query = f"select {listed} from read_parquet({paths}, hive_partitioning=true, union_by_name=true)"
    relation = duckdb.connect().sql(query)
    assert relation is not None
    return relation.to_arrow_table()
