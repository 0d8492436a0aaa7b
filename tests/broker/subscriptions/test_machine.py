"""The subscription machine: stories that can be read aloud, and thousands of lives against a model of plain sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from random import Random
from string import ascii_letters
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from penstock.broker.subscriptions import machine as machine_module
from penstock.broker.subscriptions import ready_queue
from penstock.broker.subscriptions.events import (
    Ack,
    AckCounts,
    AckThrough,
    Connect,
    DeadLetter,
    DeadLettered,
    Deliver,
    Disconnect,
    Evict,
    Extend,
    Fetch,
    LogGrown,
    Lost,
    MachineEffect,
    MachineEvent,
    Nack,
    Pause,
    Promote,
    ReportGap,
    Resume,
    SaveCursor,
    Seek,
    Skip,
    Supplied,
    Tick,
)
from penstock.broker.subscriptions.machine import SubscriptionMachine
from penstock.broker.subscriptions.partition import OffsetRun, PartitionCursor
from penstock.broker.subscriptions.ready_queue import NO_KEY, Consumer, KeySharedQueue
from penstock.core.errors import InvalidRequest, NotOwner, PenstockError
from penstock.core.gaps import Gap
from penstock.core.offset_set import Span, offset_spans
from penstock.core.offsets import Offset, OffsetRange
from penstock.storage.catalog.subscriptions import (
    Cursor,
    SubscriptionKind,
    SubscriptionOptions,
    cursor_text,
    parse_cursor,
)
from penstock.storage.catalog.topics import Exhausted

Choice = TypeVar("Choice")


EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = SubscriptionKind
ALONE = [EXCLUSIVE, FAILOVER]
TOGETHER = [SHARED, KEY_SHARED]


class Story:
    """A machine with a log behind it: fetches are answered at once, and its invariants are checked after every event.

    `keys` has a letter for every message, a dot for a message without a key, and a space for one that the filter
    excludes.
    """

    def __init__(
        self,
        kind: SubscriptionKind = SHARED,
        *,
        end: int = 10,
        keys: str = "",
        partitions: int = 1,
        size: int = 1,
        cursor: Cursor | None = None,
        paused: bool = False,
        **options: Any,
    ) -> None:
        self.keys = keys or "." * end
        self.size = size
        self.now_ms = 0
        self.reads = True
        self.saved: list[int] = []
        """Partitions whose cursor the last event changed."""

        self.missing: list[str] = []
        """Gaps that were reported to consumers."""

        cursors = dict.fromkeys(range(partitions), cursor or Cursor(floor=Offset(0)))
        asked = SubscriptionOptions(kind=kind, **options)
        self.machine = SubscriptionMachine(asked, cursors, dict.fromkeys(cursors, len(self.keys)), paused=paused)

    def tell(self, event: MachineEvent) -> list[str]:
        """Handle an event, and return its effects in words, without reads and saves."""
        self.saved = []
        return self.done(self.machine.handle(event, self.now_ms))

    def done(self, effects: list[MachineEffect]) -> list[str]:
        self.machine.check()
        words: list[str] = []
        for effect in effects:
            if isinstance(effect, SaveCursor):
                self.saved.append(effect.partition)
            elif isinstance(effect, ReportGap):
                self.missing.append(self.words(effect))
            elif isinstance(effect, Fetch) and self.reads:
                words += self.done(self.machine.handle(self.supplied(effect), self.now_ms))
            else:
                words.append(self.words(effect))
        return words

    def after(self, ms: int) -> list[str]:
        self.now_ms += ms
        return self.tell(Tick())

    def supplied(self, asked: Fetch, most: int = 1000) -> Supplied:
        stop = min(len(self.keys), asked.offset + most)
        wanted = [offset for offset in range(asked.offset, stop) if self.keys[offset] != " "]
        runs = [OffsetRun(start, end, self.size * (end - start)) for start, end in offset_spans(wanted)]
        slots = [slot_of(self.keys[offset]) for offset in wanted]
        return Supplied(asked.partition, asked.offset, runs, stop, slots)

    def grow(self, keys: str) -> list[str]:
        self.keys += keys
        return self.tell(LogGrown(0, len(self.keys)))

    def words(self, effect: MachineEffect) -> str:
        match effect:
            case Deliver(consumer, partition, spans):
                return f"{consumer} gets {self.offsets(partition, spans)}"
            case Fetch(partition, offset):
                return f"fetch from {self.offsets(partition, [(offset, offset + 1)])}"
            case DeadLetter(partition, offset, attempts, reason):
                return f"dead-letter {self.offsets(partition, [(offset, offset + 1)])} after {attempts}: {reason}"
            case AckCounts(messages):
                return f"{messages} counted"
            case Promote(consumer):
                return f"{consumer} is active"
            case Evict(consumer):
                return f"{consumer} is evicted"
            case SaveCursor(partition):
                return f"save {partition}"
            case ReportGap(partition, (start, stop, reason), messages):
                return f"{messages} of {self.offsets(partition, [(start, stop)])} missing: {reason}"

    def offsets(self, partition: int, spans: Iterable[Span]) -> str:
        where = f" of {partition}" if len(self.machine.cursors) > 1 else ""
        return ", ".join(f"{start}" if stop == start + 1 else f"{start}-{stop - 1}" for start, stop in spans) + where

    def restarted(self) -> Story:
        """Return the same subscription after a restart of the broker, with no consumer connected."""
        again = Story(keys=self.keys, size=self.size)
        cursors = {each: cursor.snapshot() for each, cursor in self.machine.cursors.items()}
        again.machine = SubscriptionMachine(
            self.machine.options, cursors, dict.fromkeys(cursors, len(self.keys)), paused=self.machine.paused
        )
        again.now_ms = self.now_ms
        return again

    @property
    def cursor(self) -> PartitionCursor:
        return self.machine.cursors[0]


def slot_of(key: str) -> int:
    return NO_KEY if key == "." else ord(key)


def key_of(consumer: str, *others: str) -> str:
    """Return a key that goes to this consumer when those others are connected too."""
    queue = KeySharedQueue()
    queue.set_consumers({each: Consumer(each, each, 1, 1) for each in (consumer, *others)})
    return next(key for key in ascii_letters if queue._owner(slot_of(key)) == consumer)


def join(consumer: str, name: str | None = None, *, window: int = 1000, window_bytes: int = 1_000_000) -> Connect:
    return Connect(consumer, name or consumer, window, window_bytes)


def ack(consumer: str, *offsets: int, partition: int = 0) -> Ack:
    return Ack(consumer, partition, list(offset_spans(offsets)))


def nack(consumer: str, *offsets: int, delay_ms: int | None = None) -> Nack:
    return Nack(consumer, 0, list(offset_spans(offsets)), delay_ms, "no")


# deliveries


def test_exclusive_refuses_a_second_consumer_and_nothing_changes() -> None:
    story = Story(EXCLUSIVE)
    assert story.tell(join("a")) == ["a is active", "a gets 0-9"]
    with pytest.raises(NotOwner, match="this subscription is exclusive, and consumer 'a' has it") as refused:
        story.tell(join("b"))
    assert refused.value.details == {"consumer": "a"}
    assert list(story.machine.consumers) == ["a"]
    assert story.tell(ack("a", 0)) == ["1 counted"]


def test_exclusive_lets_the_same_name_take_over_with_all_that_was_in_flight() -> None:
    story = Story(EXCLUSIVE)
    story.tell(join("a", "ann"))
    story.tell(ack("a", 0, 1))
    assert story.tell(join("b", "ann")) == ["a is evicted", "b is active", "b gets 2-9"]
    assert story.tell(ack("a", 2)) == ["0 counted"]
    assert story.tell(ack("b", 2)) == ["1 counted"]


def test_exclusive_is_free_again_when_its_consumer_has_gone() -> None:
    story = Story(EXCLUSIVE)
    story.tell(join("a"))
    assert story.tell(Disconnect("a")) == []
    assert story.tell(join("b")) == ["b is active", "b gets 0-9"]


def test_failover_serves_the_first_and_promotes_the_next_at_once_when_it_goes() -> None:
    story = Story(FAILOVER)
    assert story.tell(join("a")) == ["a is active", "a gets 0-9"]
    assert story.tell(join("b")) == []
    assert story.tell(join("c")) == []
    assert story.tell(ack("a", 0)) == ["1 counted"]
    assert story.tell(Disconnect("a")) == ["b is active", "b gets 1-9"]
    assert story.tell(Disconnect("b")) == ["c is active", "c gets 1-9"]


def test_failover_does_not_mind_when_one_who_waits_goes() -> None:
    story = Story(FAILOVER)
    story.tell(join("a"))
    story.tell(join("b"))
    assert story.tell(Disconnect("b")) == []
    assert story.machine.active == "a"


def test_failover_sends_an_active_consumer_that_comes_back_to_the_end_of_the_line() -> None:
    story = Story(FAILOVER)
    story.tell(join("a", "ann"))
    story.tell(join("b", "bob"))
    assert story.tell(join("c", "ann")) == ["b is active", "a is evicted", "b gets 0-9"]
    assert list(story.machine.consumers) == ["b", "c"]


def test_shared_spreads_messages_by_the_room_that_consumers_have() -> None:
    story = Story(SHARED, end=30, paused=True)
    story.tell(join("a", window=20))
    story.tell(join("b", window=10))
    assert story.tell(Resume()) == ["a gets 0-19", "b gets 20-29"]


def test_shared_gives_few_messages_to_those_with_most_room() -> None:
    story = Story(SHARED, end=4, paused=True)
    story.tell(join("a", window=10))
    story.tell(join("b", window=30))
    assert story.tell(Resume()) == ["b gets 0-2", "a gets 3"]


def test_shared_gives_one_consumer_what_is_too_large_for_the_rest_of_anothers_window() -> None:
    story = Story(SHARED, end=1, size=10)
    story.tell(join("a", window_bytes=15))
    story.tell(join("b", window_bytes=1000))
    assert story.grow("....") == ["b gets 1-4"]


def test_shared_serves_every_partition() -> None:
    story = Story(SHARED, end=2, partitions=3)
    assert story.tell(join("a", window=3)) == ["a gets 0-1 of 0", "a gets 0 of 1"]
    assert story.tell(ack("a", 0, 1)) == ["2 counted", "a gets 1 of 1", "a gets 0 of 2"]


def test_a_message_is_in_flight_at_one_consumer_at_a_time() -> None:
    story = Story(SHARED)
    assert story.tell(join("a")) == ["a gets 0-9"]
    assert story.tell(join("b")) == []
    assert story.tell(ack("b", 0)) == ["0 counted"]
    assert story.tell(nack("b", 0)) == ["0 counted"]
    assert story.tell(Disconnect("a")) == ["b gets 0-9"]


def test_what_was_in_flight_at_a_consumer_that_goes_has_not_failed() -> None:
    story = Story(SHARED, redeliveries=0)
    story.tell(join("a"))
    story.tell(Disconnect("a"))
    assert story.tell(join("b")) == ["b gets 0-9"]
    assert story.machine.attempt(0, 0) == 1


def test_somebody_who_was_never_there_can_go() -> None:
    story = Story(SHARED)
    assert story.tell(Disconnect("nobody")) == []


# in order per key


def test_key_shared_gives_all_messages_of_a_key_to_one_consumer() -> None:
    mine, yours = key_of("a", "b"), key_of("b", "a")
    story = Story(KEY_SHARED, keys=(mine + yours) * 5, paused=True)
    story.tell(join("a"))
    story.tell(join("b"))
    assert story.tell(Resume()) == ["a gets 0, 2, 4, 6, 8", "b gets 1, 3, 5, 7, 9"]


def test_key_shared_gives_messages_without_a_key_to_whoever_has_most_room() -> None:
    story = Story(KEY_SHARED, keys="." * 6, paused=True)
    story.tell(join("a", window=2))
    story.tell(join("b", window=6))
    assert story.tell(Resume()) == ["b gets 0-3, 5", "a gets 4"]


def test_key_shared_gives_a_message_without_a_key_to_one_whose_window_has_room_for_it() -> None:
    story = Story(KEY_SHARED, keys=".", size=10)
    story.tell(join("a", window=1000, window_bytes=15))
    story.tell(join("b", window=10, window_bytes=1000))
    assert story.grow(".") == ["b gets 1"]


def test_a_key_whose_consumer_should_change_waits_until_nothing_of_it_is_in_flight() -> None:
    key = key_of("b", "a")
    story = Story(KEY_SHARED, keys=key * 2)
    assert story.tell(join("a")) == ["a gets 0-1"]
    assert story.tell(join("b")) == []
    assert story.grow(key) == []
    assert story.tell(ack("a", 0)) == ["1 counted"]
    assert story.tell(ack("a", 1)) == ["1 counted", "b gets 2"]


def test_a_key_goes_on_at_another_consumer_in_order_when_its_own_dies() -> None:
    key = key_of("b", "a")
    story = Story(KEY_SHARED, keys=key * 4, paused=True)
    story.tell(join("a"))
    story.tell(join("b", window=2))
    assert story.tell(Resume()) == ["b gets 0-1"]
    assert story.tell(Disconnect("b")) == ["a gets 0-3"]


def test_a_key_goes_back_to_a_consumer_that_comes_again_under_its_name() -> None:
    story = Story(KEY_SHARED, keys="xxx")
    story.tell(join("a", "ann", window=2))
    assert story.tell(join("b", "ann", window=2)) == ["a is evicted", "b gets 0-1"]
    assert story.tell(ack("a", 0)) == ["0 counted"]
    assert story.tell(ack("b", 0)) == ["1 counted", "b gets 2"]


def test_later_messages_of_a_key_wait_while_an_earlier_one_waits_to_be_tried_again() -> None:
    story = Story(KEY_SHARED, keys="xy")
    story.tell(join("a"))
    assert story.tell(nack("a", 0)) == ["1 counted"]
    assert story.grow("xyx") == ["a gets 3"]
    assert story.after(1000) == ["a gets 0, 2, 4"]


def test_a_key_waits_for_the_last_of_its_messages_that_are_to_be_tried_again() -> None:
    story = Story(KEY_SHARED, keys="xxx")
    story.tell(join("a"))
    story.tell(nack("a", 0, delay_ms=500))
    story.tell(nack("a", 1, delay_ms=100))
    assert story.after(100) == []
    assert story.after(400) == ["a gets 0-1"]


def test_a_message_without_a_key_does_not_wait_for_another_that_is_to_be_tried_again() -> None:
    story = Story(KEY_SHARED, keys=".")
    story.tell(join("a"))
    story.tell(nack("a", 0))
    assert story.grow(".") == ["a gets 1"]


def test_a_key_does_not_wait_for_its_message_that_is_lost_dropped_or_sent_to_the_dead_letters() -> None:
    story = Story(KEY_SHARED, keys="xx")
    story.tell(join("a", window=1))
    story.tell(nack("a", 0))
    assert story.tell(Lost(0, 0, 1)) == ["a gets 1"]
    for exhausted, words in (("drop", []), ("dead_letter", ["dead-letter 0 after 1: no"])):
        story = Story(KEY_SHARED, keys="xx", redeliveries=0, exhausted=Exhausted(exhausted))
        story.tell(join("a", window=1))
        assert story.tell(nack("a", 0)) == ["1 counted", *words, "a gets 1"]


def test_a_key_with_much_to_deliver_does_not_keep_the_other_keys_of_its_consumer_waiting() -> None:
    story = Story(KEY_SHARED, keys="xxxxy")
    assert story.tell(join("a", window=2)) == ["a gets 0-1"]
    assert story.tell(ack("a", 0)) == ["1 counted", "a gets 4"]


def test_messages_with_and_without_a_key_do_not_keep_each_other_waiting() -> None:
    story = Story(KEY_SHARED, keys="xxxx....")
    story.tell(join("a", window=1))
    got = [story.tell(ack("a", *range(8)))[1] for _ in range(4)]
    assert {each[-1] in "0123" for each in got} == {True, False}


# acks


def test_an_acknowledged_message_moves_the_floor_and_the_cursor_is_saved() -> None:
    story = Story(SHARED)
    story.tell(join("a"))
    assert story.tell(ack("a", 0)) == ["1 counted"]
    assert story.saved == [0]
    assert story.cursor.snapshot() == Cursor(floor=Offset(1))


def test_ranges_can_be_acknowledged_in_any_order_and_the_floor_waits_for_the_first() -> None:
    story = Story(SHARED)
    story.tell(join("a"))
    assert story.tell(Ack("a", 0, [(6, 8), (2, 4)])) == ["4 counted"]
    assert story.cursor.snapshot() == Cursor(floor=Offset(0), acked=(OffsetRange.of(2, 4), OffsetRange.of(6, 8)))
    assert story.tell(Ack("a", 0, [(0, 7)])) == ["4 counted"]
    assert story.cursor.snapshot() == Cursor(floor=Offset(8))
    assert story.cursor.backlog == 2


@pytest.mark.parametrize("kind", ALONE)
def test_a_cumulative_ack_settles_everything_up_to_an_offset(kind: SubscriptionKind) -> None:
    story = Story(kind)
    story.tell(join("a"))
    assert story.tell(AckThrough("a", 0, 6)) == ["7 counted"]
    assert story.cursor.floor == 7
    assert story.tell(AckThrough("a", 0, 6)) == ["0 counted"]


@pytest.mark.parametrize("kind", TOGETHER)
def test_a_cumulative_ack_is_refused_where_others_may_hold_what_lies_before(kind: SubscriptionKind) -> None:
    story = Story(kind)
    story.tell(join("a"))
    with pytest.raises(InvalidRequest, match="has no cumulative acks") as refused:
        story.tell(AckThrough("a", 0, 6))
    assert refused.value.details == {"type": kind.value}
    assert story.cursor.floor == 0


def test_a_cumulative_ack_of_one_who_waits_in_line_settles_nothing() -> None:
    story = Story(FAILOVER)
    story.tell(join("a"))
    story.tell(join("b"))
    assert story.tell(AckThrough("b", 0, 9)) == ["0 counted"]
    assert story.cursor.floor == 0


def test_an_ack_after_the_timeout_is_ignored_and_the_message_is_delivered_again() -> None:
    story = Story(SHARED, end=1, ack_timeout_ms=100, backoff_ms=50)
    story.tell(join("a"))
    assert story.after(99) == []
    assert story.after(1) == []
    assert story.tell(ack("a", 0)) == ["0 counted"]
    assert story.saved == []
    assert story.after(50) == ["a gets 0"]
    assert story.machine.attempt(0, 0) == 2


def test_what_nobody_holds_cannot_be_acknowledged_refused_or_extended() -> None:
    story = Story(SHARED, end=2)
    story.tell(join("a"))
    story.tell(ack("a", 0))
    for event in (ack("a", 0), ack("a", 2, 3, 77), Ack("a", 0, [(1, 1)]), Ack("a", 0, []), ack("nobody", 1)):
        assert story.tell(event) == ["0 counted"]
        assert story.saved == []
    assert story.tell(nack("a", 0, 5)) == ["0 counted"]
    assert story.tell(Extend("a", 0, [(0, 1), (5, 9), (1, 1)])) == ["0 counted"]


def test_a_partition_that_is_not_there_is_refused() -> None:
    story = Story(SHARED, partitions=2)
    story.tell(join("a"))
    for event in (ack("a", 0, partition=2), Nack("a", 2, [(0, 1)]), Extend("a", 2, [(0, 1)]), Seek({0: 5, 2: 0})):
        with pytest.raises(InvalidRequest, match="there is no partition 2: 0 to 1"):
            story.tell(event)
    assert story.cursor.floor == 0


def test_one_who_needs_longer_can_extend_and_the_time_begins_again() -> None:
    story = Story(SHARED, end=3, ack_timeout_ms=100, backoff_ms=0)
    story.tell(join("a"))
    story.after(90)
    assert story.tell(Extend("a", 0, [(1, 2)])) == ["1 counted"]
    assert story.saved == []
    assert story.after(10) == ["a gets 0, 2"]
    assert story.tell(ack("a", 1)) == ["1 counted"]
    story.tell(Extend("a", 0, [(0, 3)]))
    assert story.after(90) == []


def test_deadlines_of_what_is_acknowledged_do_not_pile_up_however_long_the_timeout() -> None:
    story = Story(SHARED, end=1, ack_timeout_ms=86_400_000)
    story.tell(join("a", window=1))
    for offset in range(5000):
        story.tell(ack("a", offset))
        story.grow(".")
    assert len(story.machine._deadlines) < 2000
    assert story.after(86_400_000) == []
    assert story.cursor.waiting.count == 1


# nacks


def test_a_refused_message_is_delivered_again_after_the_delay_that_was_asked_for() -> None:
    story = Story(SHARED, end=2)
    story.tell(join("a"))
    assert story.tell(nack("a", 0, delay_ms=250)) == ["1 counted"]
    assert story.saved == [0]
    assert story.machine.next_due_ms() == 250
    assert story.after(249) == []
    assert story.after(1) == ["a gets 0"]


def test_the_time_until_the_next_delivery_doubles_up_to_a_maximum() -> None:
    story = Story(SHARED, end=1, backoff_ms=100, backoff_ms_max=350)
    story.tell(join("a"))
    for wait_ms in (100, 200, 350, 350):
        story.tell(nack("a", 0))
        assert story.after(wait_ms - 1) == []
        assert story.after(1) == ["a gets 0"]
    assert story.machine.attempt(0, 0) == 5


def test_what_failed_before_comes_first() -> None:
    story = Story(SHARED, end=6)
    story.tell(join("a", window=3))
    story.tell(nack("a", 0, 2, delay_ms=10))
    story.tell(nack("a", 1, delay_ms=10))
    assert story.after(10) == []
    assert story.tell(ack("a", 3)) == ["1 counted", "a gets 0"]


def test_without_redeliveries_the_first_failure_is_the_last() -> None:
    story = Story(SHARED, end=2, redeliveries=0)
    story.tell(join("a"))
    assert story.tell(nack("a", 0)) == ["1 counted", "dead-letter 0 after 1: no"]
    assert story.after(30_000) == ["dead-letter 1 after 1: not acknowledged within 30000 ms"]


def test_a_dead_letter_is_acked_once_it_is_stored_and_not_before() -> None:
    story = Story(SHARED, end=2, redeliveries=1, backoff_ms=0)
    story.tell(join("a"))
    story.tell(nack("a", 0))
    assert story.after(0) == ["a gets 0"]
    assert story.tell(nack("a", 0)) == ["1 counted", "dead-letter 0 after 2: no"]
    assert story.cursor.floor == 0
    assert story.tell(DeadLettered(0, 0, stored=True)) == []
    assert story.saved == [0]
    assert story.cursor.floor == 1
    assert story.tell(DeadLettered(0, 0, stored=True)) == []
    assert story.saved == []


def test_a_dead_letter_that_could_not_be_stored_is_tried_again_until_it_is() -> None:
    story = Story(SHARED, end=1, redeliveries=0)
    story.tell(join("a"))
    story.tell(nack("a", 0))
    for _ in range(3):
        assert story.tell(DeadLettered(0, 0, stored=False)) == []
        assert story.after(999) == []
        assert story.after(1) == ["dead-letter 0 after 1: no"]
    story.tell(DeadLettered(0, 0, stored=True))
    assert story.cursor.floor == 1
    assert story.after(100_000) == []


def test_a_dropped_message_counts_as_done() -> None:
    story = Story(SHARED, end=2, redeliveries=0, exhausted=Exhausted.DROP)
    story.tell(join("a"))
    assert story.tell(nack("a", 0)) == ["1 counted"]
    assert (story.cursor.floor, story.machine.dropped) == (1, 1)


def test_a_message_that_blocks_stops_its_partition_until_somebody_resumes() -> None:
    story = Story(SHARED, end=4, partitions=2, redeliveries=0, exhausted=Exhausted.BLOCK)
    story.tell(join("a", window=3))
    assert story.tell(nack("a", 1)) == ["1 counted", "a gets 0 of 1"]
    assert story.tell(ack("a", 0, 2)) == ["2 counted", "a gets 1-2 of 1"]
    assert story.tell(ack("a", 0, partition=1)) == ["1 counted", "a gets 3 of 1"]
    assert story.tell(ack("a", 1, partition=1)) == ["1 counted"]
    assert story.after(10_000) == []
    assert story.tell(Resume()) == ["a gets 1 of 0"]
    assert story.saved == [0]
    assert story.machine.attempt(0, 1) == 1


@pytest.mark.parametrize("keys", [".", "x"])
def test_a_blocked_partition_does_not_stop_the_keys_of_others(keys: str) -> None:
    story = Story(KEY_SHARED, keys=keys * 2, partitions=2, redeliveries=0, exhausted=Exhausted.BLOCK)
    story.tell(join("a", window=1))
    assert story.tell(nack("a", 0)) == ["1 counted", "a gets 0 of 1"]
    assert story.tell(ack("a", 0, partition=1)) == ["1 counted", "a gets 1 of 1"]
    assert story.tell(ack("a", 1, partition=1)) == ["1 counted"]
    assert story.tell(Resume()) == ["a gets 0 of 0"]


def test_other_keys_of_a_blocked_partition_go_on_when_it_is_resumed() -> None:
    story = Story(KEY_SHARED, keys="xy", redeliveries=0, exhausted=Exhausted.BLOCK)
    story.tell(join("a", window=1))
    assert story.tell(nack("a", 0)) == ["1 counted"]
    got = [*story.tell(Resume()), *story.tell(ack("a", 0, 1))]
    assert {"a gets 0", "a gets 1"} <= set(got)


def test_a_seek_past_a_message_that_blocks_gets_the_partition_going() -> None:
    story = Story(SHARED, end=4, redeliveries=0, exhausted=Exhausted.BLOCK)
    story.tell(join("a"))
    story.tell(nack("a", 1))
    assert story.tell(Seek({0: 2})) == ["a gets 2-3"]


def test_a_message_that_blocks_can_be_skipped() -> None:
    story = Story(SHARED, end=4, redeliveries=0, exhausted=Exhausted.BLOCK)
    story.tell(join("a", window=2))
    story.tell(nack("a", 1))
    assert story.tell(Skip(0, 1, 2)) == ["a gets 2"]
    assert story.machine.lost == 0


# pausing, seeking, losing


def test_a_paused_subscription_delivers_and_reads_nothing_until_it_is_resumed() -> None:
    story = Story(SHARED)
    story.tell(Pause())
    story.reads = False
    assert story.tell(join("a")) == []
    assert story.tell(Resume()) == ["fetch from 0"]


def test_what_is_in_flight_can_be_acknowledged_while_paused_and_times_out_as_ever() -> None:
    story = Story(SHARED, end=2, ack_timeout_ms=100, backoff_ms=0)
    story.tell(join("a"))
    story.tell(Pause())
    assert story.tell(ack("a", 0)) == ["1 counted"]
    assert story.after(100) == []
    assert story.tell(Resume()) == ["a gets 1"]


def test_what_was_fetched_for_one_who_has_gone_is_there_for_the_next() -> None:
    story = Story(SHARED, end=5)
    story.reads = False
    assert story.tell(join("a")) == ["fetch from 0"]
    story.tell(Disconnect("a"))
    assert story.tell(story.supplied(Fetch(0, 0))) == []
    assert story.tell(join("b")) == ["b gets 0-4"]


def test_a_seek_backwards_delivers_everything_from_there_again_whatever_was_in_flight() -> None:
    story = Story(SHARED, end=6)
    story.tell(join("a"))
    story.tell(ack("a", 0, 1, 4))
    story.tell(nack("a", 2))
    assert story.tell(Seek({0: 1})) == ["a gets 1-5"]
    assert story.saved == [0]
    assert story.cursor.snapshot() == Cursor(floor=Offset(1))
    assert story.after(1000) == []


def test_a_seek_forwards_leaves_what_lies_between_behind() -> None:
    story = Story(SHARED, end=6)
    story.tell(join("a", window=2))
    assert story.tell(Seek({0: 4})) == ["a gets 4-5"]
    assert story.tell(ack("a", 0)) == ["0 counted"]
    assert story.cursor.floor == 4


def test_a_seek_past_the_end_waits_for_what_is_there_one_day() -> None:
    story = Story(SHARED, end=2)
    story.tell(join("a"))
    assert story.tell(Seek({0: 4})) == []
    assert story.cursor.backlog == 0
    assert story.grow(".") == []
    assert story.grow("..") == ["a gets 4"]
    story.tell(Seek({0: 9}))
    assert story.tell(Seek({0: 5})) == []


def test_a_seek_to_the_end_and_past_it_and_back_reads_no_further_than_the_log_goes() -> None:
    story = Story(SHARED, end=2)
    story.tell(Seek({0: 9}))
    story.tell(Seek({0: 2}))
    story.reads = False
    assert story.tell(join("a")) == []


def test_what_was_being_fetched_before_a_seek_does_not_count_after_it() -> None:
    story = Story(SHARED, end=6)
    story.reads = False
    story.tell(join("a"))
    assert story.tell(Seek({0: 4})) == ["fetch from 4"]
    assert story.tell(story.supplied(Fetch(0, 0))) == []
    assert story.tell(story.supplied(Fetch(0, 4))) == ["a gets 4-5"]


def test_a_fetch_from_where_somebody_sought_to_counts_whoever_asked_for_it() -> None:
    story = Story(SHARED, end=6)
    story.reads = False
    story.tell(join("a"))
    assert story.tell(Seek({0: 0})) == ["fetch from 0"]
    assert story.tell(story.supplied(Fetch(0, 0), most=3)) == ["a gets 0-2", "fetch from 3"]
    assert story.tell(story.supplied(Fetch(0, 0))) == []
    assert story.tell(story.supplied(Fetch(0, 3))) == ["a gets 3-5"]


def test_a_dead_letter_from_before_a_seek_does_not_answer_the_next_one() -> None:
    story = Story(SHARED, end=1, redeliveries=0)
    story.tell(join("a"))
    story.tell(nack("a", 0))
    story.tell(Seek({0: 0}))
    assert story.tell(nack("a", 0)) == ["1 counted", "dead-letter 0 after 1: no"]
    assert story.tell(DeadLettered(0, 0, stored=False)) == []
    assert story.after(5000) == [], "the second dead letter is under way: it is not begun again"
    assert story.tell(DeadLettered(0, 0, stored=True)) == []
    assert story.cursor.floor == 0
    story.tell(DeadLettered(0, 0, stored=True, seek=1))
    assert story.cursor.floor == 1


def test_a_dead_letter_under_way_before_a_seek_acks_nothing_after_it() -> None:
    story = Story(SHARED, end=2, redeliveries=0)
    story.tell(join("a"))
    story.tell(nack("a", 0))
    assert story.tell(Seek({0: 0})) == ["a gets 0-1"]
    story.tell(DeadLettered(0, 0, stored=True))
    story.tell(DeadLettered(0, 0, stored=False))
    assert story.cursor.floor == 0
    assert story.after(1000) == []


def test_a_failure_before_a_seek_is_forgotten() -> None:
    story = Story(SHARED, end=1)
    story.tell(join("a"))
    story.tell(nack("a", 0, delay_ms=500))
    assert story.tell(Seek({0: 0})) == ["a gets 0"]
    assert story.machine.attempt(0, 0) == 1
    assert story.after(500) == []


def test_partitions_are_sought_each_to_its_own_place() -> None:
    story = Story(SHARED, end=4, partitions=3)
    story.tell(join("a"))
    assert story.tell(Seek({0: 1, 2: 3})) == ["a gets 1-3 of 0", "a gets 3 of 2"]
    assert story.saved == [0, 2]


def test_lost_messages_count_as_acked_wherever_they_are() -> None:
    story = Story(SHARED, end=10, redeliveries=1, backoff_ms=0)
    story.tell(join("a", window=6))
    story.tell(nack("a", 0))
    story.after(0)
    story.tell(nack("a", 0))
    story.tell(nack("a", 1, delay_ms=500))
    story.tell(ack("a", 2))
    assert story.tell(Lost(0, 0, 9)) == ["a gets 9"]
    assert story.saved == [0]
    assert (story.cursor.floor, story.machine.lost) == (9, 8)
    assert story.tell(ack("a", 3)) == ["0 counted"]
    assert story.after(1000) == []


def test_lost_messages_in_the_middle_leave_the_others_as_they_were() -> None:
    story = Story(SHARED, end=6)
    story.tell(join("a", window=4))
    assert story.tell(Lost(0, 2, 5)) == ["a gets 5"]
    assert story.tell(ack("a", 0, 1, 5)) == ["3 counted"]
    assert story.cursor.floor == 6


def test_consumers_are_told_of_lost_messages_that_nobody_had_acknowledged() -> None:
    story = Story(SHARED, end=9)
    story.tell(join("a"))
    story.tell(ack("a", 0, 1, 3))
    story.tell(Lost(0, 1, 6, "damaged: by water"))
    assert story.missing == ["3 of 1-5 missing: damaged: by water"]
    story.tell(Lost(0, 0, 6))
    assert (story.missing[1:], story.machine.lost) == ([], 3)


def test_damage_among_what_was_fetched_is_lost_and_told_and_what_the_filter_left_out_is_not() -> None:
    story = Story(SHARED, end=9)
    story.reads = False
    story.tell(join("a"))
    runs = [OffsetRun(0, 2, 2), OffsetRun(5, 9, 4)]
    found = Supplied(0, 0, runs, 9, gaps=[Gap(3, 5, "damaged: by water")])
    assert story.tell(found) == ["a gets 0-1, 5-8"]
    assert story.missing == ["2 of 3-4 missing: damaged: by water"]
    assert story.machine.lost == 2
    assert story.tell(ack("a", 0, 1, *range(5, 9))) == ["6 counted"]
    assert story.cursor.floor == 9


def test_damage_that_was_told_before_a_seek_is_told_again_by_who_reads_it_again() -> None:
    story = Story(SHARED, end=4)
    story.reads = False
    story.tell(join("a"))
    found = Supplied(0, 0, [OffsetRun(0, 1, 1), OffsetRun(2, 4, 2)], 4, gaps=[Gap(1, 2, "damaged: by water")])
    story.tell(found)
    assert story.tell(Seek({0: 0})) == ["fetch from 0"]
    story.tell(found)
    assert (len(story.missing), story.machine.lost) == (2, 2)


def test_part_of_what_waits_to_be_tried_again_can_be_lost() -> None:
    story = Story(SHARED, end=5)
    story.tell(join("a"))
    story.tell(nack("a", 0, 1, 2, 3, 4))
    story.tell(Lost(0, 1, 3))
    assert story.after(1000) == ["a gets 0, 3-4"]


def test_a_fetch_that_finds_nothing_but_loss_goes_on_behind_it() -> None:
    story = Story(SHARED, end=9)
    story.reads = False
    story.tell(join("a"))
    assert story.tell(Lost(0, 0, 5)) == ["fetch from 5"]
    assert story.cursor.floor == 5


def test_a_fetch_that_finds_nothing_but_loss_goes_on_behind_it_while_others_are_in_flight() -> None:
    story = Story(SHARED, end=9)
    story.reads = False
    story.tell(join("a"))
    assert story.tell(story.supplied(Fetch(0, 0), most=2)) == ["a gets 0-1", "fetch from 2"]
    assert story.tell(Lost(0, 2, 5)) == ["fetch from 5"]
    assert story.tell(story.supplied(Fetch(0, 2))) == []
    assert story.tell(story.supplied(Fetch(0, 5))) == ["a gets 5-8"]
    assert (story.cursor.floor, story.machine.lost) == (0, 3)


def test_what_is_lost_before_anybody_looked_at_it_is_counted_once_and_not_delivered() -> None:
    story = Story(SHARED, end=9)
    story.reads = False
    story.tell(join("a"))
    assert story.tell(Lost(0, 4, 6)) == []
    assert story.tell(Lost(0, 3, 6)) == []
    assert story.machine.lost == 3
    assert story.tell(story.supplied(Fetch(0, 0))) == ["a gets 0-2, 6-8"]


def test_what_was_acknowledged_behind_a_loss_stays_acknowledged() -> None:
    story = Story(SHARED, end=9, cursor=Cursor(floor=Offset(0), acked=(OffsetRange.of(6, 8),), failures={8: 3}))
    story.tell(Lost(0, 0, 4))
    assert story.tell(join("a")) == ["a gets 4-5, 8"]
    assert story.machine.attempt(0, 8) == 4


# filters


def test_filtered_messages_count_as_acked_and_leaves_no_holes() -> None:
    story = Story(SHARED, keys=" ..  . ")
    assert story.tell(join("a")) == ["a gets 1-2, 5"]
    assert story.saved == [0]
    assert story.cursor.floor == 1
    story.tell(ack("a", 5))
    assert story.cursor.snapshot() == Cursor(floor=Offset(1), acked=(OffsetRange.of(3, 7),))
    story.tell(ack("a", 1, 2))
    assert (story.cursor.floor, story.cursor.backlog) == (7, 0)


def test_a_log_of_which_nothing_is_wanted_is_read_to_its_end() -> None:
    story = Story(KEY_SHARED, keys="      ")
    assert story.tell(join("a")) == []
    assert story.cursor.floor == 6


def test_slots_belong_to_the_messages_that_are_wanted_and_not_acked_yet() -> None:
    key, other = key_of("a", "b"), key_of("b", "a")
    cursor = Cursor(floor=Offset(0), acked=(OffsetRange.of(2, 4),))
    story = Story(KEY_SHARED, keys=f"{key} {key}{key}{other}{key}", cursor=cursor, paused=True)
    story.tell(join("a"))
    story.tell(join("b"))
    assert story.tell(Resume()) == ["a gets 0, 5", "b gets 4"]


# windows


def test_a_consumer_never_has_more_than_its_window_in_flight() -> None:
    story = Story(SHARED)
    assert story.tell(join("a", window=3)) == ["a gets 0-2"]
    assert story.tell(ack("a", 1)) == ["1 counted", "a gets 3"]


def test_a_consumer_never_has_more_bytes_in_flight_than_its_window() -> None:
    story = Story(SHARED, size=10)
    assert story.tell(join("a", window_bytes=35)) == ["a gets 0-2"]
    assert story.tell(ack("a", 0, 1)) == ["2 counted", "a gets 3-4"]


@pytest.mark.parametrize("kind", SubscriptionKind)
def test_a_message_larger_than_the_window_is_delivered_when_nothing_is_in_flight(kind: SubscriptionKind) -> None:
    story = Story(kind, end=2, size=50)
    assert story.tell(join("a", window_bytes=35))[-1] == "a gets 0"
    assert story.tell(ack("a", 0)) == ["1 counted", "a gets 1"]


def test_where_a_message_ends_is_known_and_the_window_is_filled_exactly() -> None:
    story = Story(SHARED, end=4)
    story.reads = False
    story.tell(join("a", window_bytes=10))
    assert story.tell(Supplied(0, 0, [OffsetRun(0, 4, 24, [1, 3, 10, 24])], 4)) == ["a gets 0-2"]


def test_nothing_is_read_while_nobody_has_room() -> None:
    story = Story(SHARED, end=2)
    assert story.tell(join("a", window=2)) == ["a gets 0-1"]
    story.reads = False
    assert story.grow("..") == []
    assert story.tell(ack("a", 0)) == ["1 counted", "fetch from 2"]


def test_nothing_is_read_twice_at_a_time() -> None:
    story = Story(SHARED)
    story.reads = False
    assert story.tell(join("a")) == ["fetch from 0"]
    assert story.grow(".") == []
    assert story.tell(join("b")) == []


def test_nothing_new_is_read_while_too_much_waits_to_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "WAITING_MAX", 3)
    story = Story(SHARED, end=4)
    story.tell(join("a"))
    story.tell(nack("a", 0, 1, 2))
    assert story.grow(".") == []
    assert story.after(1000) == ["a gets 0-2", "a gets 4"]


def test_nothing_new_is_read_while_too_much_waits_to_be_dead_lettered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "WAITING_MAX", 3)
    story = Story(SHARED, end=4, redeliveries=0)
    story.tell(join("a"))
    story.tell(nack("a", 0, 1, 2))
    assert story.grow(".") == []
    assert story.tell(DeadLettered(0, 2, stored=True)) == ["a gets 4"]


def test_nothing_new_is_read_while_too_much_waits_for_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_queue, "READY_MAX", 3)
    story = Story(KEY_SHARED, keys="x")
    story.tell(join("a"))
    story.tell(nack("a", 0))
    assert story.grow("xxx") == []
    assert story.grow("y") == []
    assert story.after(1000) == ["a gets 0-3", "a gets 4"]


# after a restart


def test_after_a_restart_what_was_in_flight_is_delivered_again_and_what_was_acknowledged_is_not() -> None:
    story = Story(SHARED, end=6)
    story.tell(join("a"))
    story.tell(ack("a", 0, 2, 3))
    assert story.restarted().tell(join("a")) == ["a gets 1, 4-5"]


def test_after_a_restart_failures_count_on() -> None:
    story = Story(SHARED, end=1, redeliveries=1)
    story.tell(join("a"))
    story.tell(nack("a", 0))
    again = story.restarted()
    assert again.tell(join("a")) == ["a gets 0"]
    assert again.machine.attempt(0, 0) == 2
    assert again.tell(nack("a", 0)) == ["1 counted", "dead-letter 0 after 2: no"]


def test_after_a_restart_what_had_its_last_delivery_is_dead_lettered_and_not_delivered_again() -> None:
    story = Story(SHARED, end=3, redeliveries=0)
    story.tell(join("a"))
    assert story.tell(nack("a", 1)) == ["1 counted", "dead-letter 1 after 1: no"]
    dead_letter, delivered = story.restarted().tell(join("a"))
    assert dead_letter.startswith("dead-letter 1 after 1: the last delivery failed before")
    assert delivered == "a gets 0, 2"


@pytest.mark.parametrize("kind", SubscriptionKind)
def test_after_a_restart_what_blocked_still_blocks_until_somebody_resumes(kind: SubscriptionKind) -> None:
    story = Story(kind, keys="aaa", redeliveries=0, exhausted=Exhausted.BLOCK)
    story.tell(join("a"))
    story.tell(nack("a", 0))
    again = story.restarted()
    assert not any("gets" in each for each in again.tell(join("a")))
    assert list(again.cursor.poison) == [0]
    assert again.tell(Resume()) == ["a gets 0-2"]


def test_that_a_message_failed_is_saved_before_it_is_dead_lettered() -> None:
    story = Story(SHARED, end=2, redeliveries=0)
    story.tell(join("a"))
    assert [type(each) for each in story.machine.handle(nack("a", 0), 0)] == [AckCounts, SaveCursor, DeadLetter]
    kinds = [type(each) for each in story.machine.handle(Tick(), story.machine.options.ack_timeout_ms)]
    assert kinds == [SaveCursor, DeadLetter]


def test_after_a_restart_a_paused_subscription_is_still_paused() -> None:
    story = Story(SHARED)
    story.tell(Pause())
    assert story.restarted().tell(join("a")) == []


def test_after_a_restart_the_floor_may_pass_what_was_read_and_nothing_acknowledged_comes_again() -> None:
    story = Story(SHARED, end=9, cursor=Cursor(floor=Offset(0), acked=(OffsetRange.of(2, 6),)))
    story.reads = False
    story.tell(join("a"))
    assert story.tell(story.supplied(Fetch(0, 0), most=2)) == ["a gets 0-1", "fetch from 2"]
    story.tell(ack("a", 0, 1))
    assert story.cursor.floor == 6
    assert story.tell(story.supplied(Fetch(0, 2), most=3)) == ["fetch from 6"]
    assert story.tell(story.supplied(Fetch(0, 6))) == ["a gets 6-8"]


def test_a_loss_where_the_floor_has_already_been_still_ends_the_fetch() -> None:
    story = Story(SHARED, end=9, cursor=Cursor(floor=Offset(0), acked=(OffsetRange.of(2, 6),)))
    story.reads = False
    story.tell(join("a"))
    story.tell(story.supplied(Fetch(0, 0), most=2))
    story.tell(ack("a", 0, 1))
    assert story.tell(Lost(0, 2, 6)) == ["fetch from 6"]


# the model: thousands of lives against a model that keeps every offset by itself


@dataclass
class Page:
    """The model of one partition: every offset by itself, in plain sets."""

    log: list[tuple[int, bool]] = field(default_factory=list)
    """The slot of each message's key, and whether it passes the filter."""

    done: set[int] = field(default_factory=set)
    ready: set[int] = field(default_factory=set)
    flying: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Offsets in flight: the consumer, and the time of delivery."""

    waiting: dict[int, int] = field(default_factory=dict)
    """Offsets that wait for redelivery: until when."""

    dead_lettering: dict[int, int | None] = field(default_factory=dict)
    """Offsets on their way to the dead letters: when to try again, where the last attempt failed."""

    poison: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    """Offsets delivered at least once."""

    position: int = 0
    fetch: int | None = None
    seeks: int = 0

    @property
    def floor(self) -> int:
        return next(offset for offset in count() if offset not in self.done)

    @property
    def cursor(self) -> Cursor:
        above = offset_spans(sorted(offset for offset in self.done if offset > self.floor))
        acked = tuple(OffsetRange.of(start, stop) for start, stop in above)
        return Cursor(floor=Offset(self.floor), acked=acked, failures=self.failures)

    def at(self, consumer: str) -> list[int]:
        return sorted(offset for offset, (who, _) in self.flying.items() if who == consumer)

    def mark_acked(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.done.add(offset)
            self.ready.discard(offset)
            self.poison.discard(offset)
            for each in (self.flying, self.waiting, self.dead_lettering, self.failures):
                each.pop(offset, None)

    def begin_at(self, offset: int) -> None:
        """Reset the model as a seek does."""
        self.done = set(range(offset))
        self.failures = {}
        self.seeks += 1
        self.forget(offset)

    def forget(self, offset: int) -> None:
        """Reset the model as a restart does: nothing is in flight."""
        self.ready, self.poison, self.seen = set(), set(), set()
        self.flying, self.waiting, self.dead_lettering = {}, {}, {}
        self.position, self.fetch = offset, None


picks = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), min_size=1, max_size=3)
"""Choices of a consumer's messages, and how many follow each: others lie between them, and a run of none is allowed."""


in_flight = precondition(lambda self: any(page.flying for page in self.pages.values()))
seldom = precondition(lambda self: self.steps % 5 == 4)
"""A precondition for rules that upset everything, so that something can happen between two of them."""


class Life(RuleBasedStateMachine):
    """A subscription of one kind, everything that can happen to it, and the model that it must agree with."""

    kind: ClassVar[SubscriptionKind]

    @initialize(
        partitions=st.integers(1, 3),
        exhausted=st.sampled_from(Exhausted),
        redeliveries=st.integers(0, 3),
        backoff_ms=st.sampled_from([0, 10, 50]),
        size=st.sampled_from([1, 10]),
        lumpy=st.booleans(),
        prompt=st.booleans(),
    )
    def begin(
        self,
        partitions: int,
        exhausted: Exhausted,
        redeliveries: int,
        backoff_ms: int,
        size: int,
        *,
        lumpy: bool,
        prompt: bool,
    ) -> None:
        self.options = SubscriptionOptions(
            kind=self.kind,
            ack_timeout_ms=100,
            backoff_ms=backoff_ms,
            backoff_ms_max=80,
            redeliveries=redeliveries,
            exhausted=exhausted,
        )
        self.size, self.lumpy, self.prompt = size, lumpy, prompt
        self.steps = 0
        self.pages = {each: Page() for each in range(partitions)}
        self.machine = SubscriptionMachine(
            self.options, {each: Cursor(floor=Offset(0)) for each in self.pages}, dict.fromkeys(self.pages, 0)
        )
        self.now_ms = 0
        self.paused = False
        self.present: dict[str, Connect] = {}
        self.gone: list[str] = []
        self.fetches: list[Fetch] = []
        """Unanswered fetches, also ones that a seek made void."""

        self.dead_letters: list[tuple[int, int, int]] = []
        self.homes: dict[int, str] = {}
        """Consumers of the keys, which stay the same while no consumer joins or leaves."""

        self.dropped = self.lost = self.delivered = 0
        self.expected_dead_letters: list[tuple[int, int]] = []
        self.counted: int | None = None
        self.in_order = True
        self.join("ann", 4, 4 * size)

    # events

    @precondition(lambda self: sum(len(page.log) - page.position for page in self.pages.values()) < 12)
    @rule(
        pick=st.integers(0, 2), messages=st.lists(st.tuples(st.integers(-1, 3), st.booleans()), min_size=1, max_size=6)
    )
    def grow(self, pick: int, messages: list[tuple[int, bool]]) -> None:
        """Append messages. Every second message that the filter would exclude passes after all: most filters pass most
        messages."""
        partition, page = self.page(pick)
        page.log += [(slot, wanted or place % 2 == 0) for place, (slot, wanted) in enumerate(messages)]
        self.tell(LogGrown(partition, len(page.log)))

    @precondition(lambda self: not self.present or self.steps % 3 == 2)
    @rule(name=st.sampled_from(["ann", "bob", "cy"]), window=st.integers(1, 6), window_messages=st.integers(0, 8))
    def connect(self, name: str, window: int, window_messages: int) -> None:
        self.join(name, window, window_messages * self.size)

    def join(self, name: str, window: int, window_bytes: int) -> None:
        event = Connect(f"{name}{len(self.gone) + len(self.present)}", name, window, window_bytes)
        if self.kind is SubscriptionKind.EXCLUSIVE and any(each.name != name for each in self.present.values()):
            self.refused(event, NotOwner)
            return
        for other in [each.consumer for each in self.present.values() if each.name == name]:
            self.gone_with_all(other)
        self.present[event.consumer] = event
        self.homes.clear()
        self.tell(event)

    @seldom
    @precondition(lambda self: self.present)
    @rule(pick=st.integers(0, 5))
    def disconnect(self, pick: int) -> None:
        consumer = picked(list(self.present), pick)
        self.gone_with_all(consumer)
        self.tell(Disconnect(consumer))

    def gone_with_all(self, consumer: str) -> None:
        """Note that a consumer left: what was in flight at it is ready again, and has not failed."""
        del self.present[consumer]
        self.gone.append(consumer)
        self.homes.clear()
        for page in self.pages.values():
            for offset in page.at(consumer):
                del page.flying[offset]
                page.ready.add(offset)

    @precondition(lambda self: self.fetches)
    @rule(
        pick=st.integers(0, 5),
        most=st.integers(1, 9),
        cut=st.integers(1, 9),
        exact=st.booleans(),
        damaged=st.booleans(),
    )
    def supply(self, pick: int, most: int, cut: int, *, exact: bool, damaged: bool) -> None:
        """Answer a fetch. With `damaged`, the messages that the filter would exclude cannot be read instead."""
        asked = self.fetches.pop(pick % len(self.fetches))
        page = self.pages[asked.partition]
        stop = min(asked.offset + most, len(page.log))
        offsets = [each for each in range(asked.offset, stop) if page.log[each][1]]
        unread = set(range(asked.offset, stop)) - set(offsets) if damaged else set()
        if page.fetch == asked.offset:
            self.lost += len(unread - page.done)
            self.supplied(asked.partition, asked.offset, stop)
        gaps = [Gap(*span, "damaged") for span in offset_spans(sorted(unread))]
        slots = [page.log[each][0] for each in offsets] if self.kind is SubscriptionKind.KEY_SHARED else []
        runs = [self.run(part, part_stop, exact=exact) for part, part_stop in self.parts(offsets, cut)]
        self.tell(Supplied(asked.partition, asked.offset, runs, stop, slots, gaps))

    def supplied(self, partition: int, start: int, stop: int) -> None:
        page = self.pages[partition]
        page.fetch, page.position = None, stop
        new = set(range(start, stop)) - page.done
        spent = {each for each in new if page.failures.get(each, 0) > self.options.redeliveries}
        page.ready |= {each for each in new - spent if page.log[each][1]}
        page.mark_acked(each for each in new if not page.log[each][1])
        for offset in spent:
            self.exhaust(partition, offset)

    def parts(self, offsets: list[int], cut: int) -> Iterator[Span]:
        """Yield runs shorter than they could be, which is allowed."""
        for start, stop in offset_spans(offsets):
            yield from ((part, min(part + cut, stop)) for part in range(start, stop, cut))

    def run(self, start: int, stop: int, *, exact: bool) -> OffsetRun:
        ends = list(accumulate(self.size_of(each) for each in range(start, stop)))
        return OffsetRun(start, stop, ends[-1], ends if exact else None)

    def size_of(self, offset: int) -> int:
        return self.size * (1 + offset * 7 % 5) if self.lumpy else self.size

    @in_flight
    @rule(whose=st.integers(0, 9), pick=st.integers(0, 2), which=picks)
    def ack(self, whose: int, pick: int, which: list[tuple[int, int]]) -> None:
        consumer, (partition, page) = self.somebody(whose), self.page(pick)
        spans = self.spans(page, consumer, which)
        self.tell(Ack(consumer, partition, spans), counted=self.acked(page, consumer, spans))

    def acked(self, page: Page, consumer: str, spans: list[Span]) -> int:
        mine = mentioned(page, consumer, spans)
        page.mark_acked(mine)
        return len(mine)

    @in_flight
    @rule(pick=st.integers(0, 5))
    def ack_all(self, pick: int) -> None:
        consumer = picked(list(self.present), pick)
        for partition, page in self.pages.items():
            spans = list(offset_spans(page.at(consumer)))
            self.tell(Ack(consumer, partition, spans), counted=self.acked(page, consumer, spans))

    @in_flight
    @rule(whose=st.integers(0, 9), pick=st.integers(0, 2), offset=st.integers(0, 60))
    def ack_through(self, whose: int, pick: int, offset: int) -> None:
        consumer, (partition, page) = self.somebody(whose), self.page(pick)
        event = AckThrough(consumer, partition, offset % (len(page.log) + 1))
        if self.kind in (SubscriptionKind.SHARED, SubscriptionKind.KEY_SHARED):
            self.refused(event, InvalidRequest)
        else:
            self.tell(event, counted=self.acked(page, consumer, [(0, event.offset + 1)]))

    @in_flight
    @rule(
        whose=st.integers(0, 9), pick=st.integers(0, 2), which=picks, delay_ms=st.sampled_from([None, None, 0, 30, 500])
    )
    def nack(self, whose: int, pick: int, which: list[tuple[int, int]], delay_ms: int | None) -> None:
        consumer, (partition, page) = self.somebody(whose), self.page(pick)
        spans = self.spans(page, consumer, which)
        mine = mentioned(page, consumer, spans)
        for offset in mine:
            self.fail(partition, offset, delay_ms)
        self.tell(Nack(consumer, partition, spans, delay_ms, "no"), counted=len(mine))

    @in_flight
    @rule(pick=st.integers(0, 5))
    def nack_all(self, pick: int) -> None:
        consumer = picked(list(self.present), pick)
        for partition, page in self.pages.items():
            mine = page.at(consumer)
            for offset in mine:
                self.fail(partition, offset, None)
            self.tell(Nack(consumer, partition, list(offset_spans(mine))), counted=len(mine))

    def fail(self, partition: int, offset: int, delay_ms: int | None) -> None:
        page = self.pages[partition]
        del page.flying[offset]
        failed = page.failures[offset] = page.failures.get(offset, 0) + 1
        if failed <= self.options.redeliveries:
            backoff_ms = min(self.options.backoff_ms * 2 ** (failed - 1), self.options.backoff_ms_max)
            page.waiting[offset] = self.now_ms + (backoff_ms if delay_ms is None else delay_ms)
        else:
            self.exhaust(partition, offset)

    def exhaust(self, partition: int, offset: int) -> None:
        page = self.pages[partition]
        if self.options.exhausted is Exhausted.DROP:
            self.dropped += 1
            page.mark_acked([offset])
        elif self.options.exhausted is Exhausted.BLOCK:
            page.poison.add(offset)
        else:
            page.dead_lettering[offset] = None
            self.expected_dead_letters.append((partition, offset))

    @in_flight
    @rule(whose=st.integers(0, 9), pick=st.integers(0, 2), which=picks)
    def extend(self, whose: int, pick: int, which: list[tuple[int, int]]) -> None:
        consumer, (partition, page) = self.somebody(whose), self.page(pick)
        spans = self.spans(page, consumer, which)
        mine = mentioned(page, consumer, spans)
        page.flying |= dict.fromkeys(mine, (consumer, self.now_ms))
        self.tell(Extend(consumer, partition, spans), counted=len(mine))

    @precondition(lambda self: self.steps % 2)
    @rule(ms=st.sampled_from([1, 10, 40, 40, 60, 100, 1000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        for partition, page in self.pages.items():
            for offset in sorted(page.flying):
                if page.flying[offset][1] + self.options.ack_timeout_ms <= self.now_ms:
                    self.fail(partition, offset, None)
        for partition, page in self.pages.items():
            for offset in [each for each, due_ms in page.waiting.items() if due_ms <= self.now_ms]:
                del page.waiting[offset]
                page.ready.add(offset)
            for offset, due_ms in page.dead_lettering.items():
                if due_ms is not None and due_ms <= self.now_ms:
                    page.dead_lettering[offset] = None
                    self.expected_dead_letters.append((partition, offset))
        self.tell(Tick())

    @precondition(lambda self: self.machine.next_due_ms() is not None)
    @rule()
    def something_is_due(self) -> None:
        self.time_passes(max(0, (self.machine.next_due_ms() or 0) - self.now_ms))

    @precondition(lambda self: self.dead_letters)
    @rule(pick=st.integers(0, 9), stored=st.booleans())
    def store_dead_letter(self, pick: int, *, stored: bool) -> None:
        partition, offset, seek = self.dead_letters.pop(pick % len(self.dead_letters))
        page = self.pages[partition]
        meant = offset in page.dead_lettering and seek == page.seeks
        if meant and stored:
            page.mark_acked([offset])
        elif meant:
            page.dead_lettering[offset] = self.now_ms + 1000
        self.tell(DeadLettered(partition, offset, stored, seek))

    @seldom
    @rule(pick=st.integers(0, 2), offset=st.integers(0, 80), everywhere=st.booleans())
    def seek(self, pick: int, offset: int, *, everywhere: bool) -> None:
        partitions = list(self.pages) if everywhere else [pick % len(self.pages)]
        starts = {each: offset % (len(self.pages[each].log) + 3) for each in partitions}
        for partition, start in starts.items():
            self.pages[partition].begin_at(start)
        self.tell(Seek(starts))

    @seldom
    @rule(pick=st.integers(0, 2), start=st.integers(0, 80), length=st.integers(0, 12), skipped=st.booleans())
    def lose(self, pick: int, start: int, length: int, *, skipped: bool) -> None:
        """Lose messages, or skip them as an operator does."""
        partition, page = self.page(pick)
        start %= len(page.log) + 1
        stop = min(start + length, len(page.log))
        new = set(range(start, stop)) - page.done
        page.mark_acked(new)
        if start <= page.position < stop:
            page.position, page.fetch = stop, None
        self.lost += 0 if skipped else len(new)
        self.tell(Skip(partition, start, stop) if skipped else Lost(partition, start, stop))

    @precondition(lambda self: self.fetches)
    @rule(pick=st.integers(0, 5), length=st.integers(1, 9))
    def lose_what_is_fetched(self, pick: int, length: int) -> None:
        """Lose messages before a fetch reads them, as retention may: this is then the fetch's only answer."""
        asked = self.fetches.pop(pick % len(self.fetches))
        self.lose(asked.partition, asked.offset, length, skipped=False)

    @precondition(lambda self: self.steps % 10 == 9)
    @rule()
    def pause(self) -> None:
        self.paused = True
        self.tell(Pause())

    @precondition(lambda self: self.paused or any(page.poison for page in self.pages.values()))
    @rule()
    def resume(self) -> None:
        self.paused = False
        for page in self.pages.values():
            for offset in page.poison:
                page.ready.add(offset)
                del page.failures[offset]
            page.poison.clear()
        self.tell(Resume())

    @seldom
    @rule()
    def restart(self) -> None:
        """Stop the broker, and start it again from the saved cursors."""
        saved = {each: cursor.snapshot() for each, cursor in self.machine.cursors.items()}
        cursors = {each: parse_cursor(cursor.floor, cursor_text(cursor)) for each, cursor in saved.items()}
        assert cursors == saved
        ends = {each: len(page.log) for each, page in self.pages.items()}
        self.machine = SubscriptionMachine(self.options, cursors, ends, paused=self.paused)
        self.gone += self.present
        self.present.clear()
        self.homes.clear()
        self.fetches, self.dead_letters = [], []
        self.dropped = self.lost = self.delivered = 0
        for page in self.pages.values():
            page.forget(page.floor)
        self.tell(Tick())

    # choices

    def page(self, pick: int) -> tuple[int, Page]:
        return picked(list(self.pages.items()), pick)

    def somebody(self, pick: int) -> str:
        """Return a consumer, mostly a connected one, sometimes one that has left."""
        return picked([*self.present, *self.present, *self.present, *self.gone[-1:], "nobody"], pick)

    def spans(self, page: Page, consumer: str, which: list[tuple[int, int]]) -> list[Span]:
        mine = page.at(consumer) or list(range(len(page.log) + 1))
        return [(picked(mine, pick), picked(mine, pick) + length) for pick, length in which]

    @property
    def eligible(self) -> list[str]:
        """Consumers that messages are delivered to."""
        alone = self.kind in (SubscriptionKind.EXCLUSIVE, SubscriptionKind.FAILOVER)
        return list(self.present)[:1] if alone else list(self.present)

    def load(self, consumer: str) -> int:
        return sum(len(page.at(consumer)) for page in self.pages.values())

    def has_room(self, consumer: str, *, more: bool = False) -> bool:
        """Tell whether a consumer has room for one message at all; with `more`, for another one of the usual size."""
        load, seat = self.load(consumer), self.present[consumer]
        taken = self.machine.consumers[consumer].in_flight_bytes
        return load < seat.window and (load == 0 or taken + (self.size if more else 1) <= seat.window_bytes)

    # effects

    def tell(self, event: MachineEvent, *, counted: int | None = None) -> None:
        self.in_order = False
        before = {each: cursor.snapshot() for each, cursor in self.machine.cursors.items()}
        active = self.machine.active
        effects = self.machine.handle(event, self.now_ms)
        self.machine.check()
        for effect in effects:
            self.heed(effect)
        assert [each.messages for each in effects if isinstance(each, AckCounts)] == (
            [] if counted is None else [counted]
        )
        assert not self.expected_dead_letters
        self.check_order()
        self.check_active(active, effects)
        self.check_cursors(before, effects, saves=not isinstance(event, Supplied))
        self.check_windows()
        self.check_nothing_waits_in_vain()
        assert (self.machine.delivered, self.machine.dropped, self.machine.lost) == (
            self.delivered,
            self.dropped,
            self.lost,
        )
        self.in_order = True
        self.steps += 1
        if self.prompt and self.fetches:
            self.supply(0, 9, 9, exact=True, damaged=False)

    def refused(self, event: MachineEvent, error: type[PenstockError]) -> None:
        before = {each: cursor.snapshot() for each, cursor in self.machine.cursors.items()}
        with pytest.raises(error):
            self.machine.handle(event, self.now_ms)
        assert {each: cursor.snapshot() for each, cursor in self.machine.cursors.items()} == before
        assert list(self.machine.consumers) == list(self.present)
        self.machine.check()

    def heed(self, effect: MachineEffect) -> None:
        match effect:
            case Deliver(consumer, partition, spans):
                assert consumer in self.eligible
                assert not self.paused
                assert not self.pages[partition].poison, "a blocked partition delivers nothing"
                for start, stop in spans:
                    for offset in range(start, stop):
                        self.check_delivery(consumer, partition, offset)
            case Fetch(partition, offset):
                self.check_fetch(self.pages[partition], offset)
                self.fetches.append(effect)
            case DeadLetter(partition, offset, attempts, _, seek):
                self.expected_dead_letters.remove((partition, offset))
                self.dead_letters.append((partition, offset, seek))
                assert seek == self.pages[partition].seeks
                assert attempts == self.pages[partition].failures[offset] > self.options.redeliveries

    def check_delivery(self, consumer: str, partition: int, offset: int) -> None:
        page = self.pages[partition]
        assert offset in page.ready, "delivered while it is acked, waits, or is in flight"
        page.ready.remove(offset)
        if self.kind is SubscriptionKind.KEY_SHARED:
            self.check_key(consumer, page, offset)
        page.seen.add(offset)
        page.flying[offset] = (consumer, self.now_ms)
        self.delivered += 1
        assert self.machine.attempt(partition, offset) == page.failures.get(offset, 0) + 1

    def check_order(self) -> None:
        if self.kind is not SubscriptionKind.KEY_SHARED:
            for page in self.pages.values():
                last = max(page.seen, default=-1)
                assert all(each > last or each in page.seen for each in page.ready), "first deliveries are in order"

    def check_key(self, consumer: str, page: Page, offset: int) -> None:
        slot = page.log[offset][0]
        if slot == NO_KEY:
            return
        assert self.homes.setdefault(slot, consumer) == consumer, "a key stays where it is while nobody comes or goes"
        for each in self.pages.values():
            for other, (holder, _) in each.flying.items():
                assert each.log[other][0] != slot or holder == consumer, "a key is at one consumer at a time"
        for earlier in range(offset):
            if page.log[earlier][0] == slot:
                assert earlier not in page.ready, "an earlier message of the key was ready"
                assert earlier not in page.waiting, "an earlier message of the key waits to be tried again"

    def check_fetch(self, page: Page, offset: int) -> None:
        assert page.fetch is None, "one fetch at a time"
        assert not self.paused
        assert not page.poison
        assert any(map(self.has_room, self.eligible)), "nothing is fetched for those who have no room"
        assert offset == max(page.position, page.floor) < len(page.log)
        page.fetch = page.position = offset

    def check_active(self, before: str | None, effects: list[MachineEffect]) -> None:
        assert list(self.machine.consumers) == list(self.present)
        if self.kind in (SubscriptionKind.SHARED, SubscriptionKind.KEY_SHARED):
            assert self.machine.active is None
            return
        promoted = [each.consumer for each in effects if isinstance(each, Promote)]
        active = next(iter(self.present), None)
        assert self.machine.active == active
        assert promoted[-1:] == ([active] if active is not None and active != before else [])

    def check_cursors(self, before: dict[int, Cursor], effects: list[MachineEffect], *, saves: bool) -> None:
        """Check that changed cursors are saved at once, except for skips above the floor, which can be repeated."""
        for partition, page in self.pages.items():
            cursor = self.machine.cursors[partition].snapshot()
            assert cursor == page.cursor
            if cursor != before[partition] and (saves or cursor.floor != before[partition].floor):
                assert [each.partition for each in effects if isinstance(each, SaveCursor)].count(partition) == 1

    def check_windows(self) -> None:
        for consumer, seat in self.present.items():
            load, held = self.load(consumer), self.machine.consumers[consumer]
            assert load == held.in_flight <= seat.window
            assert load <= 1 or held.in_flight_bytes <= seat.window_bytes
            if not self.lumpy:
                assert held.in_flight_bytes == load * self.size

    def check_nothing_waits_in_vain(self) -> None:
        """Check that ready messages are delivered while there is room, and that more are fetched if none are ready."""
        if self.paused or not any(map(self.has_room, self.eligible)):
            return
        for page in self.pages.values():
            if page.poison:
                continue
            if not page.ready and max(page.position, page.floor) < len(page.log):
                assert page.fetch is not None, "nothing is fetched"
            if not self.lumpy:
                assert not any(self.could_go(page, offset) for offset in page.ready), "a message waits in vain"

    def could_go(self, page: Page, offset: int) -> bool:
        """Tell whether nothing holds a message back."""
        slot = page.log[offset][0] if self.kind is SubscriptionKind.KEY_SHARED else NO_KEY
        if slot == NO_KEY:
            return any(self.has_room(each, more=True) for each in self.eligible)
        if any(each.log[waiting][0] == slot for each in self.pages.values() for waiting in each.waiting):
            return False
        holders = {
            holder
            for each in self.pages.values()
            for other, (holder, _) in each.flying.items()
            if each.log[other][0] == slot
        }
        home = self.homes.get(slot)
        if holders - {home}:
            return False
        wanted = self.eligible if home is None else [home]
        return all(self.has_room(each, more=True) for each in wanted)

    # the end

    def teardown(self) -> None:
        """Check that one consumer that acks everything, and some time, can finish the subscription in any state."""
        if self.in_order:
            self.resume()
            for _ in list(self.present):
                self.disconnect(0)
            self.join("last", 1000, 1000)
            while any(page.floor < len(page.log) for page in self.pages.values()):
                self.move_on()
            assert all(cursor.backlog == 0 for cursor in self.machine.cursors.values())
            assert self.machine.consumers[next(iter(self.present))].in_flight == 0

    def move_on(self) -> None:
        if self.fetches:
            self.supply(0, 9, 9, exact=True, damaged=False)
        elif self.dead_letters:
            self.store_dead_letter(0, stored=True)
        elif any(page.poison for page in self.pages.values()):
            self.resume()
        elif any(page.flying for page in self.pages.values()):
            self.ack_all(0)
        else:
            assert self.machine.next_due_ms() is not None, "nothing is under way, and nothing will ever happen"
            self.something_is_due()


def picked(choices: Sequence[Choice], pick: int) -> Choice:
    return choices[pick % len(choices)]


def mentioned(page: Page, consumer: str, spans: list[Span]) -> list[int]:
    return [offset for offset in page.at(consumer) if any(start <= offset < stop for start, stop in spans)]


def live(kind: SubscriptionKind, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        type("Life", (Life,), {"kind": kind}),
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def walk(kind: SubscriptionKind, seeds: range, steps: int) -> None:
    """Walk at random through usual events, with trouble now and then; hypothesis tries the unusual ones."""
    for seed in seeds:
        life = type("Life", (Life,), {"kind": kind})()
        assert isinstance(life, Life)
        try:
            stroll(life, Random(seed), steps)
            life.teardown()
        except BaseException as error:
            error.add_note(f"on walk {seed} of {kind.value}")
            raise


def stroll(life: Life, chance: Random, steps: int) -> None:
    life.begin(
        chance.randint(1, 3),
        chance.choice(list(Exhausted)),
        chance.randint(0, 3),
        chance.choice([0, 10, 50]),
        chance.choice([1, 10]),
        lumpy=chance.random() < 0.3,
        prompt=chance.random() < 0.3,
    )
    for _ in range(steps):
        step(life, chance)


def step(life: Life, chance: Random) -> None:
    def any_of(most: int) -> int:
        return chance.randrange(most + 1)

    def some() -> list[tuple[int, int]]:
        return [(any_of(50), any_of(4)) for _ in range(1 + any_of(2))]

    acts: dict[Callable[[], None], int] = {
        lambda: life.grow(any_of(2), [(any_of(4) - 1, chance.random() < 0.5) for _ in range(1 + any_of(5))]): 10,
        lambda: life.connect(chance.choice(["ann", "bob", "cy"]), 1 + any_of(5), any_of(8)): 6,
        lambda: life.ack(any_of(9), any_of(2), some()): 20,
        lambda: life.ack_through(any_of(9), any_of(2), any_of(60)): 3,
        lambda: life.nack(any_of(9), any_of(2), some(), chance.choice([None, None, 0, 30, 500])): 10,
        lambda: life.extend(any_of(9), any_of(2), some()): 4,
        lambda: life.time_passes(chance.choice([1, 10, 20, 40])): 12,
        lambda: life.seek(any_of(2), any_of(80), everywhere=chance.random() < 0.3): 1,
        lambda: life.lose(any_of(2), any_of(80), any_of(6), skipped=chance.random() < 0.5): 2,
        life.resume: 3,
        life.pause: 1,
        life.restart: 1,
    }
    if life.fetches:
        acts[
            lambda: life.supply(
                any_of(5),
                1 + any_of(8),
                1 + any_of(8),
                exact=chance.random() < 0.5,
                damaged=chance.random() < 0.5,
            )
        ] = 20
        acts[lambda: life.lose_what_is_fetched(any_of(5), 1 + any_of(8))] = 1
    if life.dead_letters:
        acts[lambda: life.store_dead_letter(any_of(9), stored=chance.random() < 0.5)] = 10
    if life.present:
        acts[lambda: life.ack_all(any_of(5))] = 6
        acts[lambda: life.nack_all(any_of(5))] = 2
        acts[lambda: life.disconnect(any_of(5))] = 3
    chance.choices(list(acts), list(acts.values()))[0]()


@pytest.mark.parametrize("kind", SubscriptionKind)
def test_no_life_of_a_subscription_breaks_a_promise(kind: SubscriptionKind) -> None:
    live(kind, 40, 50)


@pytest.mark.parametrize("kind", SubscriptionKind)
def test_no_busy_life_of_a_subscription_breaks_a_promise(kind: SubscriptionKind) -> None:
    walk(kind, range(25), 200)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SubscriptionKind)
def test_no_life_of_a_subscription_breaks_a_promise_for_long(kind: SubscriptionKind) -> None:
    walk(kind, range(25, 500), 300)
    live(kind, 700, 80)
