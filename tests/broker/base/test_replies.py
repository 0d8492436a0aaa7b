"""Replies: what the broker says is itself well-formed, short, and in the shape of the design."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.kit import ID

from penstock.broker.base.replies import error_payload, json_bytes, own_message, publish, quoted, request, response
from penstock.core.errors import Code, InvalidRequest, PenstockError
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.protocol.actions import Action
from penstock.protocol.frames import Frame, FrameReader

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
)


def read(data: bytes) -> Frame:
    reader = FrameReader()
    reader.receive_data(data)
    found = reader.next_frame()
    assert isinstance(found, Frame)
    assert reader.next_frame() is None
    return found


@pytest.mark.parametrize("kind", PenstockError.__subclasses__())
def test_an_error_has_the_shape_of_the_design(kind: type[PenstockError]) -> None:
    assert json.loads(error_payload(kind("Why not"), 0)) == {
        "error": {"code": kind.code.value, "message": "Why not", "timestamp": "1970-01-01T00:00:00.000Z"}
    }
    found = json.loads(error_payload(kind("Why not", limit=5, got="x"), 0))["error"]
    assert found["details"] == {"limit": 5, "got": "x"}
    assert found["code"] in list(Code)


def test_a_value_is_repeated_as_it_came_if_it_is_short() -> None:
    for value in (None, True, 5, 1.5, "", "x" * QUOTED_CHARS_MAX, [1, 2], {"a": [None]}):
        assert quoted(value) == value


def test_of_a_long_value_only_the_beginning_is_repeated() -> None:
    assert quoted("x" * (QUOTED_CHARS_MAX + 1)) == "x" * QUOTED_CHARS_MAX + "..."
    assert quoted(["x" * 500]) == '["' + "x" * (QUOTED_CHARS_MAX - 2) + "..."
    assert quoted({"a": list(range(500))}).startswith('{"a":[0,1,2')


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["name", "topic", "got"]), values))
def test_whatever_came_can_be_described_in_a_few_bytes(details: dict[str, Any]) -> None:
    payload = error_payload(InvalidRequest("no", **details), 0)
    found = json.loads(payload)["error"]
    assert set(found.get("details", {})) == {name for name, value in details.items() if value is not None}
    numbers = [value for value in details.values() if isinstance(value, int | float)]
    assert len(payload) < 200 + len(details) * (QUOTED_CHARS_MAX * 7 + 50) + sum(len(str(number)) for number in numbers)


def test_what_json_does_not_know_is_written_as_text() -> None:
    assert json_bytes({"path": InvalidRequest("why")}) == b'{"path":"why"}'


def test_every_message_of_the_brokers_reads_back() -> None:
    for make, action in ((response, Action.RESPONSE), (publish, Action.PUBLISH), (request, Action.REQUEST)):
        frame = read(make("a.B", "1.2.3", ID, b"\xff\n"))
        header = frame.header
        assert (header.action, header.topic, header.version, header.request_id) == (action, "a.B", "1.2.3", ID)
        assert frame.payload == b"\xff\n"


def test_a_message_of_the_brokers_own_needs_no_id() -> None:
    assert own_message("system.initialize", b"{}")[4:] == b"publish:system.initialize:1.0.0\n{}"
    assert (
        own_message("system.heartbeat", b"{}", ID, Action.REQUEST)[4:]
        == f"request:system.heartbeat:1.0.0:{ID}\n{{}}".encode()
    )
    assert read(own_message("system.log", b"{}", ID)).header.request_id == ID
