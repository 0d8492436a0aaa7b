from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest, MalformedMessage, PayloadTooLarge
from penstock.core.limits import ATTRIBUTES_MAX
from penstock.server.events.cloudevents import from_array, from_headers, from_object, is_binary

EVENT: dict[str, Any] = {"specversion": "1.0", "id": "a-1", "source": "/shop", "type": "order.created"}
HEADERS = {f"ce-{name}": value for name, value in EVENT.items()}
KEPT = {"ce-specversion": "1.0", "ce-id": "a-1", "ce-source": "/shop"}


def encoded(**more: Any) -> bytes:
    return json.dumps(EVENT | more).encode()


def test_headers_are_an_event_in_binary_mode() -> None:
    found = from_headers(HEADERS | {"content-type": "text/plain", "host": "here"}, b"data")
    assert (found.type, found.key, found.payload) == ("order.created", None, b"data")
    assert found.attributes == KEPT | {"content-type": "text/plain"}
    assert is_binary(HEADERS)
    assert not is_binary({"content-type": "text/plain"})


@pytest.mark.parametrize("media", ["", "application/x-www-form-urlencoded", "application/octet-stream"])
def test_a_content_type_that_says_nothing_is_not_that_of_the_data(media: str) -> None:
    assert from_headers(HEADERS | {"content-type": media}, b"data").attributes == KEPT


def test_headers_are_unescaped_and_unquoted() -> None:
    found = from_headers(HEADERS | {"ce-subject": "caf%C3%A9 100%25", "ce-note": '"a \\"b\\""'}, b"")
    assert (found.key, found.attributes["ce-note"]) == ("café 100%".encode(), 'a "b"')
    with pytest.raises(InvalidRequest, match="ce-subject is not UTF-8"):
        from_headers(HEADERS | {"ce-subject": "%ff"}, b"")


def test_the_partition_key_is_the_key_and_else_the_subject() -> None:
    assert from_object(encoded(subject="s", partitionkey="k")).key == b"k"
    assert from_object(encoded(subject="s")).key == b"s"


@pytest.mark.parametrize(
    ("fields", "payload", "media"),
    [
        ({}, b"", None),
        ({"data": {"a": 1.0}}, b'{"a": 1.0}', "application/json"),
        ({"data": "text"}, b'"text"', "application/json"),
        ({"data": None}, b"null", "application/json"),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text", "text/plain"),
        ({"data": [1], "datacontenttype": "application/vnd.x+json; v=1"}, b"[1]", "application/vnd.x+json; v=1"),
        ({"data_base64": "AP8="}, b"\x00\xff", None),
        ({"data_base64": "AP8=", "datacontenttype": "image/png"}, b"\x00\xff", "image/png"),
    ],
)
def test_data_is_the_payload_as_it_was_written(fields: dict[str, Any], payload: bytes, media: str | None) -> None:
    found = from_object(encoded(**fields))
    assert found.payload == payload
    assert found.attributes.get("content-type") == media


def test_extensions_are_kept_and_traces_under_their_own_names() -> None:
    found = from_object(encoded(traceparent="00-1-2-01", count=3, flag=True, nothing=None))
    assert found.attributes == KEPT | {"traceparent": "00-1-2-01", "ce-count": "3", "ce-flag": "true"}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (EVENT | {"specversion": "0.3"}, "specversion '1.0'"),
        ({"specversion": "1.0", "id": "1", "source": "/"}, "no type"),
        (EVENT | {"id": ""}, "no id"),
        (EVENT | {"Bad-Name": "x"}, "'Bad-Name' is no name"),
        (EVENT | {"nested": {}}, "'nested' of an event is a text"),
        (EVENT | {"ratio": 1.5}, "'ratio' of an event is a text"),
        (EVENT | {"data": 1, "data_base64": ""}, "not both"),
        (EVENT | {"data_base64": "%%"}, "not base64"),
        (EVENT | {"data_base64": 7}, "not base64"),
    ],
)
def test_what_is_no_event_is_refused_by_name(event: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        from_object(json.dumps(event).encode())


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{", b'{"a":', b"\xff", b'{"data": "\xff"}', b'{"id": "\xff"}', b"[" * 100_000, b'{"a":' * 100_000],
)
def test_what_is_no_object_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedMessage):
        from_object(raw)


def test_a_batch_is_read_in_order_and_the_wrong_one_is_named() -> None:
    good = [EVENT | {"id": f"{number}"} for number in range(3)]
    assert [each.attributes["ce-id"] for each in from_array(json.dumps(good).encode(), 3)] == ["0", "1", "2"]
    with pytest.raises(InvalidRequest, match="event 3: an event has id, source, type") as raised:
        list(from_array(json.dumps([*good[:2], {"specversion": "1.0"}]).encode(), 3))
    assert raised.value.details["event"] == 3
    with pytest.raises(MalformedMessage):
        list(from_array(b"{}", 3))


@pytest.mark.parametrize("number", ["1e999", "1" * 5000, "1.5", "[]", "{}"])
def test_a_number_that_nobody_can_hold_is_refused_by_name(number: str) -> None:
    raw = encoded(id=0).replace(b'"id": 0', b'"id": ' + number.encode())
    with pytest.raises(InvalidRequest, match="'id' of an event is a text, a whole number") as raised:
        from_object(raw)
    assert raised.value.details["field"] == "id"


def test_an_event_has_so_many_attributes_and_no_more_are_looked_at() -> None:
    with pytest.raises(InvalidRequest, match=f"at most {ATTRIBUTES_MAX} attributes, not"):
        from_object(encoded(**{f"a{number}": number for number in range(ATTRIBUTES_MAX)}))


def test_a_large_batch_is_not_taken_apart_before_it_is_known_to_be_one() -> None:
    """Send values of which a few bytes hold millions, each of which would become an object."""
    for values in (b"0," * 50_000 + b"0", b"{}," * 50_000 + b"{}"):
        with pytest.raises(MalformedMessage, match=r"\$\[0\]"):
            list(from_array(b"[" + values + b"]", 10_000))
    with pytest.raises(PayloadTooLarge, match="at most 10000 messages"):
        list(from_array(b"[" + b'{"specversion":0},' * 20_000 + b'{"specversion":0}]', 10_000))
    large = [EVENT | {"data": "x" * 100_000, "id": f"{number}"} for number in range(2)]
    assert len(list(from_array(json.dumps(large).encode(), 2))) == 2
