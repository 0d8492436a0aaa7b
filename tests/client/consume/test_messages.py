"""Messages of a consumer, without a broker."""

from __future__ import annotations

import gc

import pytest
from tests.record.samples import stamped

from penstock.client.consume.messages import Batch, BatchOrigin, StreamMessage
from penstock.core.errors import InvalidRequest
from penstock.record.block import scan
from penstock.record.message import Message


def message(payload: bytes = b"x", **fields: str) -> StreamMessage:
    block, _ = scan(stamped([Message(payload=payload, **fields)], first_offset=7))  # type: ignore[arg-type]
    (found,) = Batch[bytes](block, BatchOrigin("/default/orders", 3, "billing"))
    return found


def test_the_garbage_collector_does_not_look_at_messages() -> None:
    assert not gc.is_tracked(message())


def test_a_message_shows_where_it_comes_from() -> None:
    assert repr(message(b"y" * 50)) == f"StreamMessage(/default/orders 3:7 {b'y' * 40!r})"


def test_messages_are_equal_to_themselves_alone_and_can_be_kept_in_sets() -> None:
    one, other = message(), message()
    assert one != other
    assert len({one, one, other}) == 2


def test_without_a_consumer_nobody_knows_its_value() -> None:
    with pytest.raises(InvalidRequest, match="when a consumer has handed it out"):
        _ = message().value
