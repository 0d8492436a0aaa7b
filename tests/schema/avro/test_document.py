"""Texts that are not schemas, or are too large: each is refused, and quickly."""

from __future__ import annotations

import pytest

from penstock.core.schemas import SCHEMA_BYTES_MAX
from penstock.schema import avro
from penstock.schema.avro.document import CHARS_MAX, JSON_DEPTH_MAX, VALUES_MAX
from penstock.schema.errors import InvalidSchema

HOSTILE = [
    ("nothing", "", "not JSON"),
    ("a bare word", "string", "not JSON"),
    ("half a schema", '{"type": "array", "items"', "not JSON"),
    ("two schemas", '"int" "int"', "not JSON"),
    ("a comment", '"int" // counts', "not JSON"),
    ("a byte order mark", '\ufeff"int"', "not JSON"),
    ("a NUL", '{"type": "int", "doc": "\0"}', "not JSON"),
    ("a NUL behind it", '"int"\0', "not JSON"),
    ("not a number", '{"type": "int", "x": NaN}', "NaN"),
    ("infinity", '{"type": "int", "x": -Infinity}', "-Infinity"),
    ("a number without end", '{"type": "int", "x": 1e999}', "1e999"),
    ("a number of many digits", '{"type": "int", "x": ' + "9" * 100_000 + "}", "thousands of digits"),
    ("a key twice", '{"type": "int", "type": "long"}', '"type" occurs twice'),
    ("a key twice deep within", '{"type": "int", "x": [{"a": 1, "b": 2, "a": 1}]}', '"a" occurs twice'),
    ("half a surrogate pair", '{"type": "int", "doc": "\ud800"}', "half a surrogate pair"),
    ("half a surrogate pair, escaped", r'{"type": "int", "doc": "\ud800"}', "half a surrogate pair"),
    ("half a surrogate pair in a key", r'{"type": "int", "\udc00": 1}', "half a surrogate pair"),
    ("half a surrogate pair in a name", r'{"type": "fixed", "name": "\ud800", "size": 1}', "half a surrogate pair"),
    ("brackets", "[" * 50_000, "deep"),
    ("brackets that close", "[" * 50_000 + "]" * 50_000, "deep"),
    ("brackets that json can take", "[" * 400 + "]" * 400, "deep"),
    ("arrays in arrays", '{"type":"array","items":' * 20_000 + '"int"' + "}" * 20_000, "deep"),
    ("unions in unions", "[" * 70 + '"int"' + "]" * 70, "deep"),
    ("a property that is deep", '{"type":"int","x":' + "[" * 300 + "]" * 300 + "}", "deep"),
    ("a default that is deep", '{"type":"record","name":"R","fields":[{"name":"f","type":"int","default":'
     + '{"a":' * 300 + "1" + "}" * 300 + "}]}", "deep"),
    ("ten megabytes", '"' + "a" * 10_000_000 + '"', "at most"),
    ("a byte too many", '"' + "a" * (SCHEMA_BYTES_MAX - 1) + '"', "at most"),
    ("a character of two bytes too many", '"' + "é" * (SCHEMA_BYTES_MAX // 2) + '"', "at most"),
    ("too many values", "[" + "1," * VALUES_MAX + "1]", "at most"),
    ("too many objects", "[" + "{}," * VALUES_MAX + "{}]", "at most"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_hostile_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidSchema, match=words):
        avro.parse(text, {})


def test_a_text_of_the_largest_size_is_read() -> None:
    doc = "a" * (SCHEMA_BYTES_MAX - len('{"type":"int","doc":""}'))
    avro.parse(f'{{"type":"int","doc":"{doc}"}}', {})


def test_a_property_may_be_as_deep_as_the_limit() -> None:
    depth = JSON_DEPTH_MAX - 1
    text = '{"type":"int","x":' + "[" * depth + "]" * depth + "}"
    assert avro.parse(text, {}).canonical() == text


def test_all_references_together_have_a_limit() -> None:
    doc = "a" * (SCHEMA_BYTES_MAX - 100)
    texts = {
        str(each): f'{{"type":"int","doc":"{doc}","n":{each}}}' for each in range(CHARS_MAX // SCHEMA_BYTES_MAX + 1)
    }
    with pytest.raises(InvalidSchema, match="all it refers to"):
        avro.parse('"int"', texts)
    many = '{"type":"int","x":[' + "1," * (VALUES_MAX // 2) + "1]}"
    with pytest.raises(InvalidSchema, match="all it refers to"):
        avro.parse('"int"', {"a": many, "b": many})


def test_a_nul_that_is_escaped_is_a_character_like_any_other() -> None:
    text = r'{"type":"int","doc":"\u0000\ud83d\ude00"}'
    assert avro.parse(text, {}).canonical() == '{"type":"int","doc":"\\u0000😀"}'
