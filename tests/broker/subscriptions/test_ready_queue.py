"""Ready queues by themselves; `test_machine.py` tests them as parts of the machine."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.subscriptions.partition import OffsetRun
from penstock.broker.subscriptions.ready_queue import (
    NO_KEY,
    SLOTS,
    Consumer,
    Dispatched,
    KeySharedQueue,
    OrderedQueue,
    ReadyQueue,
)

MANY = 10**9


def consumers(**windows: int) -> list[Consumer]:
    return [Consumer(name, name, window, MANY) for name, window in windows.items()]


def keyed(*members: Consumer) -> KeySharedQueue:
    queue = KeySharedQueue()
    queue.set_consumers({each.id: each for each in members})
    return queue


def queues(*members: Consumer) -> list[ReadyQueue]:
    return [OrderedQueue([0, 1]), keyed(*members)]


def shares(served: Dispatched) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (consumer, _), runs in served.items():
        found[consumer] += sum(map(len, runs))
    return dict(found)


# consumers


def test_a_consumer_has_room_for_what_its_window_has_not() -> None:
    consumer = Consumer("a", "a", 5, 100)
    consumer.add_in_flight(OffsetRun(0, 3, 60))
    assert consumer.room == 2
    consumer.remove_in_flight(2, 40)
    assert consumer.room == 4
    assert (consumer.in_flight, consumer.in_flight_bytes) == (1, 20)


def test_a_consumer_whose_bytes_are_full_has_no_room() -> None:
    consumer = Consumer("a", "a", 5, 100)
    consumer.add_in_flight(OffsetRun(0, 1, 100))
    assert consumer.room == 0


@given(st.integers(0, 9), st.integers(0, 50), st.integers(1, 9), st.integers(0, 200), st.integers(1, 9))
def test_what_fits_a_consumer_is_within_its_window_or_is_its_only_message(
    window: int, window_bytes: int, count: int, size: int, most: int
) -> None:
    consumer = Consumer("a", "a", window, window_bytes)
    run = OffsetRun(0, count, size)
    while len(run) and consumer.room and (fitting := consumer.capacity_for(run, most)):
        consumer.add_in_flight(run.take_first(fitting))
        assert consumer.in_flight <= window
        assert consumer.in_flight_bytes <= window_bytes or consumer.in_flight == 1
    assert not window or consumer.in_flight


# spreading


@given(st.integers(1, 40), st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_whoever_has_room_gets_a_share_and_nothing_is_left_while_there_is_room(count: int, windows: list[int]) -> None:
    everybody = consumers(**{f"c{place}": window for place, window in enumerate(windows)})
    for queue in queues(*everybody):
        for each in everybody:
            each.in_flight = 0
        queue.supply(0, OffsetRun(0, count, count), [NO_KEY] * count)
        served = shares(queue.dispatch(everybody, ()))
        assert sum(served.values()) == min(count, sum(windows))
        assert all(served.get(each.id, 0) <= each.window for each in everybody)
        if isinstance(queue, OrderedQueue):
            for each in everybody:
                assert served.get(each.id, 0) <= -(-count * each.window // max(1, sum(windows)))


@pytest.mark.parametrize(("window", "window_bytes"), [(1, MANY), (9, 1)])
@pytest.mark.parametrize("slot", [7, NO_KEY])
def test_partitions_take_turns_where_there_is_little_room(window: int, window_bytes: int, slot: int) -> None:
    consumer = Consumer("a", "a", window, window_bytes)
    for queue in queues(consumer):
        for partition in (0, 1):
            queue.supply(partition, OffsetRun(0, 5, 5), [slot] * 5)
        turns = []
        for _ in range(4):
            (((_, partition), (run,)),) = queue.dispatch([consumer], ()).items()
            queue.release(partition, run.start, run.stop)
            consumer.remove_in_flight(len(run), run.size)
            turns.append(partition)
        assert turns == [0, 1, 0, 1]


def test_a_large_message_keeps_its_turn_until_there_is_room_for_it() -> None:
    consumer = Consumer("a", "a", 9, 10)
    for queue in queues(consumer):
        consumer.in_flight = consumer.in_flight_bytes = 0
        queue.supply(0, OffsetRun(0, 1, 8), [NO_KEY])
        queue.supply(1, OffsetRun(0, 1, 8), [NO_KEY])
        assert [key[1] for key in queue.dispatch([consumer], ())] == [0]
        queue.supply(0, OffsetRun(1, 2, 1), [NO_KEY])
        assert not queue.dispatch([consumer], ())
        queue.release(0, 0, 1)
        consumer.remove_in_flight(1, 8)
        assert [key[1] for key in queue.dispatch([consumer], ())] == [1, 0]


def test_nothing_is_served_of_blocked_partitions() -> None:
    everybody = consumers(a=9)
    for queue in queues(*everybody):
        everybody[0].in_flight = 0
        for partition in (0, 1):
            queue.supply(partition, OffsetRun(0, 2, 2), [7, NO_KEY])
        assert [partition for _, partition in queue.dispatch(everybody, [0])] == [1]
        assert [partition for _, partition in queue.dispatch(everybody, [])] == [0]


@pytest.mark.parametrize("place", range(2))
def test_what_is_discarded_or_cleared_is_not_served(place: int) -> None:
    everybody = consumers(a=99)
    queue = queues(*everybody)[place]
    queue.supply(0, OffsetRun(0, 10, 10), [1, 2, NO_KEY, 1, 2, NO_KEY, 1, 2, NO_KEY, 1])
    queue.supply(1, OffsetRun(0, 2, 2), [1, 2])
    queue.discard(0, 3, 8)
    queue.discard(0, 9, 9)
    assert sorted(queue.spans(0)) in ([(0, 3), (8, 10)], [(each, each + 1) for each in (0, 1, 2, 8, 9)])
    queue.clear(1)
    assert queue.is_drained(1)
    assert not queue.is_drained(0)
    assert shares(queue.dispatch(everybody, ())) == {"a": 5}
    assert queue.is_drained(0)
    assert not list(queue.spans(0))


# keys


@pytest.mark.parametrize("count", [2, 3, 10, 50])
def test_keys_are_spread_evenly_over_any_number_of_consumers(count: int) -> None:
    queue = keyed(*consumers(**{f"consumer-{place}": 1 for place in range(count)}))
    owned = Counter(map(queue._owner, range(SLOTS)))
    assert len(owned) == count
    assert max(owned.values()) < 2 * SLOTS / count
    assert min(owned.values()) > SLOTS / count / 2


def test_who_comes_or_goes_takes_only_its_own_keys_along() -> None:
    few = consumers(a=1, b=1, c=1)
    queue = keyed(*few)
    before = [queue._owner(slot) for slot in range(SLOTS)]
    queue.set_consumers({each.id: each for each in (*few, *consumers(d=1))})
    after = [queue._owner(slot) for slot in range(SLOTS)]
    assert all(now in (was, "d") for was, now in zip(before, after, strict=True))
    assert "d" in after


def test_a_thousand_messages_of_a_key_come_back_in_order_in_any_order() -> None:
    (consumer,) = consumers(a=1000)
    queue = keyed(consumer)
    queue.supply(0, OffsetRun(0, 1000, 1000), [5] * 1000)
    (runs,) = queue.dispatch([consumer], ()).values()
    for run in runs:
        queue.hold(0, run.start, run.stop)
        queue.release(0, run.start, run.stop)
    consumer.remove_in_flight(1000, 1000)
    for run in runs[::2] + runs[1::2][::-1]:
        assert not queue.dispatch([consumer], ())
        queue.requeue(0, run)
    (again,) = queue.dispatch([consumer], ()).values()
    assert [run.start for run in again] == list(range(1000))


def test_nothing_is_remembered_of_messages_that_are_settled() -> None:
    (consumer,) = consumers(a=10)
    queue = keyed(consumer)
    queue.supply(0, OffsetRun(0, 10, 10), [1, 2, 3, NO_KEY, 1, 2, 3, NO_KEY, 1, 2])
    queue.dispatch([consumer], ())
    queue.release(0, 0, 10)
    queue.hold(0, 0, 5)
    queue.forget(0, 0, 10)
    assert not any((queue._slots, queue._holders, queue._held, queue._ready, any(queue._open.values())))
