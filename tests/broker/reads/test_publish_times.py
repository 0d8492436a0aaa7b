"""Publish times: a time is read once, a failed read is repeated."""

from __future__ import annotations

from pathlib import Path

from penstock.broker.reads.publish_times import published_ms
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.store import Store

ORDERS = TopicName.parse("orders")


def test_the_time_of_a_message_is_known_and_that_of_one_to_come_is_not(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(ORDERS)
        log = store.log(ORDERS)
        assert published_ms(log, 0) is None
        store.append(ORDERS, Draft.of([Message(payload=b"a")]))
        (record,) = log.records()
        assert published_ms(log, 0) == record.publish_time_ms
        assert published_ms(log, 7) is None


def test_what_was_truncated_counts_as_the_first_that_is_left(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(ORDERS)
        log = store.log(ORDERS)
        for _ in range(2):
            store.append(ORDERS, Draft.of([Message(payload=b"a")]))
        store.truncate_before(ORDERS, 1)
        assert published_ms(log, 0) == next(log.records()).publish_time_ms


def test_a_topic_that_was_made_again_has_times_of_its_own(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        for _ in range(2):
            store.create_topic(ORDERS)
            store.append(ORDERS, Draft.of([Message(payload=b"a")]))
            log = store.log(ORDERS)
            assert published_ms(log, 0) == next(log.records()).publish_time_ms
            store.delete_topic(ORDERS)
