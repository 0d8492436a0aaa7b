"""Formats are enforced: in every draft, by the fast and the exact check, and conforming strings become columns."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.jsonschema.kit import DRAFT_4, DRAFT_7, an_array, an_object, understood

from penstock.client.serde.codecs import JsonCodec
from penstock.client.serde.values import ValueMismatch
from penstock.core.schemas import Definition, SchemaKind
from penstock.schema.jsonschema.model.string_formats import CHECKS, FAST_PATTERNS
from penstock.spark.decode.columns import leaves
from penstock.spark.decode.columns.shapes import Leaf

GOOD = {
    "date-time": [
        "2026-01-31T12:00:00Z",
        "2026-01-31t12:00:00.123456789z",
        "2026-01-31 12:00:00+05:30",
        "2026-01-31T12:00:00",
        "2026-12-31T23:59:60Z",
        "2024-02-29T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ],
    "date": ["2026-01-31", "2024-02-29", "0001-01-01"],
    "time": ["12:00:00", "23:59:60Z", "00:00:00.5-08:00"],
    "duration": ["P1D", "PT0.5S", "P1Y2M3DT4H5M6S", "P3W", "-P1D"],
    "email": ["ann@example.com", "a.b+c@x.example"],
    "hostname": ["example.com", "localhost"],
    "ipv4": ["127.0.0.1", "255.255.255.255"],
    "ipv6": ["::1", "2001:db8::ff00:42:8329"],
    "uri": ["https://example.com/a/b", "urn:isbn:1", "mailto:ann@example.com"],
    "uri-reference": ["", "../a", "https://example.com"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
}
BAD = {
    "date-time": ["", "soon", "2026-01-31", "2026-02-30T00:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:00:00Z\n"],
    "date": ["", "31.1.2026", "2026-02-29", "20260131", "2026-1-31", "0000-01-01", "٢٠٢٦-01-31"],
    "time": ["", "12", "24:00:00", "12:60:00", "12:00:00+24:00"],
    "duration": ["", "P", "PT", "1D", "P1D1Y", "P1W1D"],
    "email": ["", "ann", "@example.com", "a b@example.com"],
    "hostname": ["", "-a", "a b", "a..b"],
    "ipv4": ["", "1.2.3", "256.0.0.1", "1.2.3.4.5"],
    "ipv6": ["", ":::", "12345::", "1.2.3.4"],
    "uri": ["", "a b", "/relative", "example.com"],
    "uri-reference": ["a b", "%zz"],
    "uuid": ["", "123e4567", "123e4567e89b12d3a456426614174000", "g23e4567-e89b-12d3-a456-426614174000"],
}
TEXTS = [text for texts in (*GOOD.values(), *BAD.values()) for text in texts]


def payload(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("draft", [{}, DRAFT_7, DRAFT_4], ids=["2020-12", "7", "4"])
@pytest.mark.parametrize("name", CHECKS)
def test_a_format_is_demanded_in_every_draft(name: str, draft: dict[str, Any]) -> None:
    validator = understood({**draft, **an_object(properties={"a": {"type": "string", "format": name}})}).validator()
    for text in GOOD[name]:
        assert validator.fault(payload({"a": text})) is None, text
    for text in BAD[name]:
        fault = validator.fault(payload({"a": text}))
        assert fault is not None, text
        assert fault.path == "/a"
        assert name in fault.message


def test_other_formats_and_other_values_are_not_looked_at() -> None:
    for made in ({"format": "regex"}, {"format": "json-pointer"}, {"format": "iri"}, {"format": "colour"}):
        assert understood(made).validator().fault(b'"("') is None
    assert understood({"format": "date"}).validator().fault(b"7") is None


@pytest.mark.parametrize("name", FAST_PATTERNS)
def test_the_usual_ones_get_a_quick_yes_and_bad_ones_never(name: str) -> None:
    validator = understood(an_object(properties={"a": {"type": "string", "format": name}})).validator()
    lines = payload({"a": GOOD[name][0]}) + b"\n"
    assert validator.accepts_lines(memoryview(lines * 3), 3)
    for text in BAD[name]:
        bad = payload({"a": text}) + b"\n"
        assert not validator.accepts_lines(memoryview(lines + bad), 2), text


def spoiled(random: Random) -> str:
    """Draw a text that looks like one of the formats, often with a character that does not belong there."""
    text = random.choice(TEXTS)
    for _ in range(random.choice([0, 1, 1, 2])):
        place = random.randrange(len(text) + 1)
        text = text[:place] + random.choice("0123456789-:.TZ+ @/aZ\n٣é") + text[place + random.randrange(2) :]
    return text


@given(st.integers(0, 2**64 - 1).map(Random), st.sampled_from(sorted(CHECKS)))
@settings(max_examples=400)
def test_a_quick_yes_is_an_exact_yes_and_what_conforms_becomes_a_column(random: Random, name: str) -> None:
    text = spoiled(random)
    other = random.choice(["string", ["string", "null"], ["string", "integer"], ["string", "array", "object"]])
    made = random.choice([{"type": other, "format": name}, an_array(items={"type": other, "format": name})])
    value = [text] if "items" in made else text
    validator = understood(made).validator()
    conforms = validator.fault(payload(value)) is None
    assert conforms or not validator.accepts_lines(memoryview(payload(value) + b"\n"), 1)
    leaf = {"date-time": leaves.DATE_TIME, "date": leaves.DATE}.get(name)
    if conforms and leaf is not None:
        assert column(leaf, text).null_count == 0


def column(leaf: Leaf, *values: str | None) -> Any:
    assert leaf.read is not None
    return leaf.read(list(values), leaf.type)


@pytest.mark.parametrize(("name", "leaf"), [("date-time", leaves.DATE_TIME), ("date", leaves.DATE)])
def test_all_that_conforms_becomes_a_column(name: str, leaf: Leaf) -> None:
    for text in GOOD[name]:
        assert column(leaf, text, None).null_count == 1


def test_a_producer_refuses_what_the_broker_would() -> None:
    codec = JsonCodec(Definition(SchemaKind.JSON, '{"properties": {"at": {"type": "string", "format": "date-time"}}}'))
    assert codec.encode({"at": "2026-01-31T12:00:00Z"})
    with pytest.raises(ValueMismatch) as error:
        codec.encode({"at": "garbage"})
    assert error.value.path == "/at"


def test_values_that_are_listed_conform_to_their_format_too() -> None:
    validator = understood({"enum": ["x", "2026-01-31"], "format": "date"}).validator()
    assert not validator.accepts_lines(memoryview(b'"x"\n'), 1)
    assert validator.fault(b'"x"') is not None
    assert validator.fault(b'"2026-01-31"') is None
