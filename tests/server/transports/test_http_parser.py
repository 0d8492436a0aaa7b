from __future__ import annotations

from http import HTTPStatus
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.transports.http_parser import (
    CHUNK_BYTES_MEAN_MIN,
    CHUNKS_MAX,
    EVENTS_PER_TURN,
    HEADERS_MAX,
    Parser,
    RequestRejected,
)

HEAD = b"POST /api/events HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def parser() -> Parser:
    return Parser(lambda request: request)


def turn(reader: Parser) -> list[Any]:
    """Return the events of one turn."""
    reader.begin_turn()
    events = []
    while (event := reader.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        events.append(event)
    return events


def turns(reader: Parser) -> list[list[Any]]:
    """Return all events, in as many turns as they take."""
    found = [turn(reader)]
    while reader.cut_short:
        found.append(turn(reader))
    return found


def refused(data: bytes) -> RequestRejected:
    reader = parser()
    reader.receive_data(data)
    with pytest.raises(RequestRejected) as raised:
        turns(reader)
    return raised.value


def test_a_turn_ends_after_some_events_however_many_have_come() -> None:
    reader = parser()
    reader.receive_data(CHUNKED + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n")
    found = turns(reader)
    assert max(map(len, found)) <= EVENTS_PER_TURN
    assert len(found) >= 1000 // EVENTS_PER_TURN
    assert b"".join(each.data for part in found for each in part if isinstance(each, h11.Data)) == b"x" * 1000


def test_a_turn_that_read_everything_is_not_cut_short() -> None:
    reader = parser()
    reader.receive_data(CHUNKED + b"1\r\nx\r\n")
    assert len(turn(reader)) == 2
    assert not reader.cut_short


def test_thousands_of_tiny_chunks_are_refused() -> None:
    said = refused(CHUNKED + b"1\r\nx\r\n" * (CHUNKS_MAX + 1))
    assert said.status == HTTPStatus.BAD_REQUEST
    assert "chunks" in said.message


def test_as_many_chunks_of_a_fair_size_are_not() -> None:
    piece = b"%x\r\n%s\r\n" % (CHUNK_BYTES_MEAN_MIN, b"x" * CHUNK_BYTES_MEAN_MIN)
    reader = parser()
    reader.receive_data(CHUNKED + piece * (CHUNKS_MAX + 10) + b"0\r\n\r\n")
    assert isinstance(turns(reader)[-1][-1], h11.EndOfMessage)


def test_the_chunks_of_one_body_are_not_counted_against_the_next() -> None:
    body = CHUNKED + b"1\r\nx\r\n" * (CHUNKS_MAX // 2 + 1) + b"0\r\n\r\n"
    reader = parser()
    for _ in range(2):
        reader.receive_data(body)
        assert isinstance(turns(reader)[-1][-1], h11.EndOfMessage)
        reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        reader.send(h11.EndOfMessage())
        reader.start_next_cycle()


@pytest.mark.parametrize("ended", [b"\r\n", b""], ids=["whole", "half"])
def test_a_head_has_so_many_headers_and_no_more(ended: bytes) -> None:
    reader = parser()
    reader.receive_data(HEAD + b"a:\r\n" * (HEADERS_MAX - 1) + b"\r\n")
    assert isinstance(turn(reader)[0], h11.Request)
    said = refused(HEAD + b"a:\r\n" * (HEADERS_MAX + 2) + ended)
    assert said.status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def test_lines_of_a_body_are_no_headers() -> None:
    reader = parser()
    reader.receive_data(HEAD + b"content-length: 1000\r\n\r\n" + b"\n" * 1000)
    assert len(turn(reader)) == 3


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        b"content-length: 6\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n",
    ],
)
def test_two_lengths_of_one_body_are_refused(lengths: bytes) -> None:
    said = refused(HEAD + lengths + b"\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert said.status == HTTPStatus.BAD_REQUEST
    assert "not both" in said.message


def test_what_h11_refuses_is_refused_in_our_words() -> None:
    assert RequestRejected.of(h11.RemoteProtocolError("x")).status == HTTPStatus.BAD_REQUEST
    assert RequestRejected.of(None).message == "not HTTP/1.1"
    large = h11.RemoteProtocolError("x", error_status_hint=431)
    assert RequestRejected.of(large).status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=30), st.integers(1, 50))
def test_however_bytes_arrive_the_body_is_the_same(chunks: list[bytes], step: int) -> None:
    sent = CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n"
    reader, found = parser(), list[Any]()
    for start in range(0, len(sent), step):
        reader.receive_data(sent[start : start + step])
        found += [event for part in turns(reader) for event in part]
    assert b"".join(each.data for each in found if isinstance(each, h11.Data)) == b"".join(chunks)
    assert isinstance(found[-1], h11.EndOfMessage)
