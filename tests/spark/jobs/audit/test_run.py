"""The audit of a data directory, alone and against an archive: every problem is found, and nothing else.

The work runs in this process, without Spark. See test_jobs_on_spark.py for the workers.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.spark.jobs.data_kit import (
    Rows,
    append,
    archived,
    audited,
    flip,
    kinds,
    make_data,
    numbered,
    only,
    segments,
)
from tests.spark.log_kit import ORDERS, SOLD

from penstock.core.errors import InvalidRequest, TopicNotSupported
from penstock.core.names import TopicName
from penstock.core.schemas import SchemaKind
from penstock.record.message import SchemaRef
from penstock.schema.registry.transfer import VersionRecord
from penstock.spark.jobs.audit import archive_side as archives
from penstock.spark.jobs.audit import partition_summary
from penstock.spark.jobs.audit.archive_side import RUNS_MAX, ComparisonScope, Warehouse, missing_and_duplicate
from penstock.spark.jobs.audit.findings import FindingKind
from penstock.spark.jobs.audit.run import AuditRequest
from penstock.spark.jobs.worker_jobs import TASK_BYTES, group_by_bytes
from penstock.storage.log.segment import index_path
from penstock.storage.store import Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data")


# the log by itself


def test_a_sound_log_is_clean(root: Path) -> None:
    found = audited(root)
    assert found.is_clean
    assert found.notes == ()
    assert [(each.log.topic, each.log.partition, each.summary.records) for each in found.partitions] == [
        ("/default/orders", 0, 200),
        ("/shop/parts.sold", 0, 100),
        ("/shop/parts.sold", 1, 100),
    ]
    assert found.partitions[0].log.segments > 3


def test_a_log_that_is_being_written_is_clean_up_to_what_is_acknowledged(root: Path) -> None:
    with Store.open(root) as store:
        log = store.log(ORDERS)
        segment = log.path / max(path.name for path in segments(root))
        size = log.view.segments[-1].size
        with segment.open("r+b") as file:
            file.seek(size)
            file.write(b"an unfinished write")
        found = audited(root)
    assert found.is_clean
    assert found.partitions[0].summary.records == 200


def test_only_the_topics_that_are_named_are_looked_at(root: Path) -> None:
    flip(segments(root)[0], 300)
    assert audited(root, AuditRequest(topics=(SOLD,))).is_clean


def test_a_topic_that_is_not_there_is_refused(root: Path) -> None:
    with pytest.raises(TopicNotSupported, match="nowhere"):
        audited(root, AuditRequest(topics=(TopicName.parse("nowhere"),)))


def test_a_directory_without_topics_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True):
        pass
    with pytest.raises(InvalidRequest, match="no topics yet"):
        audited(tmp_path / "data")


def test_a_damaged_record_is_a_finding_with_its_place(root: Path) -> None:
    path = segments(root)[1]
    flip(path, 20)
    found = only(audited(root))
    assert (found.kind, found.topic, found.partition, found.count) == (FindingKind.DAMAGED, str(ORDERS), 0, 1)
    assert (found.offset, found.segment, found.position) == (int(path.stem), path.name, 0)
    assert "checksum" in found.what


def test_a_lost_segment_is_missing_offsets(root: Path) -> None:
    first, second, third, *_ = segments(root)
    second.unlink()
    found = only(audited(root))
    assert (found.kind, found.offset) == (FindingKind.MISSING, int(second.stem))
    assert found.count == int(third.stem) - int(second.stem)
    assert str(int(third.stem) - 1) in found.what
    assert first.exists()


def test_a_lost_partition_is_a_finding(root: Path) -> None:
    shutil.rmtree(root / "topics" / "shop" / "parts.sold-part-0")
    found = only(audited(root))
    assert (found.kind, found.topic, found.partition) == (FindingKind.NO_PARTITION, str(SOLD), 0)


def test_what_was_truncated_is_not_missed(root: Path) -> None:
    with Store.open(root) as store:
        store.truncate_before(ORDERS, 90)
    found = audited(root)
    assert found.is_clean
    assert (found.partitions[0].log.start, found.partitions[0].summary.records) == (90, 110)


def test_a_lost_index_is_told_and_no_message_is_lost(root: Path) -> None:
    index_path(segments(root)[1]).unlink()
    found = audited(root)
    assert kinds(found) == [FindingKind.INDEX]
    assert "rebuildable" in only(found).what
    assert found.partitions[0].summary.records == 200


def test_quarantine_is_counted(root: Path) -> None:
    folder = segments(root)[0].parent / "quarantine"
    folder.mkdir()
    (folder / "0-damaged.bin").write_bytes(b"12345")
    found = audited(root)
    assert found.is_clean
    assert "quarantine holds 1 files, 5 bytes" in found.notes[0]


def test_a_schema_that_nobody_knows_is_a_finding(root: Path) -> None:
    append(root, [numbered(500 + n, schema=SchemaRef(99, 1)) for n in range(3)])
    found = only(audited(root))
    assert (found.kind, found.topic, found.count) == (FindingKind.UNKNOWN_SCHEMA, str(ORDERS), 3)
    assert "schema 99" in found.what


# requests


def test_a_request_that_is_there_twice_is_found_without_being_asked_for(root: Path) -> None:
    append(root, [numbered(17)])
    found = only(audited(root))
    assert (found.kind, found.offset, found.count) == (FindingKind.DUPLICATE_REQUEST, 17, 2)
    assert "request 18 of producer 7 is there 2 times: at 0:17, 0:200" in found.what


def test_requests_that_came_late_are_no_duplicates(root: Path) -> None:
    append(root, [numbered(900), numbered(300)])
    assert audited(root).is_clean


def test_a_request_in_two_partitions_is_found_when_that_is_asked_for(root: Path) -> None:
    append(root, [numbered(199)], topic=SOLD, partition=0)  # it is in partition 1
    assert audited(root).is_clean
    found = only(audited(root, AuditRequest(duplicates=True)))
    assert (found.kind, found.topic) == (FindingKind.DUPLICATE_REQUEST, str(SOLD))


def test_messages_without_a_number_are_never_duplicates(root: Path) -> None:
    append(root, [numbered(0, request_id=0), numbered(0, request_id=0), numbered(1, producer_id=0)])
    assert audited(root, AuditRequest(duplicates=True)).is_clean


# against an archive


@pytest.mark.parametrize("table_format", ["delta", "iceberg", "parquet"])
def test_an_archive_that_equals_the_log_is_clean(root: Path, table_format: str) -> None:
    found = audited(root, AuditRequest(against=archived(root, table_format)))
    assert found.is_clean, found.found
    assert [each.comparison.compared for each in found.partitions if each.comparison] == [200, 100, 100]
    assert all(len(each.summary.digests) == 5 for each in found.partitions)
    assert len(found.partitions[0].summary.latency) == 200
    assert found.notes == ()


def test_what_is_not_yet_archived_is_a_lag_and_no_finding(root: Path) -> None:
    warehouse = archived(root, stop=60)
    found = audited(root, AuditRequest(against=warehouse))
    assert found.is_clean
    assert "/default/orders[0]: not yet archived from offset 60 on (lag 140)" in found.notes


def test_a_message_that_the_archive_lacks_is_named(root: Path) -> None:
    warehouse = archived(root, tamper=lambda rows: [row for row in rows if row["_offset"] not in (7, 8)])
    found = audited(root, AuditRequest(topics=(ORDERS,), against=warehouse))
    payload_lost, day = found.found.listed
    assert (payload_lost.kind, payload_lost.offset, payload_lost.count) == (FindingKind.NOT_IN_ARCHIVE, 7, 2)
    assert day.kind is FindingKind.ARCHIVE_DIFFERS
    assert "archive" in day.what


def test_a_message_that_the_archive_has_twice_is_named(root: Path) -> None:
    warehouse = archived(root, tamper=lambda rows: [*rows, rows[5]])
    found = audited(root, AuditRequest(topics=(ORDERS,), against=warehouse))
    assert (found.found.listed[0].kind, found.found.listed[0].offset) == (FindingKind.TWICE_IN_ARCHIVE, 5)
    assert FindingKind.ARCHIVE_DIFFERS in kinds(found)


def changed(rows: Rows) -> Rows:
    return [row | {"_value": b"something else"} if row["_offset"] == 9 else row for row in rows]


def test_another_payload_shows_in_the_hash_of_its_day(root: Path) -> None:
    found = only(audited(root, AuditRequest(topics=(ORDERS,), against=archived(root, tamper=changed))))
    assert found.kind is FindingKind.ARCHIVE_DIFFERS
    assert "payloads are not the same" in found.what


def test_another_id_shows_in_the_hash_of_its_day(root: Path) -> None:
    def tamper(rows: Rows) -> Rows:
        return [row | {"_id": bytes(16)} if row["_offset"] == 9 else row for row in rows]

    found = only(audited(root, AuditRequest(topics=(ORDERS,), against=archived(root, tamper=tamper))))
    assert "ids and offsets are not the same" in found.what


def without_payload(row: dict[str, Any]) -> dict[str, Any]:
    """Return rows as a table has them that keeps no payloads of what became columns."""
    return row | {"_value": None} if row["_schema_id"] is not None else row


@pytest.fixture
def typed(root: Path, tmp_path: Path) -> AuditRequest:
    """Write messages that name a schema beside others, on a day of their own."""
    record = VersionRecord(subject="orders-value", version=1, id=1, schema_type=SchemaKind.STRING, schema="string")
    (tmp_path / "schemas.jsonl").write_bytes(msgspec.json.encode(record))
    named = [numbered(300 + n, schema=SchemaRef(1, 1)) for n in range(4)]
    append(root, [*named, numbered(400), numbered(401)])
    return AuditRequest(topics=(ORDERS,), registry=str(tmp_path / "schemas.jsonl"))


def test_an_archive_without_payloads_of_typed_rows_is_compared_by_all_else(root: Path, typed: AuditRequest) -> None:
    warehouse = archived(root, tamper=lambda rows: list(map(without_payload, rows)))
    found = audited(root, replace(typed, against=warehouse))
    assert found.is_clean
    assert [each.comparison.has_payloads for each in found.partitions if each.comparison] == [False]


def test_it_may_have_payloads_of_what_did_not_decode(root: Path, typed: AuditRequest) -> None:
    def tamper(rows: Rows) -> Rows:
        return [row if row["_offset"] == 201 else without_payload(row) for row in rows]

    warehouse = archived(root, tamper=tamper, bad=lambda row: row["_offset"] == 201)
    assert audited(root, replace(typed, against=warehouse)).is_clean


def test_a_day_with_payloads_of_some_typed_rows_alone_is_a_finding(root: Path, typed: AuditRequest) -> None:
    def tamper(rows: Rows) -> Rows:
        return [without_payload(row) if row["_offset"] == 201 else row for row in rows]

    found = only(audited(root, replace(typed, against=archived(root, tamper=tamper))))
    assert (found.kind, "1 of 4 messages that name a schema" in found.what) == (FindingKind.ARCHIVE_DIFFERS, True)


def test_other_payloads_are_compared_on_a_day_without_those_of_typed_rows(root: Path, typed: AuditRequest) -> None:
    def tamper(rows: Rows) -> Rows:
        return [without_payload(row) if row["_offset"] != 205 else row | {"_value": b"FORGED"} for row in rows]

    found = only(audited(root, replace(typed, against=archived(root, tamper=tamper))))
    assert "payloads are not the same" in found.what


def test_a_row_without_payload_that_names_no_schema_is_a_finding(root: Path) -> None:
    def tamper(rows: Rows) -> Rows:
        return [row | {"_value": None} if row["_offset"] == 13 else row for row in rows]

    found = only(audited(root, AuditRequest(topics=(ORDERS,), against=archived(root, tamper=tamper))))
    assert (found.kind, "have no payload" in found.what) == (FindingKind.ARCHIVE_DIFFERS, True)


@pytest.mark.parametrize(
    "other",
    [{"_key": b"x"}, {"_type": "x"}, {"_producer_id": 9}, {"_request_id": 1}, {"_attributes": [("a", "b")]}],
    ids=lambda other: next(iter(other)),
)
def test_another_field_shows_in_the_hash_of_its_day(root: Path, other: dict[str, Any]) -> None:
    def tamper(rows: Rows) -> Rows:
        return [row | other if row["_offset"] == 9 else row for row in rows]

    found = only(audited(root, AuditRequest(topics=(ORDERS,), against=archived(root, tamper=tamper))))
    assert (found.kind, "keys, types, times" in found.what) == (FindingKind.ARCHIVE_DIFFERS, True)


def test_what_the_archive_lacks_below_the_start_of_the_log_is_named(root: Path) -> None:
    warehouse = archived(root, tamper=lambda rows: [*rows[:20], *rows[80:], *rows[90:92]])
    with Store.open(root) as store:
        store.truncate_before(ORDERS, 101)
    payload_lost, twice = audited(root, AuditRequest(topics=(ORDERS,), against=warehouse)).found.listed
    assert (payload_lost.kind, payload_lost.offset, payload_lost.count) == (FindingKind.NOT_IN_ARCHIVE, 20, 60)
    assert "the log begins at 101" in payload_lost.what
    assert (twice.kind, twice.offset, twice.count) == (FindingKind.TWICE_IN_ARCHIVE, 90, 2)


def test_rows_too_scattered_to_be_told_are_counted_below_the_start_of_the_log(root: Path) -> None:
    warehouse = archived(root, tamper=lambda rows: [row for row in rows if row["_offset"] > 100 or row["_offset"] % 2])
    with Store.open(root) as store:
        store.truncate_before(ORDERS, 101)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archives, "RUNS_MAX", 5)
        found = only(audited(root, AuditRequest(topics=(ORDERS,), against=warehouse)))
    assert (found.kind, found.count) == (FindingKind.NOT_IN_ARCHIVE, 51)


def test_what_did_not_decode_is_in_the_companion_and_belongs_to_the_archive(root: Path) -> None:
    warehouse = archived(root, bad=lambda row: row["_offset"] % 10 == 3)
    assert audited(root, AuditRequest(against=warehouse)).is_clean


def test_what_retention_dropped_since_is_not_held_against_the_archive(root: Path) -> None:
    warehouse = archived(root)
    with Store.open(root) as store:
        store.truncate_before(ORDERS, 101)
    found = audited(root, AuditRequest(topics=(ORDERS,), against=warehouse))
    assert found.is_clean
    (comparison,) = [each.comparison for each in found.partitions]
    assert comparison is not None
    assert (comparison.compared, comparison.rows.elsewhere) == (99, 101)


def test_a_record_that_was_archived_before_it_was_damaged_is_told_of(root: Path) -> None:
    warehouse = archived(root)
    flip(segments(root)[1], 20)
    found = audited(root, AuditRequest(topics=(ORDERS,), against=warehouse))
    assert kinds(found) == [FindingKind.DAMAGED]
    assert found.notes == ("/default/orders[0]: the archive has 1 messages that the log has lost",)


def test_a_log_with_more_damage_than_is_told_is_not_compared(root: Path) -> None:
    warehouse = archived(root)
    for segment in segments(root)[:3]:
        flip(segment, 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_summary, "SAMPLES_MAX", 2)
        found = audited(root, AuditRequest(topics=(ORDERS,), against=warehouse))
    assert kinds(found) == [FindingKind.DAMAGED, FindingKind.DAMAGED]
    assert found.found.count == 3
    assert found.notes[0] == "/default/orders[0]: so much is damaged that it could not be compared with the archive"


def test_an_archive_ahead_of_the_log_is_a_finding(root: Path) -> None:
    warehouse = archived(root)
    with Store.open(root) as store:
        store.delete_topic(ORDERS)
        store.create_topic(ORDERS)
    append(root, [numbered(1)])
    found = audited(root, AuditRequest(topics=(ORDERS,), against=warehouse))
    assert FindingKind.ARCHIVE_AHEAD in kinds(found)
    assert FindingKind.ARCHIVE_DIFFERS in kinds(found)


def test_a_warehouse_without_tables_of_these_topics_cannot_be_compared_with(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"--against .*nothing"):
        audited(root, AuditRequest(against=Warehouse(str(tmp_path / "nothing"))))


def test_a_topic_that_is_not_archived_yet_is_a_note(root: Path) -> None:
    warehouse = archived(root)
    new = TopicName.parse("new")
    with Store.open(root) as store:
        store.create_topic(new)
    append(root, [numbered(1)], topic=new)
    found = audited(root, AuditRequest(against=warehouse))
    assert found.is_clean
    assert found.notes == ("/default/new[0]: not yet archived (lag 1)",)


# parts of it


@pytest.mark.parametrize(
    ("runs", "missing", "twice"),
    [
        ([(0, 10)], [], []),
        ([], [(0, 10)], []),
        ([(0, 4), (6, 10)], [(4, 6)], []),
        ([(0, 6), (4, 10)], [], [(4, 6)]),
        ([(0, 10), (2, 3)], [], [(2, 3)]),
    ],
)
def test_gaps_are_what_is_in_no_run_and_what_is_in_two(
    runs: list[tuple[int, int]], missing: list[tuple[int, int]], twice: list[tuple[int, int]]
) -> None:
    assert missing_and_duplicate(runs, ComparisonScope(0, 10)) == (missing, twice)


def test_what_the_log_has_lost_is_no_gap() -> None:
    assert missing_and_duplicate([(0, 4), (6, 10)], ComparisonScope(0, 10, ((4, 6),))) == ([], [])
    assert RUNS_MAX > 0


def test_tasks_are_neighbours_of_about_equal_size() -> None:
    groups = group_by_bytes([10] * 100, lambda size: size, 2)
    assert [len(group) for group in groups] == [17, 17, 16, 17, 17, 16]
    assert group_by_bytes([], lambda size: size, 2) == []
    assert len(group_by_bytes([TASK_BYTES] * 20, lambda size: size, 2)) == 20
    assert group_by_bytes([0, 0], lambda size: size, 4) == [[0], [0]]
