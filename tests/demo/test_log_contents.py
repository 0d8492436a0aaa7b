"""The survey: what is missing in a log, or should not be there, is seen from its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from penstock.core.errors import MalformedMessage, TopicNotSupported
from penstock.core.names import TopicName
from penstock.demo.base.ledger import Acknowledged
from penstock.demo.base.orders import EventKind, Orders, generate
from penstock.demo.broker.log_contents import LogContents, number_of, read_log
from penstock.demo.report.counting import unexpected_records
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.store import Store

TOPIC = TopicName.parse("orders")


def written(path: Path, payloads: Sequence[bytes]) -> LogContents:
    with Store.open(path, create=True) as store:
        store.create_topic(TOPIC)
        store.append(TOPIC, Draft.of(Message(payload=each, type="order.paid") for each in payloads))
    return read_log(path, TOPIC)


def events(*numbers: int) -> list[bytes]:
    return [b'{"event":%d}' % number for number in numbers]


def acknowledged(*numbers: int, partition: int = 0) -> Acknowledged:
    """Write payloads one behind the other from offset 0 on; return the contents of the log."""
    return Acknowledged(np.array(numbers), np.full(len(numbers), partition), np.arange(len(numbers)))


def test_what_is_where_the_broker_said_is_not_missing(tmp_path: Path) -> None:
    found = written(tmp_path, events(3, 1, 2))
    assert found.missing(acknowledged(3, 1, 2)) == 0
    assert found.times(5).tolist() == [0, 1, 1, 1, 0]


def test_what_is_gone_elsewhere_or_another_is_missing(tmp_path: Path) -> None:
    found = written(tmp_path, events(3, 1))
    assert found.missing(acknowledged(3, 1, 2)) == 1
    assert found.missing(acknowledged(1, 3)) == 2
    assert found.missing(acknowledged(3, 1, partition=1)) == 2


def test_what_is_no_event_is_counted_and_is_nobodys(tmp_path: Path) -> None:
    found = written(tmp_path, [*events(0), b"garbage", b'{"other": 1}'])
    assert len(found) == 3
    assert found.times(1).tolist() == [1]


def test_a_topic_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, events(0))
    with pytest.raises(TopicNotSupported):
        read_log(tmp_path, TOPIC.dead_letters)


def test_a_payload_without_a_number_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="not an event"):
        number_of(b"[]")


# what should not be there


@pytest.fixture(scope="module")
def orders() -> Orders:
    return generate(2000)


def poisoned(orders: Orders) -> int:
    return int(np.flatnonzero(orders.kinds == EventKind.POISONED)[0])


def test_an_event_is_there_once_and_a_poisoned_one_twice(tmp_path: Path, orders: Orders) -> None:
    bad = poisoned(orders)
    found = written(tmp_path, events(0, 1, bad, bad))
    assert unexpected_records(found, acknowledged(0, 1, bad), orders) == 0


@pytest.mark.parametrize(
    "more", ["an event twice", "one that nobody acknowledged", "nothing of ours", "an unknown one"]
)
def test_whatever_else_is_there_is_too_much(tmp_path: Path, orders: Orders, more: str) -> None:
    kinds = {
        "an event twice": events(0),
        "one that nobody acknowledged": events(5),
        "nothing of ours": [b"garbage"],
        "an unknown one": events(2_000_000),
    }
    found = written(tmp_path, [*events(0, 1), *kinds[more]])
    assert unexpected_records(found, acknowledged(0, 1), orders) == 1
