"""Protobuf payloads: conforming ones, and fault and path of the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.protobuf.kit import P2, P3, parsed
from tests.schema.protobuf.strategies import File, files, filled, written

from penstock.schema.errors import InvalidSchema
from penstock.schema.language import PayloadFault
from penstock.schema.protobuf import message_class

SHOP = (
    P3
    + """
    message Order {
      string id = 1; repeated Line lines = 2; map<string, Line> by_name = 3; repeated fixed32 fixed = 4;
      repeated int32 numbers = 5; Order order = 6; State state = 7;
    }
    message Line { string name = 1; bytes raw = 2; }
    enum State { NEW = 0; PAID = 1; }
    """
)
REQUIRED = (
    P2
    + """
    message Order { required string id = 1; repeated Line lines = 2; optional group Grp = 3 { required int32 x = 1; }
      extensions 100; }
    message Line { required string name = 1; optional State state = 2; }
    enum State { NEW = 0; }
    extend Order { optional Line more = 100; }
    """
)


VALIDATORS = [parsed(text).validator() for text in (SHOP, REQUIRED)]


def fault(schema: str, payload: bytes) -> PayloadFault | None:
    return parsed(schema).validator().fault(payload)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing set"),
        pytest.param(b"\x0a\x02ab", id="a string"),
        pytest.param(b"\x12\x04\x0a\x02ab", id="a message"),
        pytest.param(b"\x0a\x00", id="a known field with its default"),
        pytest.param(b"\x0a\x02ab\xa0\x06\x01", id="an unknown field beside a known one"),
        pytest.param(b"\x3a\x01\x05", id="another wire type than the schema has"),
        pytest.param(b"\x38\x07", id="an unknown value of an open enum"),
        pytest.param(b"\x28\x05", id="a packed field that is not packed"),
    ],
)
def test_what_the_library_can_parse_conforms(payload: bytes) -> None:
    assert fault(SHOP, payload) is None


def test_a_string_that_may_be_any_bytes_is_not_what_is_wrong() -> None:
    assert fault(REQUIRED, b"\x0a\x01\xff") is None
    wrong = fault(REQUIRED, b"\x0a\x01\xff\x12\x05")
    assert wrong is not None
    assert "UTF-8" not in wrong.message


@pytest.mark.parametrize(
    ("payload", "path", "message"),
    [
        (b"\x0a\x02\xff\xfe", "/id", "UTF-8"),
        (b"\x12\x03\x0a\x01x\x12\x03\x0a\x01\xff", "/lines/1/name", "UTF-8"),
        (b"\x1a\x03\x0a\x01\xff", "/by_name/0/key", "UTF-8"),
        (b"\x1a\x08\x0a\x01a\x12\x03\x0a\x01\xff", "/by_name/0/value/name", "UTF-8"),
        (b"\x32\x04\x32\x02\x0a\x05", "/order/order", "longer than what there is"),
        (b"\x22\x03abc", "/fixed/0", "3 bytes are not numbers of 4 bytes each"),
        (b"\x2a\x02\x01\x80", "/numbers/0", "no end"),
        (b"\x0a\x05ab", "", "longer than what there is"),
        (b"\x0a", "", "no end"),
        (b"\x00\x01", "", "begins no field"),
        (b"\x0f", "", "begins no field"),
        (b"\x0b", "", "group does not end"),
        (b"\x0c", "", "did not begin"),
        (b"\x0b\x14", "", "did not begin"),
        (b"\xff" * 11, "", "no end"),
        (b"\x0d\x01", "", "longer than what there is"),
        (b"\xa0\x06\x01", "", "none of its fields"),
        (b"\x32" * 7, "", ""),
    ],
)
def test_what_does_not_conform_says_where(payload: bytes, path: str, message: str) -> None:
    found = fault(SHOP, payload)
    assert found is not None
    assert found.path == path
    assert message in found.message


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (b"", "/id"),
        (b"\x0a\x01a\x12\x03\x0a\x01a\x12\x00", "/lines/1/name"),
        (b"\x0a\x01a\x1b\x1c", "/grp/x"),
        (b"\xa2\x06\x00", "/id"),
    ],
)
def test_a_required_field_that_is_missing_is_named(payload: bytes, path: str) -> None:
    found = fault(REQUIRED, payload)
    assert found is not None
    assert found.path == path
    assert "required" in found.message


def test_a_value_that_a_closed_enum_puts_away_is_still_of_a_known_field() -> None:
    assert fault(P2 + "message M { optional E e = 1; enum E { A = 0; } }", b"\x08\x07") is None


def test_an_extension_is_a_known_field() -> None:
    schema = P2 + "message M { extensions 100; } extend M { repeated int32 x = 100; }"
    assert fault(schema, b"\xa2\x06\x00") is None
    assert fault(schema, b"\xaa\x06\x00") is not None


def test_a_payload_is_one_of_the_first_message() -> None:
    schema = P3 + "enum E { A = 0; } message First { int32 a = 1; } message Second { int32 b = 2; }"
    assert fault(schema, b"\x08\x01") is None
    assert fault(schema, b"\x10\x01") is not None


def test_nothing_conforms_to_a_schema_without_messages() -> None:
    validator = parsed(P3 + "enum E { A = 0; }").validator()
    assert validator.fault(b"") is not None
    assert not validator.accepts_lines(memoryview(b""), 0)


def test_lines_are_never_accepted_at_once() -> None:
    assert not parsed(SHOP).validator().accepts_lines(memoryview(b"\n"), 1)


def test_a_payload_that_is_too_deep_is_refused() -> None:
    payload = b""
    for _ in range(150):
        length = len(payload)
        payload = b"\x32" + bytes([length & 0x7F | 0x80, length >> 7] if length > 127 else [length]) + payload
    found = fault(SHOP, payload)
    assert found is not None
    assert "deep" in found.message
    assert fault(P2 + "message M { optional group G = 1 {} }", b"\x0b" * 5000 + b"\x0c" * 5000) is not None


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x0a\x80\x80\x80\x80\x08" + b"x" * 1_000_000, id="a length past the end"),
        pytest.param(b"\xa0\x06\x01" * 400_000, id="unknown fields"),
        pytest.param(b"\x0a\x01a" * 400_000 + b"\xff", id="a string again and again"),
        pytest.param((b"\x3b" * 50 + b"\x3c" * 50) * 10_000 + b"\xff", id="groups"),
        pytest.param(b"\x80" * 1_000_000, id="a number without an end"),
    ],
)
def test_a_large_payload_is_refused_as_quickly_as_a_small_one(payload: bytes) -> None:
    assert fault(SHOP, payload) is not None


@given(files, st.data())
@settings(max_examples=40)
def test_what_was_written_with_a_schema_conforms_to_it(file: File, data: st.DataObject) -> None:
    schema = parsed(written(file))
    message = filled(data.draw, schema.message_class()())
    assert schema.validator().fault(message.SerializeToString()) is None


@given(st.binary(max_size=64))
@settings(max_examples=300)
def test_garbage_conforms_or_has_a_fault_and_nothing_else(payload: bytes) -> None:
    for validator in VALIDATORS:
        found = validator.fault(payload)
        assert found is None or found.message


# Classes


def test_a_client_gets_a_class_for_any_message() -> None:
    text = P3 + "package shop; message Order { message Line { int32 qty = 1; } } message Other {}"
    assert message_class(text, {}).DESCRIPTOR.full_name == "shop.Order"
    line = message_class(text, {}, "shop.Order.Line").FromString(b"\x08\x05")
    assert line.qty == 5


@pytest.mark.parametrize("name", ["Nothing", "", "shop", "shop.E", "Order"])
def test_a_message_that_is_not_there_has_no_class(name: str) -> None:
    with pytest.raises(InvalidSchema):
        message_class(P3 + "package shop; message Order {} enum E { A = 0; }", {}, name)


def test_a_schema_without_messages_has_no_class() -> None:
    with pytest.raises(InvalidSchema):
        message_class(P3 + "enum E { A = 0; }", {})
