"""The Protobuf printer: a printed text is the same schema, and equal schemas have the same canonical text."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.protobuf.kit import ED, P2, P3, described, parsed, refused
from tests.schema.protobuf.strategies import File, files, written
from tests.schema.protobuf.test_options import CUSTOM
from tests.schema.protobuf.test_options import GOOD as OPTIONS
from tests.schema.protobuf.test_parsing import GOOD, REFERENCES

from penstock.schema.protobuf import file_descriptor, proto_text


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_printed_and_parsed_again_a_schema_has_the_same_descriptors(text: str) -> None:
    printed = proto_text(parsed(text, REFERENCES))
    assert described(printed, REFERENCES) == described(text, REFERENCES)
    assert proto_text(parsed(printed, REFERENCES)) == printed


@pytest.mark.parametrize("statement", OPTIONS)
def test_options_are_printed_with_what_they_mean(statement: str) -> None:
    printed = proto_text(parsed(CUSTOM + statement))
    assert described(printed) == described(CUSTOM + statement)


@given(files)
@settings(max_examples=40)
def test_any_schema_can_be_printed_and_parsed_again(file: File) -> None:
    schema = parsed(written(file))
    assert file_descriptor(parsed(proto_text(schema))) == file_descriptor(schema)
    assert parsed(schema.canonical()).canonical() == schema.canonical()


def test_a_printed_schema_is_as_a_person_would_write_it() -> None:
    text = """syntax = "proto3";

package shop.v1;

import "google/protobuf/timestamp.proto";

option java_package = "com.shop";

message Order {
  reserved 8, 10 to 12;
  reserved "old";
  enum State {
    NEW = 0;
    PAID = 1 [deprecated = true];
  }
  string id = 1;
  optional int32 priority = 2;
  map<string, Line> lines = 3;
  google.protobuf.Timestamp placed_at = 4 [json_name = "when"];
  oneof payment {
    string card = 5;
    Order.State state = 6;
  }
}

message Line {
  repeated int32 quantities = 1;
}

service Orders {
  rpc Place(Order) returns (stream Line);
}
"""
    assert proto_text(parsed(text)) == text


def test_a_name_that_an_inner_one_hides_is_printed_in_full() -> None:
    text = P3 + "package p; message A {} message M { message A {} .p.A outer = 1; A inner = 2; }"
    assert ".p.A outer = 1;" in proto_text(parsed(text))
    assert described(proto_text(parsed(text))) == described(text)


# Canonical

SAME = {
    "comments and spaces": (
        P3 + "message M { int32 a = 1; }",
        P3 + "// x\nmessage /* y */ M\n{\n\tint32 a=1;\n}\n",
    ),
    "the order of fields": (
        P3 + "message M { int32 a = 1; int32 b = 2; }",
        P3 + "message M { int32 b = 2; int32 a = 1; }",
    ),
    "the order of oneofs": (
        P3 + "message M { oneof x { int32 a = 1; } oneof y { int32 b = 2; int32 c = 3; } }",
        P3 + "message M { oneof y { int32 c = 3; int32 b = 2; } oneof x { int32 a = 1; } }",
    ),
    "where things stand in a message": (
        P3 + "message M { N n = 1; message N {} enum E { A = 0; } map<int32, N> m = 2; }",
        P3 + "message M { map<int32, N> m = 2; enum E { A = 0; } message N {} N n = 1; }",
    ),
    "the order of enums, values and services": (
        P3 + "message M {} enum E { A = 0; B = 1; C = 2; } enum F { D = 0; } service S { rpc X(M) returns (M); }",
        P3 + "service S { rpc X(M) returns (M); } enum F { D = 0; } enum E { A = 0; C = 2; B = 1; } message M {}",
    ),
    "the order of methods": (
        P3 + "message M {} service S { rpc X(M) returns (M); rpc Y(M) returns (M); }",
        P3 + "service S { rpc Y(M) returns (M); rpc X(M) returns (M); } message M {}",
    ),
    "how names are written": (
        P3 + "package p.q; message M { M a = 1; q.M b = 2; .p.q.M c = 3; p.q.M d = 4; }",
        P3 + "package p.q; message M { .p.q.M a = 1; M b = 2; M c = 3; M d = 4; }",
    ),
    "how numbers and strings are written": (
        P2 + "message M { optional int32 a = 0x10 [default = 010]; optional string b = 2 [default = 'x' \"y\"]; }",
        P2 + 'message M { optional int32 a = 16 [default = 8]; optional string b = 2 [default = "\\x78y"]; }',
    ),
    "reserved numbers and names": (
        P3 + 'message M { reserved 1, 2, 3, 7 to 9; reserved "b", "a"; }',
        P3 + 'message M { reserved 8 to 9; reserved "a"; reserved 1 to 3, 7; reserved "b"; }',
    ),
    "a syntax that goes without saying": ("message M {}", P2 + "message M {}"),
    "the order of imports": (
        P3 + 'import "b.proto"; import public "c.proto"; message M {}',
        P3 + 'import public "c.proto"; import "b.proto"; message M {}',
    ),
    "options that say what is so anyway": (
        P3 + "message M { repeated int32 a = 1 [packed = true, deprecated = false]; }",
        P3 + "message M { repeated int32 a = 1; }",
    ),
    "the order of options": (
        P3 + 'option java_package = "a"; option go_package = "b"; option (x) = 1; option (y) = 2;',
        P3 + 'option (y) = 2; option (x) = 1; option go_package = "b"; option java_package = "a";',
    ),
    "a json_name that follows anyway": (
        P3 + 'message M { int32 a_b = 1 [json_name = "aB"]; }',
        P3 + "message M { int32 a_b = 1; }",
    ),
    "the order of extensions": (
        P2 + "message M { extensions 1 to 9, 20; } extend M { optional int32 a = 1; optional int32 b = 2; }",
        P2
        + "message M { extensions 20; extensions 1 to 9; }"
        + "extend M { optional int32 b = 2; } extend M { optional int32 a = 1; }",
    ),
}

DIFFERENT = {
    "names": (P3 + "message M { int32 a = 1; }", P3 + "message M { int32 b = 1; }"),
    "numbers": (P3 + "message M { int32 a = 1; }", P3 + "message M { int32 a = 2; }"),
    "types": (P3 + "message M { int32 a = 1; }", P3 + "message M { int64 a = 1; }"),
    "presence": (P3 + "message M { int32 a = 1; }", P3 + "message M { optional int32 a = 1; }"),
    "the first message": (P3 + "message M {} message N {}", P3 + "message N {} message M {}"),
    "the first value": (P2 + "enum E { A = 0; B = 1; }", P2 + "enum E { B = 1; A = 0; }"),
    "defaults": (
        P2 + "message M { optional int32 a = 1 [default = 1]; }",
        P2 + "message M { optional int32 a = 1 [default = 2]; }",
    ),
    "packages": (P3 + "package a; message M {}", P3 + "package b; message M {}"),
    "dialects": (P2 + "message M {}", P3 + "message M {}"),
    "packing": (
        P3 + "message M { repeated int32 a = 1; }",
        P3 + "message M { repeated int32 a = 1 [packed = false]; }",
    ),
    "options": (P3 + "message M {}", P3 + "message M { option deprecated = true; }"),
    "unknown options": (P3 + "option (x) = 1;", P3 + "option (x) = 2;"),
    "features": (
        ED + "message M { int32 a = 1; }",
        ED + "message M { int32 a = 1 [features.field_presence = IMPLICIT]; }",
    ),
    "what is public": (P3 + 'import "b.proto";', P3 + 'import public "b.proto";'),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_what_means_the_same_has_the_same_canonical_form(one: str, other: str) -> None:
    assert parsed(one, REFERENCES).canonical() == parsed(other, REFERENCES).canonical()


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_somebody_could_notice_is_in_the_canonical_form(one: str, other: str) -> None:
    assert parsed(one, REFERENCES).canonical() != parsed(other, REFERENCES).canonical()


def test_what_a_schema_refers_to_is_in_its_canonical_form_but_for_what_everybody_knows() -> None:
    text = P3 + 'import "r.proto"; import "google/protobuf/empty.proto"; message M { R r = 1; }'
    one = parsed(text, {"r.proto": P3 + "message R { int32 a = 1; }"}).canonical()
    other = parsed(text, {"r.proto": P3 + "message R { int64 a = 1; }"}).canonical()
    assert one != other
    assert '// "r.proto"' in one
    assert "message Empty" not in one


@given(files, st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_shuffled_fields_and_enums_have_the_same_canonical_form(file: File, chance: random.Random) -> None:
    shuffled = _shuffled(file, chance)
    assert refused(written(shuffled)) is None
    assert parsed(written(shuffled)).canonical() == parsed(written(file)).canonical()


def _shuffled(file: File, chance: random.Random) -> File:
    messages = tuple(
        replace(each, fields=tuple(chance.sample(each.fields, len(each.fields))), reserved=each.reserved[::-1])
        for each in file.messages
    )
    return replace(file, messages=messages, enums=file.enums[::-1])
