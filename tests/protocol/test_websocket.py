"""WebSocket frames as a server reads them: the same events however the bytes arrive, and a limit on each message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    ConnectionEnd,
    MessagePart,
    Ping,
    Pong,
    WebSocketEvent,
    WebSocketReader,
    WholeMessages,
)

MASK = b"\x9c\x01\xff\x37"
LIMIT = 70_000


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, declared: int | None = None) -> bytes:
    size = len(payload) if declared is None else declared
    flag, more_bytes = (size, 0) if size < 126 else (126, 2) if size < 65_536 else (127, 8)
    more = size.to_bytes(8, "big")[8 - more_bytes :]
    masked = bytes(byte ^ MASK[place % 4] for place, byte in enumerate(payload))
    return bytes(((0x80 if fin else 0) | opcode, 0x80 | flag)) + more + MASK + masked


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def read(pieces: list[bytes], limit: int = LIMIT) -> list[WebSocketEvent]:
    reader = WebSocketReader(limit)
    found: list[WebSocketEvent] = []
    for piece in pieces:
        reader.receive_data(piece)
        while (event := reader.next_event()) is not None:
            found.append(event)
    return found


def joined(events: list[WebSocketEvent]) -> list[WebSocketEvent]:
    """Messages that follow one another, as if they had come in one read."""
    found: list[WebSocketEvent] = []
    for event in events:
        if isinstance(event, WholeMessages) and found and isinstance(found[-1], WholeMessages):
            found[-1] = WholeMessages(found[-1].frames + event.frames)
        else:
            found.append(event)
    return found


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 7, 8, 9, 125, 126, 127, 65_535, 65_536, LIMIT])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_message_of_every_size_comes_out_as_tcp_carries_it(size: int, opcode: int) -> None:
    message = (b"0123456789abc" * (size // 13 + 1))[:size]
    assert read([frame(opcode, message) * 3]) == [WholeMessages(framed(message) * 3)]


texts = st.text(max_size=30).map(str.encode)
plain = st.one_of(
    st.binary(max_size=300).map(lambda payload: ([frame(BINARY, payload)], [WholeMessages(framed(payload))])),
    texts.map(lambda payload: ([frame(TEXT, payload)], [WholeMessages(framed(payload))])),
    st.binary(max_size=125).map(lambda payload: ([frame(PING, payload)], [Ping(payload)])),
    st.binary(max_size=125).map(lambda payload: ([frame(PONG, payload)], [Pong(payload)])),
)


@st.composite
def in_fragments(draw: st.DrawFn) -> tuple[list[bytes], list[WebSocketEvent]]:
    parts = draw(st.lists(st.binary(max_size=40), min_size=2, max_size=5))
    frames = [frame(CONTINUATION if place else BINARY, part, fin=False) for place, part in enumerate(parts[:-1])]
    frames.insert(1, frame(PING, b"between"))
    events: list[WebSocketEvent] = [MessagePart(len(part)) for part in parts[:-1]]
    events.insert(1, Ping(b"between"))
    return [*frames, frame(CONTINUATION, parts[-1])], [*events, WholeMessages(framed(b"".join(parts)))]


@given(st.lists(plain | in_fragments(), max_size=8), st.lists(st.integers(1, 60), max_size=40))
@settings(max_examples=300)
def test_any_split_of_the_bytes_gives_the_same_events(
    said: list[tuple[list[bytes], list[WebSocketEvent]]], cuts: list[int]
) -> None:
    whole = b"".join(each for frames, _ in said for each in frames)
    expected = joined([event for _, events in said for event in events])
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(whole[at : at + cut])
        at += cut
    assert joined(read([whole])) == expected
    assert joined(read([*pieces, whole[at:]])) == expected
    assert joined(read([whole[place : place + 1] for place in range(len(whole))])) == expected


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_garbage_has_one_outcome_however_it_arrives(garbage: bytes) -> None:
    after = frame(BINARY, b"before") + garbage
    assert joined(read([after])) == joined(read([after[place : place + 1] for place in range(len(after))]))


@pytest.mark.parametrize("first", [b"", b"x" * 1000])
def test_a_fragment_is_measured_when_it_begins(first: bytes) -> None:
    """Nothing of what is too much has to come."""
    began = frame(BINARY, first, fin=False)
    fits = frame(CONTINUATION, declared=LIMIT - len(first))
    assert read([began + fits]) == [MessagePart(len(first))]
    assert read([began + frame(CONTINUATION, declared=LIMIT - len(first) + 1)]) == [
        MessagePart(len(first)),
        ConnectionEnd(1009, "message too large"),
    ]


def test_what_is_held_and_what_is_wanted_are_known_from_the_head_on() -> None:
    reader = WebSocketReader(LIMIT)
    whole = frame(BINARY, bytes(50_000))
    reader.receive_data(whole[:100])
    assert reader.next_event() is None
    assert (reader.held_bytes, reader.wanted_bytes) == (100, len(whole))
    reader.receive_data(whole[100:])
    assert reader.next_event() == WholeMessages(framed(bytes(50_000)))
    assert (reader.next_event(), reader.held_bytes, reader.wanted_bytes) == (None, 0, 0)
    reader.receive_data(frame(BINARY, bytes(30_000), fin=False) + frame(CONTINUATION, declared=20_000))
    assert reader.next_event() == MessagePart(30_000)
    assert reader.next_event() is None
    assert reader.held_bytes == 30_000 + 8
    assert reader.wanted_bytes == 30_000 + 20_000 + 8


def test_a_limit_that_is_raised_holds_from_the_next_frame_on() -> None:
    reader = WebSocketReader(10)
    reader.receive_data(frame(BINARY, b"token") + frame(BINARY, bytes(1000)))
    assert reader.next_event() == WholeMessages(framed(b"token"))
    reader.bytes_max = 1000
    assert reader.next_event() == WholeMessages(framed(bytes(1000)))


def test_one_frame_that_is_no_whole_message_is_one_event() -> None:
    """The caller can therefore stop after any number of them."""
    reader = WebSocketReader(LIMIT)
    reader.receive_data(frame(PING) * 3 + frame(BINARY, b"a") * 4)
    assert [reader.next_event() for _ in range(3)] == [Ping(b"")] * 3
    assert reader.next_event() == WholeMessages(framed(b"a") * 4)


@pytest.mark.parametrize(
    ("given_frame", "code"),
    [
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"\xe2\x98"), 1007),
        (frame(BINARY, declared=2**63), 1002),
        (frame(CLOSE, b"\x03\xe8bye"), 1000),
        (frame(CLOSE), 1000),
        (frame(CLOSE, b"\x03"), 1002),
    ],
)
def test_nothing_is_read_after_the_end(given_frame: bytes, code: int) -> None:
    reader = WebSocketReader(LIMIT)
    reader.receive_data(given_frame + frame(BINARY, b"more"))
    events = []
    while (event := reader.next_event()) is not None:
        events.append(event)
    last = events[-1]
    assert isinstance(last, ConnectionEnd)
    assert last.code == code
    reader.receive_data(frame(BINARY, b"still more"))
    assert reader.next_event() is None
    assert reader.held_bytes == 0
