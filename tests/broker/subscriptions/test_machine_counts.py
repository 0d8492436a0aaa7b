"""Counters of the subscription machine: each counts messages, however they are batched."""

from __future__ import annotations

import numpy as np

from penstock.broker.subscriptions.events import (
    Ack,
    Connect,
    DeadLettered,
    Disconnect,
    LogGrown,
    MachineEvent,
    Nack,
    Supplied,
    Tick,
)
from penstock.broker.subscriptions.machine import SubscriptionMachine
from penstock.broker.subscriptions.partition import OffsetRun
from penstock.core.offsets import Offset
from penstock.storage.catalog.subscriptions import Cursor, SubscriptionKind, SubscriptionOptions


class Story:
    """One partition with messages that are all in flight at one consumer."""

    def __init__(self, messages: int, **options: int) -> None:
        chosen = SubscriptionOptions(kind=SubscriptionKind.SHARED, ack_timeout_ms=1000, backoff_ms=10, **options)  # type: ignore[arg-type]
        self.machine = SubscriptionMachine(chosen, {0: Cursor(floor=Offset(0))}, {0: 0})
        self.now_ms = 0
        self.do(Connect("a", "a", 100, 10_000))
        self.do(LogGrown(0, messages))
        ends = [int(end) for end in np.arange(1, messages + 1) * 10]
        self.do(Supplied(0, 0, [OffsetRun(0, messages, messages * 10, ends)], messages))

    def do(self, event: MachineEvent, *, now_ms: int | None = None) -> None:
        self.now_ms = self.now_ms if now_ms is None else now_ms
        self.machine.handle(event, self.now_ms)
        self.machine.check()

    @property
    def counts(self) -> dict[str, int]:
        machine = self.machine
        names = ("delivered", "acked", "failed", "redelivered", "dead_lettered", "dropped", "lost")
        return {name: count for name in names if (count := getattr(machine, name))}


def test_messages_delivered_and_acknowledged_are_counted_once_each() -> None:
    story = Story(10)
    story.do(Ack("a", 0, [(0, 4), (5, 6)]))
    story.do(Ack("a", 0, [(0, 4)]))
    assert story.counts == {"delivered": 10, "acked": 5}


def test_what_is_refused_has_failed_and_is_redelivered_when_its_time_has_come() -> None:
    story = Story(10)
    story.do(Nack("a", 0, [(2, 5)]))
    assert story.counts == {"delivered": 10, "failed": 3}
    story.do(Tick(), now_ms=10)
    assert story.counts == {"delivered": 13, "failed": 3, "redelivered": 3}


def test_what_is_not_acknowledged_in_time_has_failed() -> None:
    story = Story(4)
    story.do(Ack("a", 0, [(0, 1)]))
    story.do(Tick(), now_ms=1000)
    assert story.counts == {"delivered": 4, "acked": 1, "failed": 3}


def test_what_a_consumer_held_when_it_left_is_redelivered_and_has_not_failed() -> None:
    story = Story(6)
    story.do(Ack("a", 0, [(0, 2)]))
    story.do(Disconnect("a"))
    assert story.counts == {"delivered": 6, "acked": 2, "redelivered": 4}


def test_a_message_is_buried_once_it_is_stored_and_not_before() -> None:
    story = Story(2, redeliveries=0)
    story.do(Nack("a", 0, [(0, 1)]))
    story.do(DeadLettered(0, 0, stored=False))
    assert story.counts == {"delivered": 2, "failed": 1}
    story.do(DeadLettered(0, 0, stored=True))
    assert story.counts == {"delivered": 2, "failed": 1, "dead_lettered": 1}


def test_the_oldest_delivery_without_an_acknowledgement_is_known() -> None:
    story = Story(3)
    assert story.machine.unacked_since_ms() == 0
    story.do(LogGrown(0, 5), now_ms=300)
    story.do(Supplied(0, 3, [OffsetRun(3, 5, 20, [10, 20])], 5))
    assert story.machine.unacked_since_ms() == 0
    story.do(Ack("a", 0, [(0, 3)]))
    assert story.machine.unacked_since_ms() == 300
    story.do(Ack("a", 0, [(3, 5)]))
    assert story.machine.unacked_since_ms() is None
