"""Subscriptions and cursors as values: what can be made, and that it comes back from text as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.core.offsets import OFFSET_MAX, Offset, OffsetRange
from penstock.storage.catalog.subscriptions import (
    FILTERS_MAX,
    WAIT_MS_MAX,
    Cursor,
    SubscriptionKind,
    SubscriptionOptions,
    check_subscription_name,
    cursor_text,
    options_text,
    parse_cursor,
    parse_options,
)
from penstock.storage.catalog.topics import Exhausted

waits = st.integers(0, WAIT_MS_MAX)
globs = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=255), max_size=FILTERS_MAX).map(tuple)


@st.composite
def any_options(draw: st.DrawFn) -> SubscriptionOptions:
    shortest, longest = sorted([draw(waits), draw(waits)])
    return SubscriptionOptions(
        kind=draw(st.sampled_from(SubscriptionKind)),
        ack_timeout_ms=draw(st.integers(1, WAIT_MS_MAX)),
        backoff_ms=shortest,
        backoff_ms_max=longest,
        redeliveries=draw(st.integers(0, 1000)),
        exhausted=draw(st.sampled_from(Exhausted)),
        types=draw(globs),
        keys=draw(globs),
    )


def offsets_of(cursor: Cursor) -> set[int]:
    return {offset for done in cursor.acked for offset in range(done.start, done.stop)}


@st.composite
def cursors(draw: st.DrawFn) -> Cursor:
    """Any floor, any gaps and ranges above it, and failures in the gaps."""
    floor = draw(st.integers(0, 2**40))
    acked, stop = [], floor
    for gap, count in draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=20)):
        acked.append(OffsetRange.of(stop + gap, stop + gap + count))
        stop += gap + count
    done = {offset for each in acked for offset in range(each.start, each.stop)}
    open_ = [offset for offset in range(floor, stop + 5) if offset not in done]
    failures = draw(st.dictionaries(st.sampled_from(open_), st.integers(1, 1000)))
    return Cursor(floor=Offset(floor), acked=tuple(acked), failures=failures)


# Options


@given(any_options())
def test_options_come_back_as_they_were(options: SubscriptionOptions) -> None:
    assert parse_options(options_text(options)) == options


def test_options_say_only_what_is_not_as_usual() -> None:
    assert options_text(SubscriptionOptions(kind=SubscriptionKind.SHARED)) == '{"kind":"shared"}'


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "shared"),
        ("ack_timeout_ms", 0),
        ("ack_timeout_ms", WAIT_MS_MAX + 1),
        ("ack_timeout_ms", True),
        ("backoff_ms", -1),
        ("backoff_ms", 60_001),
        ("backoff_ms_max", WAIT_MS_MAX + 1),
        ("redeliveries", -1),
        ("redeliveries", 1001),
        ("exhausted", "drop"),
        ("types", ["a"]),
        ("types", ("a",) * 17),
        ("types", ("",)),
        ("keys", ("a" * 256,)),
        ("keys", ("\ud800",)),
        ("keys", (1,)),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=field) as refused:
        SubscriptionOptions(**{"kind": SubscriptionKind.SHARED, field: value})
    assert refused.value.details["field"] == field


@pytest.mark.parametrize(
    "text", ["", "{}", "null", '{"kind":"both"}', '{"kind":"shared","colour":1}', '{"kind":"shared","redeliveries":-1}']
)
def test_stored_options_of_any_other_form_are_not_believed(text: str) -> None:
    with pytest.raises(StorageFailed, match="options"):
        parse_options(text)


# Names


@pytest.mark.parametrize("name", ["a", "7", "Billing", "billing.eu-west_1", "a" * 128, "0-._"])
def test_names_have_letters_digits_and_three_signs(name: str) -> None:
    check_subscription_name(name)


@pytest.mark.parametrize("name", ["", ".a", "-a", "_a", "a b", "a/b", "a\n", "é", "٣", "a" * 129, "a:b", "\ud800"])
def test_a_name_that_no_subscription_has_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_subscription_name(name)
    assert refused.value.details["field"] == "subscription"


# Cursors


@given(cursors())
def test_a_cursor_comes_back_as_it_was(cursor: Cursor) -> None:
    again = parse_cursor(cursor.floor, cursor_text(cursor))
    assert again == cursor
    assert cursor_text(again) == cursor_text(cursor)
    assert offsets_of(again) == offsets_of(cursor)


def test_a_cursor_with_nothing_above_its_floor_is_a_short_text() -> None:
    assert cursor_text(Cursor(floor=Offset(7))) == "{}"
    assert parse_cursor(7, "{}") == Cursor(floor=Offset(7), acked=(), failures={})


def test_the_same_cursor_is_the_same_text() -> None:
    one = Cursor(floor=Offset(0), failures={1: 2, 0: 1})
    other = Cursor(floor=Offset(0), failures={0: 1, 1: 2})
    assert cursor_text(one) == cursor_text(other) == '{"failures":[[0,1],[1,2]]}'


@pytest.mark.parametrize(
    ("acked", "failures"),
    [
        ([(5, 6)], {}),  # touches the floor
        ([(4, 8)], {}),
        ([(7, 7)], {}),
        ([(7, 8), (8, 9)], {}),  # two that are one
        ([(7, 10), (9, 12)], {}),
        ([(9, 10), (7, 8)], {}),
        ([], {4: 1}),  # done already
        ([(7, 9)], {7: 1}),
        ([(7, 9), (10, 12)], {8: 1}),
        ([], {5: 0}),
        ([], {5: -1}),
        ([], {OFFSET_MAX + 1: 1}),
    ],
)
def test_a_cursor_that_contradicts_itself_is_refused(acked: list[tuple[int, int]], failures: dict[int, int]) -> None:
    with pytest.raises(InvalidRequest):
        Cursor(floor=Offset(5), acked=tuple(OffsetRange.of(*pair) for pair in acked), failures=failures)


def test_a_cursor_knows_where_it_stands() -> None:
    for floor in (-1, OFFSET_MAX + 1, True, "0"):
        with pytest.raises(InvalidRequest, match="floor"):
            Cursor(floor=floor)  # type: ignore[arg-type]
    Cursor(floor=Offset(5), acked=(OffsetRange.of(7, 9), OffsetRange.of(10, 12)), failures={5: 1, 6: 1, 9: 3, 12: 1})


def test_a_cursor_does_not_change_when_the_mapping_it_was_made_of_does() -> None:
    failures = {5: 1}
    cursor = Cursor(floor=Offset(5), failures=failures)
    failures.clear()
    assert dict(cursor.failures) == {5: 1}
    with pytest.raises(TypeError):
        cursor.failures[6] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"acked":[[6]]}',
        '{"acked":[[8,6]]}',
        '{"acked":[[5,6]]}',
        '{"acked":[["6","7"]]}',
        '{"acked":[[6,1e400]]}',
        '{"acked":[[-6,-5]]}',
        '{"failures":[[5,0]]}',
        '{"failures":[[5,1],[5,2]]}',
        '{"failures":{"5":1}}',
        '{"floor":5}',
    ],
)
def test_a_stored_cursor_of_any_other_form_is_not_believed(text: str) -> None:
    with pytest.raises(StorageFailed, match="cursor"):
        parse_cursor(5, text)
    with pytest.raises(StorageFailed, match="cursor"):
        parse_cursor(-1, "{}")
