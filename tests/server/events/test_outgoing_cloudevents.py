"""Messages that go out as CloudEvents: what came as one is the same again, and everything else is a valid one."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.http_kit import Client

from penstock.broker.reads.merge import LogSource, MergedSlice
from penstock.core.ids import id_bytes
from penstock.core.names import TopicName
from penstock.record.message import Message
from penstock.record.rows import RecordRow
from penstock.server.events.cloudevents import from_object
from penstock.server.events.outgoing_cloudevents import ID, note_event
from penstock.server.events.stream_formats import GAP, StreamFormat, StreamWriter

MESSAGE_ID = id_bytes(123456789, 0x8000_0000_0000_0001)
CLOUDEVENTS = "application/cloudevents+json"


def written(message: Message) -> dict[str, Any]:
    source = LogSource(None, TopicName("default", "orders"), 0, "/default/orders")  # type: ignore[arg-type]
    attributes = MappingProxyType(dict(message.attributes))
    row: RecordRow = (
        MESSAGE_ID,
        7,
        1_700_000_000_000,
        message.type,
        message.key,
        message.payload,
        "p",
        3,
        4,
        None,
        attributes,
    )
    line = (
        StreamWriter(StreamFormat.CLOUDEVENTS)
        .chunk(MergedSlice(rows=[(source, row)], gaps=[], after=9, positions={}))
        .body
    )
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found: dict[str, Any] = json.loads(line)
    assert {"specversion", "id", "source", "type"} <= found.keys()
    assert all(isinstance(value, str) for name, value in found.items() if name != "data")
    return found


EVENTS = [
    {"specversion": "1.0", "id": "a-1", "source": "/till/3", "type": "till.opened"},
    {"specversion": "1.0", "id": "1", "source": "x", "type": "t", "data": {"cents": 1250, "big": 2**70, "x": [1.50]}},
    {"specversion": "1.0", "id": "1", "source": "x", "type": "t", "data": "text", "datacontenttype": "text/plain"},
    {"specversion": "1.0", "id": "1", "source": "x", "type": "t", "data_base64": "AP8=", "datacontenttype": "a/b"},
    {"specversion": "1.0", "id": "1", "source": "x", "type": "t", "subject": "s", "time": "2026-01-31T12:00:00Z"},
    {"specversion": "1.0", "id": "1", "source": "x", "type": "t", "partitionkey": "p", "subject": "s", "mine": "7"},
    {"specversion": "1.0", "id": "1", "source": "x", "type": "t", "traceparent": "00-abc-def-01", "data": None},
]


@pytest.mark.parametrize("event", EVENTS)
def test_what_came_as_an_event_goes_out_as_the_same(event: dict[str, Any]) -> None:
    found = written(from_object(json.dumps(event).encode()))
    assert found.pop(ID)
    told = {name: value for name, value in event.items() if value is not None}
    media = "application/json" if isinstance(event.get("data"), dict) else None
    expected = told | ({"datacontenttype": media} if media else {})
    assert {name: found.get(name) for name in expected} == expected
    assert found.keys() - expected.keys() <= {"time", "data", "datacontenttype"}


@given(
    payload=st.binary(max_size=30) | st.text(max_size=30).map(str.encode) | st.just(b'{\n  "a": [1,\r\n 2]\n}'),
    media=st.sampled_from([None, "application/json", "text/plain", "application/x+json; charset=utf-8", "image/png"]),
    key=st.none() | st.binary(min_size=1, max_size=8),
    kind=st.text(max_size=5).map(lambda text: text.encode(errors="replace").decode()),
)
@settings(max_examples=200)
def test_every_message_is_an_event_that_means_the_same_payload(
    payload: bytes, media: str | None, key: bytes | None, kind: str
) -> None:
    attributes = {"content-type": media, "tenant": "a"} if media else {"ce-NO": "x", "ce-data": "y"}
    event = written(Message(payload=payload, type=kind, key=key, attributes=attributes))
    again = from_object(json.dumps(event).encode())
    try:
        same = again.payload == payload or json.loads(again.payload) == json.loads(payload)
    except ValueError:
        same = False
    assert same
    assert again.type == (kind or "message")


def test_a_note_is_an_event_too() -> None:
    first, again = (note_event(GAP, {"topic": "/default/a", "start": 1}) for _ in range(2))
    other = note_event(GAP, {"topic": "/default/a", "start": 2})
    assert first == again
    assert first["id"] != other["id"]
    assert from_object(json.dumps(first).encode()).type == GAP


def test_a_reader_that_accepts_cloudevents_gets_them_and_resumes_by_their_ids(http: Client) -> None:
    event = {"specversion": "1.0", "id": "a-2", "source": "/till/3", "type": "closed", "data": {"cents": 1250}}
    path = "/api/events?topic=cloud.out"
    for body, media in ((json.dumps(event).encode(), CLOUDEVENTS), (b"hi", "text/plain"), (b"\xff", "image/png")):
        assert http.ask("POST", f"{path}&type=plain", body, Content_Type=media).status == 200
    read = f"{path}&from=earliest&follow=false"
    answer = http.ask("GET", read, Accept=CLOUDEVENTS)
    assert (answer.status, answer.media) == (200, CLOUDEVENTS)
    first, second, third = map(json.loads, answer.body.splitlines())
    assert event.items() <= first.items()
    assert (second["source"], second["type"], second["data"]) == ("/default/cloud.out", "plain", "hi")
    assert (third["data_base64"], third["datacontenttype"]) == ("/w==", "image/png")
    answer = http.ask("GET", read, Accept=CLOUDEVENTS, Last_Event_ID=first[ID])
    assert list(map(json.loads, answer.body.splitlines())) == [second, third]
