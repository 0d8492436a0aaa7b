"""The checker itself: a history in which all is well, and the same with one thing wrong, for every check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.crash.checker import (
    CHECKS,
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    Confirmed,
    Delivered,
    History,
    Sent,
    Settled,
    Stored,
    Watched,
    problems,
)

Doctor = Callable[[History], None]
NAMES = ("alone", "next", "spread", "bykey")
KINDS = dict(zip(NAMES, (EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED), strict=True))


def good() -> History:
    """Two producers, eight messages with two keys, four subscriptions; after the fourth message every consumer gave
    way to another, which had the fourth again."""
    history = History(subscriptions=[Watched(name, "t", kind) for name, kind in KINDS.items()])
    for offset in range(8):
        producer, key = ("p", b"even") if offset % 2 == 0 else ("q", b"odd")
        sent = Sent(10.0 * offset, "t", b"%d" % offset, producer, 1, offset, key)
        history.sent.append(sent)
        history.confirmed.append(Confirmed("t", sent.payload, 0, offset))
        history.stored.append(Stored("t", 0, offset, sent.payload, key))
    for name in NAMES:
        for offset in range(4):
            deliver(history, name, offset, seat="1", at=10.0 * offset + 1)
        for offset in range(3, 8):
            deliver(history, name, offset, seat="2", at=10.0 * offset + 2)
            settle(history, name, offset, seat="2", at=10.0 * offset + 3)
        for offset in range(3):
            settle(history, name, offset, seat="1", at=10.0 * offset + 2)
    return history


def deliver(history: History, name: str, offset: int, *, seat: str, at: float, consumer: str | None = None) -> None:
    stored = history.stored[offset]
    whose = f"{name} {consumer or seat}"
    history.delivered.append(Delivered(at, name, whose, f"{name} {seat}", 0, offset, stored.payload, stored.key))
    history.delivered.sort(key=lambda each: each.at)
    history.taken.add((name, 0, offset))


def settle(history: History, name: str, offset: int, *, seat: str, at: float) -> None:
    history.settled.append(Settled(at, name, f"{name} {seat}", 0, offset))
    history.acked.append(Settled(at + 0.5, name, f"{name} {seat}", 0, offset))


def test_nothing_is_wrong_with_a_good_history() -> None:
    assert problems(good()) == []


def lose(history: History) -> None:
    history.stored[7] = replace(history.stored[7], payload=b"other")


def lose_the_last(history: History) -> None:
    del history.stored[7]


def invent(history: History) -> None:
    history.stored.append(Stored("t", 0, 8, b"8"))


def change_a_key(history: History) -> None:
    history.stored[2] = replace(history.stored[2], key=b"odd")


def store_twice(history: History) -> None:
    history.stored.append(Stored("t", 0, 8, b"6", b"even"))


def swap(history: History) -> None:
    history.sent[0], history.sent[2] = (
        replace(history.sent[0], number=2),
        replace(history.sent[2], number=0),
    )


def outlive_a_successor(history: History) -> None:
    history.sent[2] = replace(history.sent[2], life=2, number=0)


def leave_a_hole(history: History) -> None:
    history.stored[7] = replace(history.stored[7], offset=8)


def move_a_key(history: History) -> None:
    history.stored.append(Stored("t", 1, 0, b"8", b"even"))


def deliver_something_else(history: History) -> None:
    history.delivered[3] = replace(history.delivered[3], payload=b"other")


def deliver_what_is_gone(history: History) -> None:
    history.delivered.append(replace(history.delivered[0], offset=9))


def keep_one_back(history: History) -> None:
    history.taken.discard(("spread", 0, 5))


def deliver_after_the_ack(history: History) -> None:
    deliver(history, "spread", 0, seat="2", at=90.0)


def deliver_later_ones_first(history: History, name: str = "alone") -> None:
    """The sixth before the fifth, which had never come before."""
    history.delivered = [each for each in history.delivered if (each.subscription, each.offset) != (name, 5)]
    deliver(history, name, 5, seat="2", at=65.0)


def deliver_a_key_out_of_order(history: History) -> None:
    history.delivered = [each for each in history.delivered if (each.subscription, each.offset) != ("bykey", 5)]
    deliver(history, "bykey", 5, seat="2", at=79.0)


def serve_two(history: History, name: str = "alone") -> None:
    """The first connection has a message that was sent after the second one had its first."""
    deliver(history, name, 7, seat="1", at=75.0)


def serve_two_of_a_failover(history: History) -> None:
    serve_two(history, "next")


def give_a_message_to_two(history: History) -> None:
    """The third came to the second consumer although the first still had its connection."""
    serve_two(history, "spread")


def give_a_key_to_two(history: History) -> None:
    """The second consumer has an odd one and is served on; a third one gets the next odd one."""
    odd = Sent(76.0, "t", b"8", "q", 1, 8, b"odd")
    history.sent += [odd, replace(odd, at=90.0, payload=b"9", number=9)]
    history.stored += [Stored("t", 0, 8, b"8", b"odd"), Stored("t", 0, 9, b"9", b"odd")]
    for name in NAMES:
        deliver(history, name, 8, seat="2", at=77.0)
        deliver(history, name, 9, seat="3", at=91.0)
    latest = Sent(95.0, "t", b"10", "q", 1, 10, b"even")
    history.sent.append(latest)
    history.stored.append(Stored("t", 0, 10, b"10", b"even"))
    for name in NAMES:
        deliver(history, name, 10, seat="3" if name != "bykey" else "2", at=96.0)


DOCTORED: dict[Doctor, str] = {
    lose: "confirmed_messages_are_stored",
    lose_the_last: "confirmed_messages_are_stored",
    invent: "every_stored_message_was_sent",
    change_a_key: "every_stored_message_was_sent",
    store_twice: "no_message_is_stored_twice",
    swap: "a_producer_s_messages_are_in_order",
    outlive_a_successor: "a_producer_s_messages_are_in_order",
    leave_a_hole: "offsets_are_dense",
    move_a_key: "a_key_has_one_partition",
    deliver_something_else: "what_was_seen_stays",
    deliver_what_is_gone: "what_was_seen_stays",
    keep_one_back: "every_message_is_delivered",
    deliver_after_the_ack: "what_is_acked_stays_acked",
    deliver_later_ones_first: "first_deliveries_are_in_order",
    deliver_a_key_out_of_order: "first_deliveries_are_in_order",
    serve_two: "one_consumer_is_served_at_a_time",
    serve_two_of_a_failover: "one_consumer_is_served_at_a_time",
    give_a_message_to_two: "a_message_is_in_flight_at_one_consumer",
    give_a_key_to_two: "a_key_is_in_flight_at_one_consumer",
}


@pytest.mark.parametrize(("doctor", "check"), DOCTORED.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_doctored_history_is_found_out(doctor: Doctor, check: str) -> None:
    history = good()
    doctor(history)
    assert check in {problem.partition(":")[0] for problem in problems(history)}


def test_every_check_can_fail() -> None:
    assert {check.__name__ for check in CHECKS} == set(DOCTORED.values())


def test_a_key_that_is_split_is_found_by_its_own_check_alone() -> None:
    history = good()
    give_a_key_to_two(history)
    assert {problem.partition(":")[0] for problem in problems(history)} == {"a_key_is_in_flight_at_one_consumer"}


def test_a_message_that_was_refused_may_go_to_another() -> None:
    history = good()
    give_a_message_to_two(history)
    wrong = "a_message_is_in_flight_at_one_consumer"
    assert any(problem.startswith(wrong) for problem in problems(history))
    history.settled += [Settled(32.0 - 0.5, "spread", "spread 1", 0, 3, done=False)]
    history.settled += [Settled(74.0, "spread", "spread 2", 0, 7, done=False)]
    assert not any(problem.startswith(wrong) for problem in problems(history))


# what proves that two had it at once

IN_FLIGHT = {"a_message_is_in_flight_at_one_consumer", "a_key_is_in_flight_at_one_consumer"}


def of_one_key() -> History:
    """Three messages of a key, and two of another, before anybody has them."""
    history = History(subscriptions=[Watched("bykey", "t", KEY_SHARED)])
    for offset, key in enumerate((b"odd", b"odd", b"odd", b"even", b"even")):
        history.sent.append(Sent(10.0 * offset, "t", b"%d" % offset, "p", 1, offset, key))
        history.stored.append(Stored("t", 0, offset, b"%d" % offset, key))
    return history


def found_in(history: History) -> set[str]:
    return {problem.partition(":")[0] for problem in problems(history)} & IN_FLIGHT


def come_late(history: History) -> None:
    """The first consumer is replaced while two messages are on their way to it; they come to the second before."""
    for offset in (0, 1):
        deliver(history, "bykey", offset, seat="2", at=31.0)
        deliver(history, "bykey", offset, seat="1", at=32.0)
    deliver(history, "bykey", 4, seat="2", at=41.0)


def test_what_comes_late_on_a_connection_that_was_replaced_is_at_no_second_consumer() -> None:
    history = of_one_key()
    come_late(history)
    assert found_in(history) == set()


def test_what_comes_on_a_connection_that_is_served_on_is_at_a_second_consumer() -> None:
    history = of_one_key()
    come_late(history)
    deliver(history, "bykey", 3, seat="1", at=42.0)
    assert found_in(history) == set()  # it was sent before they came: it may be late as well
    history.sent[3] = replace(history.sent[3], at=40.0)
    assert found_in(history) == IN_FLIGHT


def come_again(history: History, *, done: bool) -> None:
    """A consumer speaks of a message, loses its connection, and has the message again on the next one; then the next
    message of the key comes to another consumer. Both are served on."""
    deliver(history, "bykey", 0, seat="1a", at=1.0, consumer="1")
    history.settled.append(Settled(2.0, "bykey", "bykey 1", 0, 0, done=done))
    deliver(history, "bykey", 0, seat="1b", at=3.0, consumer="1")
    deliver(history, "bykey", 1, seat="2", at=15.0)
    deliver(history, "bykey", 3, seat="1b", at=31.0, consumer="1")
    deliver(history, "bykey", 4, seat="2", at=41.0)


@pytest.mark.parametrize("done", [True, False])
def test_what_was_said_before_a_connection_broke_may_be_heard_on_the_next_one(*, done: bool) -> None:
    history = of_one_key()
    come_again(history, done=done)
    assert found_in(history) == set()


def test_a_key_stays_with_a_consumer_that_has_its_message_again_and_said_nothing_of_it() -> None:
    history = of_one_key()
    come_again(history, done=True)
    history.settled.clear()
    assert found_in(history) == {"a_key_is_in_flight_at_one_consumer"}


def test_what_was_refused_on_the_same_connection_is_in_flight_when_it_comes_again() -> None:
    history = of_one_key()
    come_again(history, done=False)
    history.delivered = [replace(each, seat=each.consumer) for each in history.delivered]
    assert found_in(history) == {"a_key_is_in_flight_at_one_consumer"}
