"""Audit and stats of a log that a broker owns, by its files and through its HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.cli.kit import child_environment

import penstock
from penstock.core.names import TopicName
from penstock.record.message import SchemaRef
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit.run import AuditRequest, audit_with
from penstock.spark.jobs.audit.runners import LocalRunner
from penstock.spark.jobs.stats.stats import stats_with
from penstock.testing import RunningBroker

SCHEMA = '{"type": "object", "required": ["order"], "properties": {"order": {"type": "integer"}}}'

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    small = {"PENSTOCK_STORAGE_SEGMENT_BYTES_FIRST": "16KiB", "PENSTOCK_STORAGE_SEGMENT_BYTES_MAX": "256KiB"}
    small |= {"PENSTOCK_STORAGE_BLOCK_BYTES_MAX": "256KiB", "PENSTOCK_STORAGE_PAYLOAD_BYTES_MAX": "8KiB"}
    environment = child_environment(tmp_path_factory) | small
    with RunningBroker("--http-port", "0", environment=environment) as running:
        yield running
        assert "Traceback" not in running.log


def publish(broker: RunningBroker, topic: str, count: int) -> None:
    with penstock.connect(broker.url) as client:
        client.publish_many(topic, [b'{"order": %d}' % number for number in range(count)])


def test_a_log_is_clean_while_it_is_written(broker: RunningBroker) -> None:
    publish(broker, "busy", 100)
    writer = threading.Thread(target=publish, args=(broker, "busy", 20_000))
    writer.start()
    try:
        while writer.is_alive():
            found = audit_with(LocalRunner(), Location.parse(path=str(broker.data)))
            assert found.is_clean, found.found
    finally:
        writer.join()
    whole = audit_with(LocalRunner(), Location.parse(path=str(broker.data)))
    assert sum(each.summary.records for each in whole.partitions if each.log.topic == "/default/busy") == 20_100


def test_the_same_is_found_by_files_and_over_http(broker: RunningBroker) -> None:
    publish(broker, "quiet", 5000)
    near, far = Location.parse(path=str(broker.data)), Location.parse(url=broker.http_url)
    by_files, by_http = (audit_with(LocalRunner(), where) for where in (near, far))
    assert by_http.is_clean
    assert [each.summary for each in by_http.partitions] == [each.summary for each in by_files.partitions]
    assert stats_with(LocalRunner(), far, by=["type"]).rows == stats_with(LocalRunner(), near, by=["type"]).rows


def test_payloads_are_held_against_the_broker_s_own_schemas(broker: RunningBroker) -> None:
    with penstock.connect(broker.url) as client:
        asked = {"subject": "shaped-value", "type": "JSON", "schema": SCHEMA}
        schema_id = client.ask("system.schema.register", asked)["id"]
        client.ask("system.topic.create", {"topic": "shaped"})
        with client.producer("shaped") as producer:
            for payload in (b'{"order": 1}', b'{"order": "one"}', b'{"order": 2}'):
                producer.send(payload, schema=SchemaRef(schema_id, 1))
    wanted = AuditRequest(topics=(TopicName.parse("shaped"),), schemas=True)
    for where in (Location.parse(path=str(broker.data)), Location.parse(url=broker.http_url)):
        found = audit_with(LocalRunner(), where, wanted)
        (finding,) = found.found.listed
        assert (finding.kind, finding.offset) == ("nonconforming", 1)
