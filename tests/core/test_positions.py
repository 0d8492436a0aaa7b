"""Places in a log: every way to name one, and what is none."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequest
from penstock.core.ids import format_id, id_bytes, parse_id
from penstock.core.offsets import OFFSET_MAX, Offset
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Latest, Position, parse_position, parse_positions

ID = "1f0c2a4e-7b1d-6c00-9a3f-0123456789ab"
NOON_MS = 1_769_860_800_000
PLACES: dict[str, Position] = {
    "earliest": Earliest(),
    "latest": Latest(),
    "0": AtOffset(Offset(0)),
    "0042": AtOffset(Offset(42)),
    str(OFFSET_MAX): AtOffset(Offset(OFFSET_MAX)),
    "2026-01-31T12:00:00Z": AtTime(NOON_MS),
    "2026-01-31T12:00:00": AtTime(NOON_MS),
    "2026-01-31 12:00": AtTime(NOON_MS),
    "2026-01-31T13:00:00+01:00": AtTime(NOON_MS),
    "2026-01-31T12:00:00.001Z": AtTime(NOON_MS + 1),
    "2026-01-31": AtTime(NOON_MS - 12 * 3_600_000),
    "1969-12-31T23:59:59.999Z": AtTime(-1),
    "0001-01-01T00:00:00+14:00": AtTime(-62_135_596_800_000 - 14 * 3_600_000),
    ID: AtId(parse_id(ID)),
    ID.upper(): AtId(parse_id(ID)),
}


@pytest.mark.parametrize(("text", "position"), PLACES.items())
def test_a_position_is_named_as_a_person_would(text: str, position: Position) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize(
    "text",
    ["", " ", "Earliest", "now", "-1", "+1", "1.0", "1_0", "٣", "2026-13-01", "12:00", "9" * 5000, f"{ID} ", ID[:-1]],
)
def test_what_is_no_position_is_refused_with_examples_of_what_is(text: str) -> None:
    with pytest.raises(InvalidRequest, match="no place in a log: expected earliest, latest, an offset"):
        parse_position(text)


def test_an_offset_beyond_64_bits_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="an offset is a whole number"):
        parse_position(str(OFFSET_MAX + 1))


@pytest.mark.parametrize("text", [ID.replace("-6c", "-4c"), ID[:-1] + "-", "1f0c2a4e-7b1d6c00-9a3f-0123456789abc"])
def test_an_id_that_is_no_message_id_is_refused_as_an_id(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a message id"):
        parse_position(text)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_an_id_has_sixteen_bytes(size: int) -> None:
    with pytest.raises(InvalidRequest, match="an id has 16 bytes"):
        AtId(bytes(size))


moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(moments, zones)
def test_a_time_is_exact_to_the_millisecond_in_every_zone(moment: datetime, zone: timezone) -> None:
    position = parse_position(moment.astimezone(zone).isoformat())
    assert isinstance(position, AtTime)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    assert position.unix_ms == microseconds // 1000


@given(st.integers(0, 2**60 - 1), st.integers(0, 2**62 - 1))
def test_every_message_id_is_a_position(ticks: int, low: int) -> None:
    value = id_bytes(ticks, 2**63 | low)
    assert parse_position(format_id(value)) == AtId(value)


@given(st.text())
def test_any_text_is_a_position_or_a_refusal_and_nothing_else(text: str) -> None:
    with contextlib.suppress(InvalidRequest):
        assert isinstance(parse_position(text), Position)


LATER_ID = "1f0c2a4e-7b1d-6c01-9a3f-0123456789ab"
RISING = [("5", "6"), ("2026-01-31", "2026-02-01"), (ID, LATER_ID)]


@pytest.mark.parametrize(("start", "stop"), RISING)
def test_a_stop_may_be_after_the_start_or_at_it_and_not_before(start: str, stop: str) -> None:
    assert parse_positions(start, stop) == (parse_position(start), parse_position(stop))
    assert parse_positions(start, start) == (parse_position(start),) * 2
    with pytest.raises(InvalidRequest, match=re.escape(f"nothing lies between {stop} and {start}")):
        parse_positions(stop, start)


@pytest.mark.parametrize(("start", "stop"), [("5", ID), ("latest", "earliest"), ("2026-01-31", "0"), ("9", "latest")])
def test_positions_of_two_kinds_are_compared_only_by_a_log(start: str, stop: str) -> None:
    assert parse_positions(start, stop) == (parse_position(start), parse_position(stop))


def test_without_a_stop_there_is_none() -> None:
    assert parse_positions("earliest", None) == (Earliest(), None)


def test_an_empty_stop_is_not_the_same_as_none() -> None:
    with pytest.raises(InvalidRequest, match="no place in a log"):
        parse_positions("earliest", "")
