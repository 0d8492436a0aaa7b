"""Which segments may go: a decision made of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.catalog.topics import Retention
from penstock.storage.log.retention import SegmentAge, expired_count

ACTIVE = SegmentAge(size=10, count=1, last_time_ms=0)

segments = st.builds(SegmentAge, size=st.integers(1, 100), count=st.integers(1, 100), last_time_ms=st.integers(0, 1000))
bounds = st.none() | st.integers(1, 500)
policies = st.builds(Retention, age_ms=bounds, bytes=bounds, count=bounds)


def aged(*times: int) -> list[SegmentAge]:
    return [SegmentAge(size=10, count=5, last_time_ms=time) for time in times]


def test_without_a_policy_nothing_goes() -> None:
    assert expired_count(aged(1, 2, 3), ACTIVE, Retention(), now_ms=10**9) == 0


def test_a_segment_goes_when_its_newest_message_is_older_than_the_age() -> None:
    assert expired_count(aged(100, 200, 300), ACTIVE, Retention(age_ms=50), now_ms=251) == 2
    assert expired_count(aged(100, 200, 300), ACTIVE, Retention(age_ms=50), now_ms=250) == 1


def test_at_least_the_bytes_asked_for_are_kept() -> None:
    assert expired_count(aged(1, 2, 3), ACTIVE, Retention(bytes=30), now_ms=0) == 1
    assert expired_count(aged(1, 2, 3), ACTIVE, Retention(bytes=31), now_ms=0) == 0


def test_at_least_the_messages_asked_for_are_kept() -> None:
    assert expired_count(aged(1, 2, 3), ACTIVE, Retention(count=6), now_ms=0) == 2
    assert expired_count(aged(1, 2, 3), ACTIVE, Retention(count=7), now_ms=0) == 1


def test_only_the_oldest_go_even_if_a_newer_one_is_older_by_its_clock() -> None:
    assert expired_count(aged(300, 100), ACTIVE, Retention(age_ms=50), now_ms=200) == 0


@given(st.lists(segments, max_size=8), segments, policies, st.integers(0, 2000))
def test_what_is_kept_satisfies_every_bound_or_nothing_more_could_be_kept(
    sealed: list[SegmentAge], active: SegmentAge, policy: Retention, now_ms: int
) -> None:
    gone = expired_count(sealed, active, policy, now_ms=now_ms)
    kept = sealed[gone:]
    if gone and policy.age_ms is None:
        size, count = sum(s.size for s in kept) + active.size, sum(s.count for s in kept) + active.count
        assert (policy.bytes is not None and size >= policy.bytes) or (
            policy.count is not None and count >= policy.count
        )
    assert expired_count(kept, active, policy, now_ms=now_ms) == 0


# who has yet to see them


def numbered(*stops: int) -> list[SegmentAge]:
    return [SegmentAge(size=10, count=5, last_time_ms=1, stop=stop) for stop in stops]


def test_what_somebody_has_yet_to_see_stays_whatever_the_policy_says() -> None:
    strict = Retention(age_ms=1, bytes=1, count=1)
    assert expired_count(numbered(5, 10, 15), ACTIVE, strict, now_ms=10**9) == 3
    assert expired_count(numbered(5, 10, 15), ACTIVE, strict, now_ms=10**9, floor=10) == 2
    assert expired_count(numbered(5, 10, 15), ACTIVE, strict, now_ms=10**9, floor=9) == 1
    assert expired_count(numbered(5, 10, 15), ACTIVE, strict, now_ms=10**9, floor=0) == 0


def test_what_everybody_has_seen_goes_by_the_policy_alone() -> None:
    assert expired_count(numbered(5, 10, 15), ACTIVE, Retention(count=6), now_ms=0, floor=15) == 2
    assert expired_count(numbered(5, 10, 15), ACTIVE, Retention(), now_ms=0, floor=15) == 0


@given(st.lists(st.integers(1, 20), max_size=8), policies, st.integers(0, 2000), st.integers(0, 100))
def test_a_floor_only_ever_keeps_more_and_never_drops_a_segment_it_lies_in(
    counts: list[int], policy: Retention, now_ms: int, floor: int
) -> None:
    sealed, stop = [], 0
    for count in counts:
        stop += count
        sealed.append(SegmentAge(size=10 * count, count=count, last_time_ms=stop, stop=stop))
    gone = expired_count(sealed, ACTIVE, policy, now_ms=now_ms, floor=floor)
    free = expired_count(sealed, ACTIVE, policy, now_ms=now_ms)
    assert gone <= free
    assert all(segment.stop <= floor for segment in sealed[:gone])
    assert gone == free or sealed[gone].stop > floor
