"""Hostile schemas and payloads, from attackers or runaway generators. Each must be refused, no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.core.schemas import SchemaKind

AVRO, JSON, PROTOBUF = SchemaKind.AVRO, SchemaKind.JSON, SchemaKind.PROTOBUF
PORT: Final = "47"
"""The placeholder in addresses for the port of a server that must not be called."""


class HostileSchema(NamedTuple):
    kind: SchemaKind
    text: str


class HostilePayload(NamedTuple):
    kind: SchemaKind
    schema: str
    payload: bytes


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth


def doubled(levels: int, link: Callable[[int], str]) -> dict[str, object]:
    """Return definitions each of which uses the next one twice."""
    return {f"d{level}": {"allOf": [{"$ref": link(level + 1)}] * 2} for level in range(levels)} | {
        f"d{levels}": {"type": "string"}
    }


def avro_record(fields: str) -> str:
    return f'{{"type":"record","name":"R","fields":[{fields}]}}'


HUGE: Final = "x" * 10_000_000

SCHEMAS: Final[dict[str, HostileSchema]] = {
    "nothing at all": HostileSchema(JSON, ""),
    "avro: nested arrays, 4,650 deep": HostileSchema(AVRO, nested('{"type":"array","items":', '"int"', "}", 4650)),
    "avro: nested arrays, 100,000 deep": HostileSchema(AVRO, nested('{"type":"array","items":', '"int"', "}", 100_000)),
    "avro: brackets": HostileSchema(AVRO, "[" * 1_000_000),
    "avro: 10 MB of name": HostileSchema(AVRO, f'"{HUGE}"'),
    "avro: a zero byte": HostileSchema(AVRO, '{"type":"record","name":"a\\u0000b","fields":[]}'),
    "avro: half a character": HostileSchema(AVRO, '{"type":"record","name":"\\ud800","fields":[]}'),
    "avro: a fixed of 2^62 bytes with a default": HostileSchema(
        AVRO, avro_record('{"name":"f","type":{"type":"fixed","name":"F","size":4611686018427387904},"default":"a"}')
    ),
    "avro: a decimal of 10^9 digits": HostileSchema(
        AVRO,
        avro_record('{"name":"f","type":{"type":"bytes","logicalType":"decimal","precision":1e999},"default":1}'),
    ),
    "avro: a number of a million digits": HostileSchema(
        AVRO, avro_record('{"name":"f","type":"int","default":%s}' % ("9" * 900_000))
    ),
    "avro: not a type": HostileSchema(AVRO, '"file:///etc/passwd"'),
    "json: brackets": HostileSchema(JSON, "[" * 1_000_000),
    "json: nested, 100,000 deep": HostileSchema(JSON, nested('{"not":', "{}", "}", 100_000)),
    "json: 10 MB": HostileSchema(JSON, json.dumps({"description": HUGE})),
    "json: a file": HostileSchema(JSON, '{"$ref":"file:///etc/passwd"}'),
    "json: a page": HostileSchema(JSON, f'{{"$ref":"http://127.0.0.1:{PORT}/schema.json"}}'),
    "json: a page, by its id": HostileSchema(
        JSON, f'{{"$id":"http://127.0.0.1:{PORT}/a/","properties":{{"x":{{"$ref":"b.json"}}}}}}'
    ),
    "json: a page as the meta-schema": HostileSchema(JSON, f'{{"$schema":"http://127.0.0.1:{PORT}/meta"}}'),
    "json: a pattern that backtracks": HostileSchema(JSON, r'{"type":"string","pattern":"^(a+)+(?=b)$"}'),
    "json: a pattern that refers back": HostileSchema(JSON, r'{"type":"string","pattern":"(a*)\\1*b"}'),
    "json: a pattern that unrolls": HostileSchema(JSON, r'{"type":"string","pattern":"((a{1000}){1000}){1000}"}'),
    "json: not a type": HostileSchema(JSON, '{"type":"file"}'),
    "json: twice infinite": HostileSchema(JSON, '{"minimum":Infinity}'),
    "json: a reference to nothing": HostileSchema(JSON, '{"$ref":"#/$defs/none"}'),
    "protobuf: nested, 10,000 deep": HostileSchema(
        PROTOBUF, 'syntax="proto3";' + nested("message A{", "", "}", 10_000)
    ),
    "protobuf: a comment without end": HostileSchema(PROTOBUF, 'syntax="proto3"; /* ' + "*" * 500_000),
    "protobuf: a text without end": HostileSchema(PROTOBUF, 'syntax="proto3'),
    "protobuf: a file": HostileSchema(PROTOBUF, 'syntax="proto3"; import "/etc/passwd"; message A {}'),
    "protobuf: a file above": HostileSchema(PROTOBUF, 'syntax="proto3"; import "../../etc/passwd"; message A {}'),
    "protobuf: a page": HostileSchema(
        PROTOBUF, f'syntax="proto3"; import "http://127.0.0.1:{PORT}/a.proto"; message A {{}}'
    ),
    "protobuf: 10 MB": HostileSchema(PROTOBUF, 'syntax="proto3"; //' + HUGE),
    "protobuf: an option without end": HostileSchema(PROTOBUF, 'syntax="proto3"; option (a) = ' + "{a:" * 100_000),
    "protobuf: a field of no number": HostileSchema(PROTOBUF, 'syntax="proto3"; message A { int32 a = 99999999999; }'),
    "protobuf: no descriptor": HostileSchema(PROTOBUF, "A" * 100_000),
    "protobuf: zero bytes": HostileSchema(PROTOBUF, 'syntax="proto3";\0message A {}'),
}
"""Texts that are not schemas, or not ones that can be parsed within the limits."""

FAN_OUT: Final = {
    "json: references that double": HostileSchema(
        JSON, json.dumps({"$ref": "#/$defs/d0", "$defs": doubled(40, lambda level: f"#/$defs/d{level}")})
    ),
    "json: choices that double": HostileSchema(
        JSON,
        json.dumps({"$ref": "#/$defs/d0", "$defs": doubled(40, lambda level: f"#/$defs/d{level}")}).replace(
            "allOf", "anyOf"
        ),
    ),
}
"""Small texts that mean something huge: accepted or refused, but quickly."""

_LIST = '{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}'
_TREE = json.dumps(
    {"$defs": {"t": {"type": "object", "additionalProperties": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}
)

PAYLOADS: Final[dict[str, HostilePayload]] = {
    "avro: 5 bytes that claim 780 MiB": HostilePayload(
        AVRO, '{"type":"array","items":"null"}', b"\x80\x80\x80\x80\x08\x00"
    ),
    "avro: 2^62 items": HostilePayload(
        AVRO, '{"type":"array","items":"long"}', b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    ),
    "avro: fewer than no items": HostilePayload(AVRO, '{"type":"array","items":"long"}', b"\x01\x01\x00"),
    "avro: a text of 2^40 bytes": HostilePayload(AVRO, '"string"', b"\x80\x80\x80\x80\x80\x40"),
    "avro: a list of a million": HostilePayload(AVRO, _LIST, b"\x02" * 1_000_000 + b"\x00"),
    "avro: a number without end": HostilePayload(AVRO, '"long"', b"\xff" * 100),
    "avro: not text": HostilePayload(AVRO, '"string"', b"\x04\xff\xfe"),
    "json: brackets": HostilePayload(JSON, '{"type":"object"}', b"[" * 900_000),
    "json: nested objects": HostilePayload(JSON, _TREE, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "json: not text": HostilePayload(JSON, '{"type":"object"}', b'{"a":"\xff"}'),
    "json: half a character": HostilePayload(JSON, '{"type":"object","maxProperties":0}', b'{"a":"\\ud800"}'),
    "json: a number of a million digits": HostilePayload(JSON, '{"type":"string"}', b"9" * 900_000),
    "json: infinite": HostilePayload(JSON, '{"type":"number"}', b"Infinity"),
    "json: what backtracks elsewhere": HostilePayload(
        JSON, '{"type":"string","pattern":"^(a+)+$"}', b'"' + b"a" * 100_000 + b'!"'
    ),
    "protobuf: groups without end": HostilePayload(
        PROTOBUF, 'syntax="proto3"; message A { A a = 1; }', b"\x0b" * 500_000
    ),
    "protobuf: lengths that lie": HostilePayload(
        PROTOBUF, 'syntax="proto3"; message A { string a = 1; }', b"\x0a\xff\xff\xff\xff\x0f"
    ),
    "protobuf: not text": HostilePayload(PROTOBUF, 'syntax="proto3"; message A { string a = 1; }', b"\x0a\x02\xff\xfe"),
    "number: a million digits and no more": HostilePayload(SchemaKind.NUMBER, "", b"1" * 900_000 + b"x"),
    "string: not text": HostilePayload(SchemaKind.STRING, "", b"\xff\xfe"),
}
"""Payloads that do not conform to their schemas."""
