from __future__ import annotations

import json
from base64 import b64decode
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.events.sse import Event, Parser

from penstock.broker.reads.merge import FeedGap, LogSource, MergedSlice
from penstock.core.ids import format_id, id_bytes
from penstock.core.names import TopicName
from penstock.record.message import SchemaRef
from penstock.record.rows import RecordRow
from penstock.server.events.stream_formats import (
    StreamChunk,
    StreamFormat,
    StreamWriter,
    is_plain,
    spelled_id,
    sse_data,
)

TOPIC = TopicName("default", "orders")
SOURCE = LogSource(None, TOPIC, 2, "/default/orders-part-2")  # type: ignore[arg-type]
ID = id_bytes(123456789, 0x8000_0000_0000_0001)


def row(
    payload: bytes = b"x", *, kind: str = "t", key: bytes | None = None, schema: Any = None, **attributes: str
) -> RecordRow:
    return (ID, 7, 1_700_000_000_000, kind, key, payload, "p", 3, 4, schema, MappingProxyType(attributes))


def written(form: StreamFormat, *rows: RecordRow, gaps: tuple[FeedGap, ...] = ()) -> StreamChunk:
    found = MergedSlice(rows=[(SOURCE, each) for each in rows], gaps=list(gaps), after=9, positions={})
    return StreamWriter(form, "here:1").chunk(found)


def events(form: StreamFormat, *rows: RecordRow, gaps: tuple[FeedGap, ...] = ()) -> list[Event]:
    return Parser().receive(written(form, *rows, gaps=gaps).body)


@given(
    st.lists(st.tuples(st.one_of(st.binary(max_size=60), st.text(max_size=40).map(str.encode)), st.text(max_size=20)))
)
def test_whatever_is_published_arrives_the_same_whatever_stands_beside_it(given_rows: list[tuple[bytes, str]]) -> None:
    found = events(StreamFormat.EVENTS, *(row(payload, kind=kind) for payload, kind in given_rows))
    assert [each.payload for each in found] == [payload for payload, _ in given_rows]
    assert {each.id for each in found} <= {format_id(ID)}
    plain = [(each.type, kind) for each, (_, kind) in zip(found, given_rows, strict=True)]
    assert all(got == (kind or "message") for got, kind in plain if not set(kind) & set("\r\n\0"))


@given(st.binary(max_size=200))
def test_bytes_arrive_in_lines_of_json_too(payload: bytes) -> None:
    line = json.loads(written(StreamFormat.LINES, row(payload, key=payload)).body)
    for name in ("payload", "key"):
        text, encoded = line.get(name), line.get(f"{name}_base64")
        assert (text is None) != (encoded is None)
        assert (b64decode(encoded) if text is None else text.encode()) == payload


@pytest.mark.parametrize(
    ("payload", "lines"),
    [
        (b"plain", b"data: plain\n"),
        (b"", b"data: \n"),
        (b" two\nlines\n", b"data:  two\ndata: lines\ndata: \n"),
        ("grüße".encode(), "data: grüße\n".encode()),
        (b"\x00\xff", b"data: data:application/octet-stream;base64,AP8=\n"),
        (b"one\r\ntwo", b"data: data:application/octet-stream;base64,b25lDQp0d28=\n"),
        (b"data:x", b"data: data:application/octet-stream;base64,ZGF0YTp4\n"),
    ],
)
def test_text_is_sent_as_it_is_and_what_is_no_text_says_so(payload: bytes, lines: bytes) -> None:
    assert sse_data(payload) == lines
    assert is_plain(payload) == (b"base64" not in lines)


def test_bytes_say_what_they_are_where_that_is_known() -> None:
    assert sse_data(b"\xff", "image/png; q=1") == b"data: data:image/png;base64,/w==\n"
    assert sse_data(b"\xff", "image/png\nid: 1") == b"data: data:application/octet-stream;base64,/w==\n"


def test_a_type_with_a_line_break_does_not_break_the_stream() -> None:
    (event,) = events(StreamFormat.EVENTS, row(b"x", kind="a\ndata: forged\r\0b"))
    assert (event.type, event.data) == ("a%0Adata: forged%0D%00b", "x")


def test_a_line_has_all_there_is_to_know() -> None:
    chunk = written(StreamFormat.LINES, row(b"{}", key=b"k", schema=SchemaRef(5, 6), a="b"))
    assert json.loads(chunk.body) == {
        "id": format_id(ID),
        "topic": "/default/orders",
        "partition": 2,
        "offset": 7,
        "type": "t",
        "publish_time": 1_700_000_000_000,
        "producer_name": "p",
        "request_id": 4,
        "msg_id": {
            "producer_id": 3,
            "topic_name": "/default/orders-part-2",
            "broker_addr": "here:1",
            "topic_offset": 7,
        },
        "attributes": {"a": "b"},
        "subscription_name": None,
        "key": "k",
        "schema_id": 5,
        "schema_version": 6,
        "payload": "{}",
    }


def test_an_envelope_is_such_a_line_in_an_event() -> None:
    (event,) = events(StreamFormat.ENVELOPES, row(b"a\r\nb"))
    assert event.json == json.loads(written(StreamFormat.LINES, row(b"a\r\nb")).body)
    assert (event.type, event.id) == ("t", format_id(ID))


@pytest.mark.parametrize("form", list(StreamFormat))
def test_where_each_message_ends_is_known(form: StreamFormat) -> None:
    gap = FeedGap(topic=TOPIC, partition=0, start=1, stop=4, reason="retention")
    one, other = row(b"one\ntwo"), row(b"\xff")
    chunk = written(form, one, other, gaps=(gap,))
    head = len(written(form, gaps=(gap,)).body)
    assert chunk.ends == [head + len(written(form, one).body), len(chunk.body)]


def test_a_gap_is_told_and_changes_no_place() -> None:
    gap = FeedGap(topic=TOPIC, partition=1, start=None, stop=4, reason="retention", certain=False)
    parser = Parser(last_id="before", _id="before")
    (event,) = parser.receive(written(StreamFormat.EVENTS, gaps=(gap,)).body)
    facts = {
        "topic": "/default/orders",
        "partition": 1,
        "start": None,
        "stop": 4,
        "reason": "retention",
        "certain": False,
    }
    assert (event.type, event.json, parser.last_id) == ("penstock.gap", facts, "before")
    assert json.loads(written(StreamFormat.LINES, gaps=(gap,)).body) == {"gap": facts}


@given(st.binary(min_size=16, max_size=16))
def test_ids_are_spelled_as_everywhere(id_: bytes) -> None:
    assert spelled_id(id_) == format_id(id_)
