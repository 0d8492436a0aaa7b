"""Payloads that do not conform to the schema they name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.record.samples import stamped
from tests.spark.jobs.data_kit import append, audited, kinds, make_data, numbered

from penstock.core.errors import InvalidRequest
from penstock.core.schemas import SchemaKind
from penstock.record.block import Block, scan
from penstock.record.message import Message, SchemaRef
from penstock.schema.registry.transfer import VersionRecord
from penstock.spark.files.location import Location
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.jobs.audit.conformance import Conformance
from penstock.spark.jobs.audit.findings import FindingKind
from penstock.spark.jobs.audit.run import AuditRequest

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "cents", "type": "long"}]}'
JSON = '{"type": "object", "properties": {"cents": {"type": "integer"}}}'


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """Write two schemas of one topic into a file."""
    kinds_ = ((SchemaKind.AVRO, AVRO), (SchemaKind.JSON, JSON))
    records = [
        VersionRecord(subject="orders-value", version=number, id=number, schema_type=kind, schema=text)
        for number, (kind, text) in enumerate(kinds_, 1)
    ]
    path = tmp_path / "schemas.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, records)))
    return path


@pytest.fixture
def conformance(export: Path, tmp_path: Path) -> Conformance:
    return Conformance(RegistryLocation(Location.parse(path=str(tmp_path)), str(export)), "/default/orders")


def block(*messages: tuple[bytes, int | None]) -> Block:
    made = (
        Message(payload=payload, schema=None if schema is None else SchemaRef(schema, schema))
        for payload, schema in messages
    )
    return scan(stamped(made))[0]


def test_payloads_that_decode_by_their_schema_conform(conformance: Conformance) -> None:
    found = conformance(block((b"\x02", 1), (b'{"cents": 5}', 2), (b"anything", None)))
    assert (found.count, found.first) == (0, ())


def test_those_that_do_not_are_named_with_schema_and_reason(conformance: Conformance) -> None:
    found = conformance(block((b"\x02", 1), (b"", 1), (b'{"cents": "five"}', 2), (b"{", 2)))
    assert found.count == 3
    assert [(each.offset, each.schema_id) for each in found.first] == [(1, 1), (2, 2), (3, 2)]
    assert all(each.reason for each in found.first)


def test_a_payload_that_decodes_and_breaks_a_rule_of_its_schema_does_not_conform(tmp_path: Path) -> None:
    rules = (
        '{"type": "object", "properties": {"cents": {"type": "integer", "minimum": 0}, "state": {"enum": ["a", "b"]}},'
        ' "required": ["cents"], "additionalProperties": false}'
    )
    record = VersionRecord(subject="orders-value", version=1, id=1, schema_type=SchemaKind.JSON, schema=rules)
    (tmp_path / "rules.jsonl").write_bytes(msgspec.json.encode(record))
    registry = RegistryLocation(Location.parse(path=str(tmp_path)), str(tmp_path / "rules.jsonl"))
    wrong = (b'{"cents": -5}', b'{"cents": 1, "state": "zzz"}', b'{"cents": 1, "more": true}', b'{"state": "a"}')
    right = (b'{"cents": 5}', b'{"cents": 1,\n "state": "a"}')
    found = Conformance(registry, "/default/orders")(block(*((each, 1) for each in (*wrong, *right))))
    assert (found.count, [each.offset for each in found.first]) == (4, [0, 1, 2, 3])
    assert "cents" in found.first[0].reason


def test_many_payloads_are_judged_piece_by_piece_and_each_that_is_wrong_is_named(conformance: Conformance) -> None:
    given = [(b'{"cents": "%d"}' % n if n % 300 == 7 else b'{"cents": %d}' % n, 2) for n in range(1000)]
    found = conformance(block(*given))
    assert [each.offset for each in found.first] == [7, 307, 607, 907]


def test_a_schema_that_is_not_known_makes_its_messages_nonconforming(conformance: Conformance) -> None:
    found = conformance(block((b"\x02", 9), (b"\x02", 9), (b"\x02", 1)))
    assert (found.count, [each.offset for each in found.first]) == (2, [0, 1])
    assert "9" in found.first[0].reason


def test_an_audit_finds_them_where_it_is_asked_to(tmp_path: Path, export: Path) -> None:
    root = make_data(tmp_path / "data", messages=5)
    good, bad = numbered(50, payload=b"\x02", schema=SchemaRef(1, 1)), numbered(51, payload=b"", schema=SchemaRef(1, 1))
    append(root, [good, bad])
    assert audited(root, AuditRequest(registry=str(export))).is_clean
    found = audited(root, AuditRequest(registry=str(export), schemas=True))
    assert kinds(found) == [FindingKind.NONCONFORMING]
    assert found.found.listed[0].offset == 6
    assert "schema 1 (version 1)" in found.found.listed[0].what


def test_a_registry_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data", messages=1)
    with pytest.raises(InvalidRequest, match="registry="):
        audited(root, AuditRequest(registry=str(tmp_path / "nothing"), schemas=True))
