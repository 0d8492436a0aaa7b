"""Message ids rise: in one call, between calls, across restarts, whatever the clock does. And they are UUIDv6."""

from __future__ import annotations

import itertools
import logging
import random
import uuid
from collections.abc import Iterable
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequest
from penstock.core.ids import (
    ID_BYTES,
    TICKS_MAX,
    TICKS_PER_MS,
    UNIX_EPOCH_TICKS,
    IdGenerator,
    IdRun,
    format_id,
    high_word,
    id_bytes,
    parse_id,
    ticks_of_high_word,
    ticks_of_id,
    ticks_of_unix_ms,
    unix_ms_of_ticks,
)

unhurried = settings(deadline=None)  # a busy machine is not a failed property

SECOND_NS = 1_000_000_000
MS_NS = 1_000_000
NOW_NS = 1_790_000_000 * SECOND_NS
NODE = 0x2ABC_0123_4567_89AB

# RFC 9562, appendix A.5: 2022-02-22 14:22:22 -05:00.
RFC_TEXT = "1EC9414C-232A-6B00-B3C8-9F6BDECED846"
RFC_TICKS = 0x1EC9414C232AB00
RFC_UNIX_MS = 1_645_557_742_000

ticks_values = st.integers(0, TICKS_MAX)
nodes = st.integers(0, 2**64 - 1)
# From before 1582, where ticks begin, to the year 5000.
clock_values = st.one_of(
    st.integers(-13_000_000_000 * SECOND_NS, 95_000_000_000 * SECOND_NS),
    st.integers(NOW_NS - 3 * SECOND_NS, NOW_NS + 3 * SECOND_NS),
    st.just(NOW_NS),
)


class FixedClock:
    """Stands still until told otherwise."""

    def __init__(self, ns: int = NOW_NS) -> None:
        self.ns = ns

    def now_ns(self) -> int:
        return self.ns


def ids_of(run: IdRun) -> list[bytes]:
    return [run[index] for index in range(run.count)]


def ticks_at(ns: int) -> int:
    return ns // 100 + UNIX_EPOCH_TICKS


def ticks_by_the_rfc(value: bytes) -> int:
    """time_high (32 bits), time_mid (16), version (4, left out), time_low (12), read from the digits."""
    digits = value.hex()
    return int(digits[0:8] + digits[8:12] + digits[13:16], 16)


def assert_rising(ids: Iterable[bytes]) -> None:
    for one, next_one in itertools.pairwise(ids):
        assert one < next_one


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    mine = [record for record in caplog.records if record.name == "penstock.core.ids"]
    return [record.getMessage() for record in mine if record.levelno >= logging.WARNING]


# Order


@given(st.lists(st.tuples(clock_values, st.integers(1, 20)), min_size=1, max_size=30), nodes)
@unhurried
def test_ids_rise_as_bytes_whatever_the_clock_does_between_calls(steps: list[tuple[int, int]], node: int) -> None:
    clock = FixedClock()
    generator = IdGenerator(clock, node=node)
    ids: list[bytes] = []
    for ns, count in steps:
        clock.ns = ns
        ids += ids_of(generator.take(count))
    assert_rising(ids)
    assert len(set(ids)) == sum(count for _, count in steps)
    assert generator.last_ticks == ticks_of_id(ids[-1])


def test_the_order_of_large_and_small_runs_does_not_matter() -> None:
    for counts in itertools.permutations([1, 2, 4095, 4096, 5000]):
        generator = IdGenerator(FixedClock(), node=NODE)
        runs = [generator.take(count) for count in counts]
        assert [run.first_ticks for run in runs[1:]] == [run.last_ticks + 1 for run in runs[:-1]]
        assert all(one[one.count - 1] < other[0] for one, other in itertools.pairwise(runs))


def test_many_ids_in_one_call_rise_by_one_tick_each() -> None:
    run = IdGenerator(FixedClock(), node=NODE).take(100_000)
    ids = ids_of(run)
    assert_rising(ids)
    assert [ticks_of_id(each) for each in ids] == list(range(run.first_ticks, run.last_ticks + 1))
    assert run.last_ticks - run.first_ticks == 99_999


def test_a_run_of_a_billion_costs_no_more_than_one_of_one() -> None:
    run = IdGenerator(FixedClock(), node=NODE).take(10**9)
    assert ticks_of_id(run[10**9 - 1]) == run.last_ticks == ticks_at(NOW_NS) + 10**9 - 1


def test_a_frozen_clock_gives_neighbouring_ticks() -> None:
    generator = IdGenerator(FixedClock(), node=NODE)
    assert [generator.take(1).first_ticks - ticks_at(NOW_NS) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_clock_that_moves_on_is_followed_to_the_tick() -> None:
    clock = FixedClock()
    generator = IdGenerator(clock, node=NODE)
    for ns in (NOW_NS, NOW_NS + 700, NOW_NS + 1_899, NOW_NS + SECOND_NS, NOW_NS + 10**9 * SECOND_NS):
        clock.ns = ns
        assert generator.take(1).first_ticks == ticks_at(ns)


def test_a_clock_set_back_does_not_set_back_the_ids() -> None:
    clock = FixedClock()
    generator = IdGenerator(clock, node=NODE)
    before = generator.take(3)
    clock.ns -= 3600 * SECOND_NS
    after = generator.take(2)
    assert after.first_ticks == before.last_ticks + 1
    clock.ns = NOW_NS + SECOND_NS
    assert generator.take(1).first_ticks == ticks_at(clock.ns)


def test_a_thousand_restarts_each_with_the_clock_set_back_still_give_rising_ids() -> None:
    chance = random.Random(6)
    clock = FixedClock()
    ids = [bytes(ID_BYTES)]
    after_ticks = 0
    for _ in range(1_000):
        generator = IdGenerator(clock, node=chance.getrandbits(62), after_ticks=after_ticks)
        for _ in range(chance.randint(1, 3)):
            ids += ids_of(generator.take(chance.randint(1, 5)))
        clock.ns -= chance.choice([1, 100, MS_NS, SECOND_NS, 86_400 * SECOND_NS])
        after_ticks = ticks_of_id(ids[-1])
    assert_rising(ids)


def test_ids_rise_across_restarts_also_when_a_later_node_is_smaller() -> None:
    last = IdGenerator(FixedClock(), node=2**62 - 1).take(1)[0]
    assert IdGenerator(FixedClock(), node=0, after_ticks=ticks_of_id(last)).take(1)[0] > last


stories = st.lists(
    st.one_of(
        st.tuples(st.just("clock"), clock_values),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("advance"), st.integers(0, ticks_at(95_000_000_000 * SECOND_NS))),
        st.tuples(st.just("restart"), st.integers(0, 2**62 - 1)),
    ),
    max_size=40,
)


@given(stories)
@unhurried
def test_in_any_story_every_id_is_greater_than_all_before_it_and_than_every_advance(
    story: list[tuple[str, int]],
) -> None:
    clock = FixedClock()
    generator = IdGenerator(clock, node=NODE)
    newest, floor = bytes(ID_BYTES), 0
    for event, value in story:
        match event:
            case "clock":
                clock.ns = value
            case "advance":
                generator.advance(value)
                floor = max(floor, value)
            case "restart":
                generator = IdGenerator(clock, node=value, after_ticks=max(floor, ticks_of_id(newest)))
            case _:
                ids = ids_of(generator.take(value))
                assert_rising([newest, *ids])
                assert ticks_of_id(ids[0]) > floor
                newest = ids[-1]


def test_advancing_moves_forward_and_never_back() -> None:
    generator = IdGenerator(FixedClock(), node=NODE)
    generator.advance(ticks_at(NOW_NS) + 7)
    generator.advance(ticks_at(NOW_NS) - 7)
    assert generator.last_ticks == ticks_at(NOW_NS) + 7
    assert generator.take(1).first_ticks == ticks_at(NOW_NS) + 8


def test_a_clock_before_1582_still_gives_ids_and_none_of_them_is_the_zero_id() -> None:
    generator = IdGenerator(FixedClock(-(10**12) * SECOND_NS), node=0)
    ids = ids_of(generator.take(3))
    assert_rising([bytes(ID_BYTES), *ids])
    assert [ticks_of_id(each) for each in ids] == [1, 2, 3]


# Format


@given(ticks_values, nodes)
@unhurried
def test_an_id_is_a_uuid_of_version_6_and_its_timestamp_decodes_back(ticks: int, node: int) -> None:
    value = IdGenerator(FixedClock(-(10**12) * SECOND_NS), node=node, after_ticks=ticks - 1).take(1)[0]
    read = uuid.UUID(bytes=value)
    assert len(value) == ID_BYTES
    assert read.version == 6
    assert read.variant == uuid.RFC_4122
    assert ticks_by_the_rfc(value) == ticks_of_id(value) == ticks


@given(nodes)
@unhurried
def test_the_node_is_kept_but_for_the_bits_that_the_rfc_claims(node: int) -> None:
    read = uuid.UUID(bytes=IdGenerator(FixedClock(), node=node).take(1)[0])
    assert read.node >> 40 & 1 == 1  # multicast: made up, and no network card
    claimed = 0b11 << 62 | 1 << 40
    assert (read.int & (2**64 - 1) & ~claimed) == (node & ~claimed)


def test_the_example_of_the_rfc_is_read_and_written_as_printed() -> None:
    value = parse_id(RFC_TEXT)
    assert ticks_of_id(value) == RFC_TICKS == ticks_of_unix_ms(RFC_UNIX_MS)
    assert unix_ms_of_ticks(RFC_TICKS) == RFC_UNIX_MS
    assert id_bytes(RFC_TICKS, 0xB3C8_9F6B_DECE_D846) == value
    assert format_id(value) == RFC_TEXT.lower()


def test_ticks_count_from_the_first_day_of_the_gregorian_calendar() -> None:
    days = (date(1970, 1, 1) - date(1582, 10, 15)).days
    assert ticks_of_unix_ms(0) == UNIX_EPOCH_TICKS == days * 86_400 * 10_000_000


@given(ticks_values, ticks_values, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
@unhurried
def test_the_order_of_timestamps_is_the_order_of_bytes(one: int, other: int, low: int, other_low: int) -> None:
    if one != other:
        assert (id_bytes(one, low) < id_bytes(other, other_low)) == (one < other)


@given(ticks_values)
@unhurried
def test_the_first_word_holds_exactly_the_timestamp_and_the_version(ticks: int) -> None:
    word = high_word(ticks)
    assert 0 <= word < 2**64
    assert word >> 12 & 0xF == 6
    assert ticks_of_high_word(word) == ticks


@pytest.mark.parametrize("ticks", [-1, TICKS_MAX + 1, 2**64])
def test_a_timestamp_that_does_not_fit_is_never_written_as_another(ticks: int) -> None:
    with pytest.raises(OverflowError):
        id_bytes(ticks, 0)


# Time


@given(st.integers(-12_219_292_800_000, 10**14))
@unhurried
def test_a_millisecond_survives_the_way_to_ticks_and_back(ms: int) -> None:
    ticks = ticks_of_unix_ms(ms)
    assert unix_ms_of_ticks(ticks) == ms
    assert unix_ms_of_ticks(ticks + TICKS_PER_MS - 1) == ms
    assert unix_ms_of_ticks(ticks + TICKS_PER_MS) == ms + 1
    assert unix_ms_of_ticks(ticks - 1) == ms - 1


@given(ticks_values)
@unhurried
def test_a_tick_lies_in_the_millisecond_that_is_read_from_it(ticks: int) -> None:
    assert 0 <= ticks - ticks_of_unix_ms(unix_ms_of_ticks(ticks)) < TICKS_PER_MS


def test_the_time_of_a_message_is_read_from_its_id() -> None:
    value = IdGenerator(FixedClock(NOW_NS + 123 * MS_NS + 999_999), node=NODE).take(1)[0]
    assert unix_ms_of_ticks(ticks_of_id(value)) == NOW_NS // MS_NS + 123


# The warning


def test_ids_that_keep_up_with_the_clock_are_not_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    clock = FixedClock()
    generator = IdGenerator(clock, node=NODE)
    for _ in range(10):
        generator.take(1_000)
        clock.ns += MS_NS
    assert warnings_in(caplog) == []


@pytest.mark.parametrize(("ahead_ticks", "said"), [(9_999_999, 0), (10_000_000, 0), (10_000_001, 1)])
def test_the_warning_begins_just_past_one_second(caplog: pytest.LogCaptureFixture, ahead_ticks: int, said: int) -> None:
    IdGenerator(FixedClock(), node=NODE, after_ticks=ticks_at(NOW_NS) + ahead_ticks - 1).take(1)
    assert len(warnings_in(caplog)) == said


def test_the_warning_says_by_how_much_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FixedClock()
    generator = IdGenerator(clock, node=NODE)
    generator.take(1)
    clock.ns -= 90 * SECOND_NS
    for _ in range(100):
        generator.take(10)
        clock.ns += MS_NS
    (said,) = warnings_in(caplog)
    assert "90.0 s ahead of the clock" in said


def test_the_warning_is_not_said_again_before_the_clock_has_caught_up(caplog: pytest.LogCaptureFixture) -> None:
    clock = FixedClock()
    generator = IdGenerator(clock, node=NODE)
    generator.take(1)
    clock.ns -= 2 * SECOND_NS
    generator.take(1)
    # Half a second behind is within the bound and still behind; from there back and forth over it.
    for ns in (NOW_NS - SECOND_NS // 2, NOW_NS - 2 * SECOND_NS) * 10:
        clock.ns = ns
        generator.take(1)
    assert len(warnings_in(caplog)) == 1


def test_once_the_clock_has_caught_up_the_next_setback_is_warned_of_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = FixedClock()
    generator = IdGenerator(clock, node=NODE)
    for setback in range(1, 4):
        clock.ns = NOW_NS + setback * 3600 * SECOND_NS
        generator.take(1)
        clock.ns -= 60 * SECOND_NS
        generator.take(1)
        generator.take(1)
        assert len(warnings_in(caplog)) == setback


def test_one_run_that_reaches_more_than_a_second_ahead_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    IdGenerator(FixedClock(), node=NODE).take(10_000_002)
    assert len(warnings_in(caplog)) == 1


def test_a_restart_with_the_clock_set_back_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    IdGenerator(FixedClock(), node=NODE, after_ticks=ticks_at(NOW_NS + 3600 * SECOND_NS)).take(1)
    assert len(warnings_in(caplog)) == 1


# Bad input


@pytest.mark.parametrize("count", [0, -1, -(10**9)])
def test_a_run_of_nothing_is_refused_and_spends_nothing(count: int) -> None:
    generator = IdGenerator(FixedClock(), node=NODE, after_ticks=5)
    with pytest.raises(InvalidRequest, match=f"at least one id, not {count}"):
        generator.take(count)
    assert generator.last_ticks == 5


def test_the_last_tick_of_all_can_be_used_and_nothing_comes_after_it() -> None:
    generator = IdGenerator(FixedClock(), node=NODE, after_ticks=TICKS_MAX - 2)
    with pytest.raises(InvalidRequest, match="5236"):
        generator.take(3)
    assert generator.last_ticks == TICKS_MAX - 2
    run = generator.take(2)
    assert ticks_by_the_rfc(run[1]) == TICKS_MAX
    assert uuid.UUID(bytes=run[1]).version == 6
    with pytest.raises(InvalidRequest, match="5236"):
        generator.take(1)


def test_a_clock_past_the_end_of_the_id_space_is_refused_and_forgotten() -> None:
    clock = FixedClock(10**12 * SECOND_NS)
    generator = IdGenerator(clock, node=NODE)
    with pytest.raises(InvalidRequest, match="check the machine's clock"):
        generator.take(1)
    clock.ns = NOW_NS
    assert generator.take(1).first_ticks == ticks_at(NOW_NS)


@pytest.mark.parametrize("index", [-1, 3, 4, 10**9])
def test_a_run_has_no_id_before_its_first_or_after_its_last(index: int) -> None:
    with pytest.raises(IndexError):
        IdRun(first_ticks=1, count=3, low=0)[index]


@given(ticks_values, nodes)
@unhurried
def test_an_id_written_and_parsed_again_is_the_same_id(ticks: int, node: int) -> None:
    value = IdGenerator(FixedClock(-(10**12) * SECOND_NS), node=node, after_ticks=ticks - 1).take(1)[0]
    text = format_id(value)
    assert text == str(uuid.UUID(bytes=value))
    for written in (text, text.upper(), value.hex(), value.hex().upper()):
        assert parse_id(written) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "no", "0" * 31, "0" * 33, RFC_TEXT[:-1], RFC_TEXT + "0", RFC_TEXT + "\n", " " + RFC_TEXT, "\0"),
        *("1ec9414c-232a-6b00-b3c8-9f6bdeced84g", "{" + RFC_TEXT + "}", "urn:uuid:" + RFC_TEXT, RFC_TEXT[:-1] + "\0"),
        # What `int(text, 16)` reads as a number all the same.
        *("+ec9414c-232a-6b00-b3c8-9f6bdeced846", " ec9414c-232a-6b00-b3c8-9f6bdeced846"),
        *("0x09414c-232a-6b00-b3c8-9f6bdeced846", "٣ec9414c-232a-6b00-b3c8-9f6bdeced846"),
        *("１ec9414c-232a-6b00-b3c8-9f6bdeced846", "1_c9414c-232a-6b00-b3c8-9f6bdeced846"),
        # Hyphens that stand where none belongs, or are missing.
        *("1-ec9414c232a6b00b3c89f6bdeced846", "1ec9414c232a-6b00-b3c8-9f6bdeced846", RFC_TEXT + "-", "-" + RFC_TEXT),
    ],
    ids=ascii,
)
def test_what_is_not_a_uuid_is_refused_with_an_example_that_is_one(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a message id: expected a UUID such as") as caught:
        parse_id(text)
    assert caught.value.details == {"given": text}
    assert ticks_of_id(parse_id(str(caught.value).rsplit(" ", 1)[1])) > UNIX_EPOCH_TICKS


@pytest.mark.parametrize(
    "text",
    [
        str(uuid.UUID(int=0)),
        str(uuid.UUID(int=2**128 - 1)),
        "c232ab00-9414-11ec-b3c8-9f6bdeced846",
        "919108f7-52d1-4320-9bac-f847db4148a8",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        "1ec9414c-232a-6b00-33c8-9f6bdeced846",
        "1ec9414c-232a-6b00-f3c8-9f6bdeced846",
    ],
)
def test_a_uuid_of_another_version_or_variant_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="UUID version 6 expected"):
        parse_id(text)


@given(
    st.sampled_from([RFC_TEXT, RFC_TEXT.lower(), RFC_TEXT.lower().replace("-", "")]),
    st.integers(0, len(RFC_TEXT)),
    st.integers(0, 2),
    st.one_of(st.text(max_size=3), st.text("09afAF-_+ x٣３", max_size=3)),
)
@settings(unhurried, max_examples=300)
def test_a_changed_id_is_refused_or_is_the_id_it_reads_as(text: str, place: int, cut: int, put: str) -> None:
    changed = text[:place] + put + text[place + cut :]
    try:
        value = parse_id(changed)
    except InvalidRequest:
        return
    assert changed.lower() in (format_id(value), value.hex())
