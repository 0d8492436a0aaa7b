"""Frames: any pieces of bytes in, the same frames out; limits exact; nothing after the point where framing is lost."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.kit import ID, PAYLOAD_BYTES_MAX, cut, facts, fitting_messages, framed, headers, messages, plain

from penstock.core.errors import MalformedMessage, PayloadTooLarge
from penstock.core.limits import GIB, MIB
from penstock.protocol.actions import Action
from penstock.protocol.frames import (
    Frame,
    FrameLimits,
    FrameReader,
    RejectedFrame,
    check_payload,
    encode_frame,
    parse_message,
)
from penstock.protocol.header import HEADER_BYTES_MAX, NO_HEADER, Header, SalvagedHeader, parse_header, serialise

LIMITS = FrameLimits(payload_bytes_max=PAYLOAD_BYTES_MAX)
HEADER = f"publish:a.b:1.0.0:{ID}".encode()


def read(pieces: list[bytes], limits: FrameLimits = LIMITS) -> list[Frame | RejectedFrame]:
    """Return all frames and rejections; a fatal rejection once, though the reader repeats it for ever."""
    reader = FrameReader(limits)
    found: list[Frame | RejectedFrame] = []
    for piece in pieces:
        reader.receive_data(piece)
        while (item := reader.next_frame()) is not None:
            found.append(item)
            if isinstance(item, RejectedFrame) and item.fatal:
                return found
    return found


def frame(item: Frame | RejectedFrame | None) -> Frame:
    assert isinstance(item, Frame)
    return item


def rejected(item: Frame | RejectedFrame | None) -> RejectedFrame:
    assert isinstance(item, RejectedFrame)
    return item


# Any pieces


@given(headers(), st.binary(max_size=PAYLOAD_BYTES_MAX))
def test_what_was_encoded_is_read_back(header: Header, payload: bytes) -> None:
    assert read([encode_frame(header, payload)]) == [Frame(header, payload)]
    assert encode_frame(header, payload) == framed(serialise(header) + b"\n" + payload)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_encoded_and_received(kind: type[bytes]) -> None:
    data = encode_frame(parse_header(HEADER), kind(b"payload"))
    reader = FrameReader()
    reader.receive_data(kind(data))
    assert reader.next_frame() == Frame(parse_header(HEADER), b"payload")
    assert reader.next_frame() is None


@given(st.lists(fitting_messages, max_size=8), st.lists(st.integers(0, 800), max_size=12))
def test_any_split_or_merge_of_the_bytes_gives_the_same_frames(given_messages: list[bytes], places: list[int]) -> None:
    data = b"".join(map(framed, given_messages))
    expected = [plain(parse_message(message, LIMITS)) for message in given_messages]
    assert [plain(item) for item in read(cut(data, places))] == expected
    assert [plain(item) for item in read([data])] == expected


def test_one_byte_at_a_time_gives_the_same_frames_and_each_as_soon_as_it_is_whole() -> None:
    given_messages = [HEADER + b"\n", b"", b"\n", HEADER + b"\npayload", b"bogus", HEADER + b"\n" + b"x" * 41]
    reader = FrameReader(LIMITS)
    for message in given_messages:
        data = framed(message)
        for place in range(len(data)):
            assert reader.next_frame() is None
            reader.receive_data(data[place : place + 1])
        item = reader.next_frame()
        assert item is not None
        assert plain(item) == plain(parse_message(message, LIMITS))
    assert reader.next_frame() is None


def test_nothing_comes_of_nothing() -> None:
    reader = FrameReader()
    assert reader.next_frame() is None
    reader.receive_data(b"")
    assert reader.next_frame() is None


def test_a_bad_frame_does_not_cost_the_good_ones_around_it() -> None:
    good = HEADER + b"\nok"
    found = read([framed(good) + framed(b"bogus") + framed(b"") + framed(HEADER + b"\n" + b"x" * 41) + framed(good)])
    assert [isinstance(item, Frame) for item in found] == [True, False, False, False, True]
    assert not any(item.fatal for item in found if isinstance(item, RejectedFrame))


# One message


@pytest.mark.parametrize("payload", [b"", b"\n", b"\nline\n", b"\0\xff", b"publish:a.b:1.0.0\n"])
def test_everything_after_the_first_newline_is_payload(payload: bytes) -> None:
    assert parse_message(HEADER + b"\n" + payload, LIMITS) == Frame(parse_header(HEADER), payload)


def test_a_message_needs_a_header_and_a_newline() -> None:
    for message in (b"", HEADER, b"x" * HEADER_BYTES_MAX, b"x" * (HEADER_BYTES_MAX + 1), b"x" * 5000):
        error = rejected(parse_message(message, LIMITS)).error
        assert isinstance(error, MalformedMessage)
        assert error.details["field"] == "header"


def test_a_carriage_return_is_not_part_of_a_newline() -> None:
    assert rejected(parse_message(HEADER + b"\r\n{}", LIMITS)).error.details["field"] == "requestId"


def test_the_newline_is_looked_for_in_the_longest_header_and_no_further() -> None:
    for size in (HEADER_BYTES_MAX - 1, HEADER_BYTES_MAX):
        message = b"publish:".ljust(size, b"a") + b"\n"
        assert rejected(parse_message(message, LIMITS)).error.details["field"] == "topic"
    message = b"publish:".ljust(HEADER_BYTES_MAX + 1, b"a") + b"\n"
    error = rejected(parse_message(message, LIMITS)).error
    assert error.details == {"field": "header", "expected": f"at most {HEADER_BYTES_MAX} bytes and a newline"}


def test_the_request_id_is_saved_from_a_rejected_message() -> None:
    for message in (
        HEADER,
        HEADER + b"::::\n",
        HEADER.replace(b"a.b", b"a..b") + b"\n",
        HEADER.replace(b"publish", b"pub") + b"\n",
        HEADER.replace(b"1.0.0", b"v1") + b"\n",
        HEADER + b"\n" + b"x" * 41,
        HEADER + b":".ljust(1000, b":"),
    ):
        assert rejected(parse_message(message, LIMITS)).salvage.request_id == ID


def test_the_timeout_is_limited_by_what_the_reader_was_told() -> None:
    limits = FrameLimits(timeout_ms_max=250)
    assert frame(parse_message(f"request:a:1.0.0:{ID}::250\n".encode(), limits)).header.timeout_ms == 250
    error = rejected(parse_message(f"request:a:1.0.0:{ID}::251\n".encode(), limits)).error
    assert error.details["field"] == "timeout"


@given(st.binary(max_size=700) | messages)
def test_garbage_has_exactly_one_outcome(message: bytes) -> None:
    item = parse_message(message, LIMITS)
    match item:
        case Frame(header, payload):
            assert (
                serialise(header).lower() + b"\n" + payload == message[: len(message) - len(payload)].lower() + payload
            )
        case RejectedFrame(error, _, fatal):
            assert isinstance(error, MalformedMessage | PayloadTooLarge)
            assert not fatal
    if len(message) <= LIMITS.frame_bytes_max:
        assert [plain(each) for each in read([framed(message)])] == [plain(item)]


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_bytes_without_any_meaning_never_raise(pieces: list[bytes]) -> None:
    read(pieces)


# Limits


@pytest.mark.parametrize("limit", [1, PAYLOAD_BYTES_MAX, 65_535, 1 * MIB])
def test_the_payload_limit_is_exact(limit: int) -> None:
    limits = FrameLimits(payload_bytes_max=limit)
    for size in (limit - 1, limit):
        (item,) = read([framed(HEADER + b"\n" + bytes(size))], limits)
        assert frame(item).payload == bytes(size)
    (item,) = read([framed(HEADER + b"\n" + bytes(limit + 1))], limits)
    error = rejected(item).error
    assert isinstance(error, PayloadTooLarge)
    assert error.details == {"bytes": limit + 1, "payload_bytes_max": limit}
    assert rejected(item).salvage == SalvagedHeader("a.b", "1.0.0", ID)
    assert not rejected(item).fatal


def test_a_wrong_header_is_told_before_a_payload_that_is_too_large() -> None:
    error = rejected(parse_message(b"publish:a..b:1.0.0\n" + bytes(41), LIMITS)).error
    assert isinstance(error, MalformedMessage)


def test_check_payload_counts_bytes() -> None:
    check_payload(PAYLOAD_BYTES_MAX, LIMITS, Action.PUBLISH)
    with pytest.raises(PayloadTooLarge, match="Payload of 41 bytes is larger than the limit of 40"):
        check_payload(PAYLOAD_BYTES_MAX + 1, LIMITS, Action.PUBLISH)


@pytest.mark.parametrize("action", [Action.APPEND, Action.MESSAGE, Action.RECORDS])
def test_what_carries_more_than_one_payload_has_a_limit_of_its_own(action: Action) -> None:
    limits = LIMITS._replace(block_bytes_max=100)
    check_payload(100, limits, action)
    with pytest.raises(PayloadTooLarge, match="Payload of 101 bytes is larger than the limit of 100"):
        check_payload(101, limits, action)


def test_the_frame_limit_is_exact_and_only_beyond_it_framing_is_lost() -> None:
    limit = LIMITS.frame_bytes_max
    assert limit == HEADER_BYTES_MAX + 1 + PAYLOAD_BYTES_MAX
    for size in (limit - 1, limit):
        first, second = read([framed(b"x" * size) + framed(HEADER + b"\n")])
        assert not rejected(first).fatal
        assert frame(second)
    (only,) = read([framed(b"x" * (limit + 1)) + framed(HEADER + b"\n")])
    assert rejected(only).fatal
    assert rejected(only).error.details == {"bytes": limit + 1, "frame_bytes_max": limit}
    assert isinstance(rejected(only).error, PayloadTooLarge)


@pytest.mark.parametrize("size", [LIMITS.frame_bytes_max + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_after_a_length_that_no_frame_can_have_nothing_more_comes(size: int) -> None:
    reader = FrameReader(LIMITS)
    reader.receive_data(framed(HEADER + b"\n") + size.to_bytes(4, "big"))
    frame(reader.next_frame())
    failed = rejected(reader.next_frame())
    assert failed.fatal
    for more in (b"", framed(HEADER + b"\n"), bytes(1000)):
        reader.receive_data(more)
        assert reader.next_frame() is failed


def test_the_header_of_a_frame_that_is_too_long_is_saved_if_it_has_arrived() -> None:
    length = (2**31).to_bytes(4, "big")
    for arrived, expected in (
        (b"", NO_HEADER),
        (HEADER, NO_HEADER),
        (HEADER + b"\n", SalvagedHeader("a.b", "1.0.0", ID)),
        (HEADER + b"\npayload", SalvagedHeader("a.b", "1.0.0", ID)),
        (bytes(2000), NO_HEADER),
    ):
        (item,) = read([length + arrived])
        assert rejected(item).salvage == expected


def test_a_declared_frame_of_2_gib_allocates_nothing() -> None:
    reader = FrameReader()
    tracemalloc.start()
    try:
        reader.receive_data((2 * GIB).to_bytes(4, "big") + HEADER + b"\n")
        assert rejected(reader.next_frame()).fatal
        for _ in range(100):
            reader.receive_data(bytes(10_000))
            reader.next_frame()
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_frame_that_is_announced_and_does_not_come_allocates_only_what_came() -> None:
    reader = FrameReader()
    tracemalloc.start()
    try:
        reader.receive_data((1 * MIB).to_bytes(4, "big") + bytes(1000))
        assert reader.next_frame() is None
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_what_was_read_is_not_kept() -> None:
    reader = FrameReader()
    data = framed(HEADER + b"\n" + bytes(10_000))
    tracemalloc.start()
    try:
        for _ in range(1000):
            reader.receive_data(data)
            frame(reader.next_frame())
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


def test_the_facts_of_two_rejections_can_be_compared() -> None:
    one, other = (rejected(parse_message(b"bogus\n", LIMITS)).error for _ in range(2))
    assert one is not other
    assert facts(one) == facts(other)
