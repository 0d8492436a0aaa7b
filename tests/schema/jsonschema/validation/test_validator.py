"""Validation of one payload: exact answers, with a path and a message of bounded length."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.schema.jsonschema.kit import INTEGER, STRING, an_array, an_object, understood

from penstock.schema.jsonschema.validation.payload import PAYLOAD_DEPTH_MAX
from penstock.schema.language import PayloadFault
from penstock.schema.problems import FRAGMENT_CHARS_MAX


def fault(made: Any, payload: bytes | str) -> PayloadFault | None:
    return understood(made).validator().fault(payload.encode() if isinstance(payload, str) else payload)


ORDER = an_object(
    properties={
        "id": {"type": "integer", "minimum": 1},
        "lines": an_array(items=an_object(properties={"sku": STRING}, required=["sku"])),
        "a/b": STRING,
    },
    required=["id"],
    additionalProperties=False,
)


@pytest.mark.parametrize(
    ("payload", "path", "words"),
    [
        ({"id": 0}, "/id", "less than the minimum of 1"),
        ({"id": "1"}, "/id", 'not of type "integer"'),
        ({"id": 1, "lines": [{"sku": "a"}, {"sku": 2}]}, "/lines/1/sku", 'not of type "string"'),
        ({"id": 1, "lines": [{}]}, "/lines/0", '"sku" is a required property'),
        ({"id": 1, "a/b": 1}, "/a~1b", 'not of type "string"'),
        ({"id": 1, "x": 1}, "", "'x' was unexpected"),
        ({}, "", '"id" is a required property'),
        ([], "", 'not of type "object"'),
    ],
)
def test_a_fault_has_a_place_in_the_payload_and_a_sentence(payload: Any, path: str, words: str) -> None:
    found = fault(ORDER, json.dumps(payload))
    assert found is not None
    assert found.path == path
    assert words in found.message


def test_a_payload_that_conforms_has_no_fault() -> None:
    assert fault(ORDER, '{"id": 1, "lines": [{"sku": "a", "more": null}]}') is None


def test_of_a_choice_the_branch_that_came_farthest_says_what_is_wrong() -> None:
    made = {"anyOf": [{"type": "null"}, an_object(properties={"a": an_array(items=INTEGER)})]}
    found = fault(made, '{"a": [1, "b"]}')
    assert found is not None
    assert found.path == "/a/1"
    assert fault(made, "5") == PayloadFault(
        "", "the value is not valid under any of the schemas listed in the 'anyOf' keyword"
    )


def test_large_values_and_names_are_not_quoted_in_full() -> None:
    for made, payload in [
        (INTEGER, json.dumps("x" * 1_000_000)),
        ({"additionalProperties": False}, json.dumps({"x" * 1_000_000: 1})),
        ({"additionalProperties": INTEGER}, json.dumps({"x" * 1_000_000: "a"})),
        ({"enum": ["x" * 1_000, "y" * 1_000]}, "1"),
    ]:
        found = fault(made, payload)
        assert found is not None
        assert len(found.message) <= FRAGMENT_CHARS_MAX
        assert len(found.path) <= FRAGMENT_CHARS_MAX


# Payloads


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"{",
        b"{} {}",
        b"[1,]",
        b'{"a":1,}',
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b'{"a":NaN,"b":1e400}',
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"'a'",
        b"tru",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        b'"\\ud800"',
        b'["\\ud800",1e400]',
        b'"\\udc00\\ud800"',
        b'"\\x41"',
        b'"a\x00"',
        b'"a\nb"',
        b"\xef\xbb\xbf1",
        b"\xff\xfe1\x00",
        b"\x00",
        b'"a',
    ],
)
def test_what_is_not_json_is_a_fault_whatever_the_schema(payload: bytes) -> None:
    found = fault({}, payload)
    assert found is not None
    assert found.path == ""
    assert "it is not JSON" in found.message


def test_depth_is_limited() -> None:
    for opening, closing in [(b"[", b"]"), (b'{"a":', b"}")]:
        inside = opening * PAYLOAD_DEPTH_MAX + b"1" + closing * PAYLOAD_DEPTH_MAX
        assert fault({}, inside) is None
        for deeper in (opening + inside + closing, opening * 100_000, opening * 900 + b"1" + closing * 900):
            assert fault({}, deeper) is not None
    assert fault({}, b"[" + b"[]," * 1_000 + b"[]]") is None


@pytest.mark.parametrize(
    ("made", "payload", "conforms"),
    [
        (INTEGER, b"123456789012345678901234567890", True),
        (INTEGER, b"9" * 10_000, True),
        (INTEGER, b"1e400", True),
        (STRING, b"9" * 10_000, False),
        ({"maximum": 5}, b"9" * 10_000, False),
        ({"maximum": 5}, b"-" + b"9" * 10_000, True),
        ({"maximum": 5}, b"1e400", False),
        ({"maximum": 5}, b"-1e400", True),
        ({"maximum": 18446744073709551615}, b"18446744073709551616", False),
        ({"maximum": 9007199254740992}, b"9007199254740993", False),
        ({"const": 1}, b"1.0", True),
        ({"const": 1}, b"true", False),
        ({"multipleOf": 0.01}, b"19.99", True),
        ({"multipleOf": 0.1}, b"0.25", False),
        ({"maxLength": 1}, '"😀"'.encode(), True),
        ({"maxLength": 1}, b'"\\ud83d\\ude00"', True),
        ({"properties": {"a": INTEGER}}, b'{"a":"b","a":1}', True),
        ({"properties": {"a": INTEGER}}, b'{"a":1,"a":"b"}', False),
        ({"const": "\0"}, b'"\\u0000"', True),
    ],
)
def test_numbers_strings_and_keys_mean_what_json_says(made: Any, payload: bytes, conforms: bool) -> None:
    assert (fault(made, payload) is None) is conforms
