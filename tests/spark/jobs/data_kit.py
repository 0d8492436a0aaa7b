"""Data directories with damage, and archives of them written by hand, so that they can be wrong."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from tests.spark.log_kit import ORDERS, SMALL, SOLD, records

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, Record
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit.archive_side import Warehouse
from penstock.spark.jobs.audit.findings import Finding, FindingKind
from penstock.spark.jobs.audit.run import ALL, Audit, AuditRequest, audit_with
from penstock.spark.jobs.audit.runners import LocalRunner
from penstock.spark.lake import CommitMarker, LakeTable, OffsetRange
from penstock.spark.lake.tables.columns import DAY_COLUMN, SYSTEM_COLUMNS
from penstock.spark.lake.tables.compaction import file_layout_of
from penstock.spark.lake.tables.file_writer import FileWriter
from penstock.spark.lake.tables.names import bad_table_of, table_of
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.log.segment import base_of
from penstock.storage.store import Store
from penstock.testing import ManualClock

Rows = list[dict[str, Any]]
Tamper = Callable[[Rows], Rows]
DAY_MS: Final = 86_400_000


def numbered(number: int, **more: Any) -> Message:
    payload = b"order %d " % number * (1 + number % 5) + bytes(100)
    fields: dict[str, Any] = {"payload": payload, "type": "order.created", "producer_id": 7}
    return Message(**(fields | {"request_id": number + 1} | more))


def make_data(root: Path, *, messages: int = 200, step_ms: int = DAY_MS // 50) -> Path:
    """Write orders over four days in many segments, and a topic of two partitions."""
    clock = ManualClock()
    with Store.open(root, create=True, limits=SMALL, clock=clock) as store:
        store.create_topic(ORDERS)
        store.create_topic(SOLD, partitions=2)
        for number in range(messages):
            store.append(ORDERS, Draft.of([numbered(number)]))
            store.append(SOLD, Draft.of([numbered(number, producer_name="till")]), partition=number % 2)
            clock.advance_ms(step_ms)
    return root


def append(root: Path, messages: Sequence[Message], *, topic: TopicName = ORDERS, partition: int = 0) -> None:
    clock = ManualClock()
    clock.advance_ms(10 * DAY_MS)
    with Store.open(root, limits=SMALL, clock=clock) as store:
        store.append(topic, Draft.of(messages), partition=partition)


def segments(root: Path, topic: TopicName = ORDERS) -> list[Path]:
    found = (root / "topics" / topic.namespace).glob(f"{topic.topic}*/*.seg")
    return sorted(path for path in found if base_of(path.name) is not None)


def flip(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)


def audited(root: Path, wanted: AuditRequest = ALL) -> Audit:
    return audit_with(LocalRunner(), Location.parse(path=str(root)), wanted)


def kinds(audit: Audit) -> list[FindingKind]:
    return [finding.kind for finding in audit.found.listed]


def only(audit: Audit) -> Finding:
    (found,) = audit.found.listed
    return found


# archives


def archived(
    root: Path,
    table_format: str = "delta",
    *,
    stop: int | None = None,
    tamper: Tamper = list,
    bad: Callable[[dict[str, Any]], bool] = lambda _row: False,
) -> Warehouse:
    """Write all topics, or their first offsets, into tables beside the data; `bad` messages go to the bad-rows
    tables."""
    warehouse = Warehouse(str(root.parent / f"lake-{table_format}"), table_format)
    for topic in DataReader(root).topics():
        name = table_of(topic.name)
        for number in topic.logs:
            kept = records(topic.partition(number))[:stop]
            rows = tamper([_row(str(topic.name), number, record) for record in kept])
            ranges = (OffsetRange(str(topic.name), number, 0, len(kept)),)
            _commit(warehouse.table(name), [row for row in rows if not bad(row)], number, ranges)
            if any(map(bad, rows)):
                _commit(warehouse.table(bad_table_of(name)), [row for row in rows if bad(row)], number, ranges)
    return warehouse


def _row(topic: str, partition: int, record: Record) -> dict[str, Any]:
    time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=record.publish_time_ms)
    own = {
        "_id": record.id,
        "_topic": topic,
        "_partition": partition,
        "_offset": int(record.offset),
        "_timestamp": time,
        "_producer": record.message.producer_name,
        "_producer_id": record.message.producer_id,
        "_request_id": record.message.request_id,
        "_attributes": list(record.message.attributes.items()),
        "_type": record.message.type,
        "_key": record.message.key,
        "_value": record.message.payload,
        DAY_COLUMN: time.date(),
    }
    if record.message.schema is not None:
        own |= {"_schema_id": record.message.schema.id, "_schema_version": record.message.schema.version}
    return dict.fromkeys(SYSTEM_COLUMNS.names) | own


def _commit(table: LakeTable, rows: Rows, batch: int, ranges: tuple[OffsetRange, ...]) -> None:
    table.create(SYSTEM_COLUMNS, DAY_COLUMN)
    with FileWriter(table.folder, file_layout_of(table), "part") as writer:
        if rows:
            writer.write(pa.RecordBatch.from_pylist(rows, schema=SYSTEM_COLUMNS))
        files = writer.finish()
    table.commit(files, CommitMarker("query", batch, ranges))
