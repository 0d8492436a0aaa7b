"""The Protobuf parser: the same descriptors as protoc, and the same refusals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.schema.protobuf.kit import ED, P2, P3, described, protoc, refused
from tests.schema.protobuf.strategies import files, written

REFERENCES = {
    "b.proto": P2 + "message B { extensions 100 to 200; } enum Closed { A = 0; }",
    "c.proto": P2 + 'import "b.proto";',
    "d.proto": P2 + 'import public "b.proto";',
    "shop/money.proto": P3 + "package shop.v1; message Money { int64 units = 1; }",
}

EVERYTHING = """
// A comment é
syntax = "proto2"; /* another */
package shop.v1;
import "google/protobuf/timestamp.proto";
import weak "b.proto";
option java_package = "com." 'shop' "\\"";
option optimize_for = CODE_SIZE;
enum Status {
  option allow_alias = true;
  UNKNOWN = 0; NEW = -1 [deprecated = true]; OLD = -0x1; OCTAL = 012;
  reserved 5, 7 to 9, -5 to -2, 100 to max; reserved "GONE", "TOO";
}
message Order {
  option deprecated = true;
  required string id = 1 [json_name = "ID"];
  map<string, Line> order_lines = 2 [deprecated = true];
  message Line {
    optional int32 qty = 1 [default = 0x10];
    optional bytes raw = 2 [default = "\\000\\xff\\"'?\\u00e9\\U0001F600"];
    optional string text = 3 [default = 'a"\\'é\\x01\\ud83d\\ude00'];
    optional double large = 4 [default = 1e100];
    optional Status status = 5 [default = OLD];
    optional float none = 6 [default = -nan];
    optional double tenth = 7 [default = .1];
    optional double whole = 8 [default = 99999999999999999999];
    optional double past = 9 [default = 1e999];
    optional float negative = 10 [default = -1.5];
    optional sint64 low = 11 [default = -9223372036854775808];
    optional uint64 high = 12 [default = 18446744073709551615];
    optional bool yes = 13 [default = true];
    optional double exact = 14 [default = 0.1234567890123456789];
    optional double minus = 15 [default = -0.0];
    optional float infinite = 16 [default = -inf];
    optional fixed32 octal = 17 [default = 0777];
  }
  oneof how { Line line = 3; string text = 4; group Grp = 5 { optional int32 x = 1; } }
  optional .google.protobuf.Timestamp placed_at = 6;
  map<int32, Status> counts = 7;
  message Tail { optional Order order = 1; optional .shop.v1.Order.Tail tail = 2; message Order {} ; }
  repeated int32 packed = 8 [packed = true, deprecated = false];
  reserved 10, 12 to 15, 1000 to 2000; reserved "foo", "bar";
  extensions 100 to 199, 5000 to max;
  extend Order { optional int32 ext = 100; repeated group Eg = 101 { } }
  enum Inner { FIRST = 7; }
  optional Inner inner = 9 [default = FIRST];
  repeated B bs = 11;;
  optional int32 message = 20; optional string optional = 21; optional int32 a__b_c1D = 22; optional int32 _x = 23;
}
extend Order { optional string other = 102; }
message Set { option message_set_wire_format = true; extensions 4 to max; }
service Orders {
  option deprecated = true;
  rpc Get(Order) returns (stream Order.Line) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Put(stream .shop.v1.Order) returns (Order);
  rpc Other(Order) returns (Order) {};
}
"""

GOOD = {
    "nothing but the syntax": P3,
    "everything there is": EVERYTHING,
    "no syntax at all": "message M { optional int32 a = 1; }",
    "a byte order mark": "\ufeff" + P3 + "message M {}",
    "carriage returns": P3 + "\r\nmessage M {\r\n}\r\n",
    "empty statements": P2 + ";; message M {;;} enum E {; A = 0;;} service S {;}",
    "optional fields of proto3": P3 + "message M { optional int32 a = 1; int32 _a = 2; oneof X_a { int32 c = 3; } }",
    "optional after a oneof": P3 + "message M { optional int32 x = 1; oneof o { int32 a = 2; } optional M y = 3; }",
    "names of packages": P3
    + 'package shop; import "shop/money.proto"; message M { v1.Money a = 1; .shop.v1.Money b = 2; }',
    "public imports": P2 + 'import "d.proto"; message M { optional B b = 1; }',
    "a type named map": P2 + "message map {} message M { optional map m = 1; }",
    "words as names": P3 + "message M { int32 message = 1; int32 reserved = 2; string option = 3; bool max = 4; }",
    "ranges to the end": P2 + "message M { reserved 5 to max; } enum E { A = 0; reserved 1 to max; }",
    "the last number": P2 + "message M { optional int32 a = 536870911; }",
    "numbers in other bases": P2 + "message M { optional int32 a = 0x10; optional int32 b = 010; }",
    "enums at the edges": P2 + "enum E { A = -2147483648; B = 2147483647; }",
    "a oneof with a group": P2 + "message M { oneof o { group G = 1 {} int32 a = 2; } }",
    "extensions of options": P3
    + 'import "google/protobuf/descriptor.proto"; extend google.protobuf.FieldOptions { optional string s = 50001; }',
    "ranges with options": P2 + "message M { extensions 1 to 5, 7 [verification = UNVERIFIED]; }",
    "declared extensions": P2
    + 'message M { extensions 1 to 5 [declaration = {number: 1 full_name: ".x" type: "int32"}]; }'
    + "extend M { optional int32 x = 1; }",
    "an edition": ED
    + "message M { int32 a = 1; repeated int32 b = 2; M c = 3 [features.message_encoding = DELIMITED]; reserved d, e; }"
    + "enum E { option features.enum_type = CLOSED; A = 1; }",
    "features of a map": ED + "message M { map<string, string> a = 1 [features.utf8_validation = NONE]; }",
    "features of a file": ED
    + "option features.field_presence = IMPLICIT; message M { int32 a = 1; oneof o { int32 b = 2; } }",
    "a required field of an edition": ED + "message M { int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; }",
    "a field that hides no type": P3 + "message N {} message M { N a = 1; int32 N = 2; }",
    "31 messages deep": P3 + "".join(f"message M{i} {{" for i in range(31)) + "}" * 31,
}

BAD = {
    "the same name in JSON": P3 + "message M { int32 a_b = 1; int32 aB = 2; }",
    "the same json_name": P2
    + 'message M { optional int32 a = 1 [json_name = "x"]; optional int32 b = 2 [json_name = "x"]; }',
    "a json_name in brackets": P3 + 'message M { int32 a = 1 [json_name = "[x]"]; }',
    "a json_name with NUL": P3 + 'message M { int32 a = 1 [json_name = "\\0"]; }',
    "a json_name twice": P3 + 'message M { int32 a = 1 [json_name = "x", json_name = "y"]; }',
    "values that differ by the prefix": P3 + "enum Foo { FOO_A = 0; A = 1; }",
    "a closed enum in proto3": P3 + 'import "b.proto"; message M { Closed e = 1; }',
    "a closed enum in proto3, repeated": P3 + 'import "b.proto"; message M { repeated Closed e = 1; }',
    "a closed enum in a map of proto3": P3 + 'import "b.proto"; message M { map<string, Closed> e = 1; }',
    "a closed enum without presence": ED
    + 'import "b.proto"; message M { Closed e = 1 [features.field_presence = IMPLICIT]; }',
    "needless allow_alias": P2 + "enum E { option allow_alias = true; A = 0; }",
    "allow_alias false": P2 + "enum E { option allow_alias = false; A = 0; }",
    "aliases that are not allowed": P2 + "enum E { A = 0; B = 0; }",
    "an extend without fields": P2 + "message M { extensions 1 to 5; } extend M {}",
    "a name reserved twice": P2 + 'message M { reserved "a", "a"; }',
    "a reserved name": P2 + 'message M { reserved "a"; optional int32 a = 1; }',
    "a reserved number": P2 + "message M { reserved 1 to 5; optional int32 a = 3; }",
    "reserved ranges that overlap": P2 + "message M { reserved 1 to 5, 3; }",
    "the reserved number 0": P2 + "message M { reserved 0; }",
    "a range that ends before it begins": P2 + "message M { reserved 5 to 3; }",
    "numbers and names in one statement": P2 + 'message M { reserved 5, "a"; }',
    "reserved names without quotes": P2 + "message M { reserved a; }",
    "reserved names in quotes, in an edition": ED + 'message M { reserved "a"; }',
    "extensions that are reserved": P2 + "message M { extensions 1 to 5; reserved 5; }",
    "extension ranges in proto3": P3 + "message M { extensions 1 to 5; }",
    "extensions in proto3": P3 + 'import "b.proto"; extend B { int32 x = 101; }',
    "an extension out of range": P2 + "message M { extensions 1 to 5; } extend M { optional int32 x = 6; }",
    "two extensions with one number": P2
    + "message M { extensions 1 to 5; } extend M { optional int32 x = 5; optional int32 y = 5; }",
    "a required extension": P2 + "message M { extensions 1 to 5; } extend M { required int32 x = 5; }",
    "a json_name of an extension": P2
    + 'message M { extensions 1 to 5; } extend M { optional int32 x = 5 [json_name = "a"]; }',
    "an extension that is declared otherwise": P2
    + 'message M { extensions 1 to 5 [declaration = {number: 1 full_name: ".x" type: "int64"}]; }'
    + "extend M { optional int32 x = 1; }",
    "a map as an extension": P2 + "message M { extensions 1 to 5; } extend M { map<int32, int32> x = 5; }",
    "a map with a label": P2 + "message M { optional map<int32, int32> x = 5; }",
    "a map in a oneof": P2 + "message M { oneof o { map<int32, int32> x = 5; } }",
    "a map of floats": P2 + "message M { map<float, int32> x = 5; }",
    "a map of enums": P2 + "enum E { A = 0; } message M { map<E, int32> x = 5; }",
    "a map of maps": P2 + "message M { map<int32, map<int32, int32>> x = 5; }",
    "a map of groups": P2 + "message M { map<int32, group> x = 5; }",
    "a message with a map entry's name": P2 + "message M { map<int32, int32> x = 5; message XEntry {} }",
    "map_entry by hand": P2
    + "message M { option map_entry = true; optional int32 key = 1; optional int32 value = 2; }",
    "a packed map": P2 + "message M { map<int32, int32> x = 5 [packed = true]; }",
    "an empty oneof": P2 + "message M { oneof o {} }",
    "a label in a oneof": P2 + "message M { oneof o { optional int32 a = 1; } }",
    "a repeated field in a oneof": P3 + "message M { oneof o { repeated int32 a = 1; } }",
    "a group in small letters": P2 + "message M { optional group g = 1 {} }",
    "a group in proto3": P3 + "message M { optional group G = 1 {} }",
    "a group in an edition": ED + "message M { group G = 1 {} }",
    "optional in an edition": ED + "message M { optional int32 a = 1; }",
    "required in an edition": ED + "message M { required int32 a = 1; }",
    "required in proto3": P3 + "message M { required int32 a = 1; }",
    "a default in proto3": P3 + "message M { int32 a = 1 [default = 1]; }",
    "a default of a repeated field": P2 + "message M { repeated int32 a = 1 [default = 1]; }",
    "a default of a message": P2 + "message M { optional M a = 1 [default = A]; }",
    "a default that the enum does not have": P2 + "enum E { A = 0; } message M { optional E a = 1 [default = B]; }",
    "a number for an enum": P2 + "enum E { A = 0; } message M { optional E a = 1 [default = 0]; }",
    "a default out of range": P2 + "message M { optional int32 a = 1 [default = 2147483648]; }",
    "a negative default without a sign": P2 + "message M { optional uint32 a = 1 [default = -1]; }",
    "a default twice": P2 + "message M { optional uint32 a = 1 [default = 1, default = 2]; }",
    "a bool in capitals": P2 + "message M { optional bool a = 1 [default = TRUE]; }",
    "a default without presence": ED + "message M { int32 a = 1 [default = 1, features.field_presence = IMPLICIT]; }",
    "packed strings": P2 + "message M { repeated string a = 1 [packed = true]; }",
    "a single packed number": P2 + "message M { optional int32 a = 1 [packed = true]; }",
    "packed in an edition": ED + "message M { repeated int32 a = 1 [packed = true]; }",
    "an unknown syntax": 'syntax = "proto4";',
    "a syntax that is not first": 'package a; syntax = "proto2";',
    "an unknown edition": 'edition = "2025";',
    "proto2 as an edition": 'edition = "proto2";',
    "two packages": P2 + "package a; package b;",
    "a package without a name": P2 + "package ;",
    "a package that begins with a dot": P2 + "package .a;",
    "an import twice": P2 + 'import "b.proto"; import "b.proto";',
    "an import that is not there": P2 + 'import "zz.proto";',
    "a field with the number 0": P2 + "message M { optional int32 a = 0; }",
    "a number of the library": P2 + "message M { optional int32 a = 19000; }",
    "a number that is too large": P2 + "message M { optional int32 a = 536870912; }",
    "octal with an 8": P2 + "message M { optional int32 a = 08; }",
    "a negative number": P2 + "message M { optional int32 a = -1; }",
    "a plus": P2 + "message M { optional int32 a = +1; }",
    "a number with an underscore": P2 + "message M { optional int32 a = 1_0; }",
    "a number with a point": P2 + "message M { optional int32 a = 1.0; }",
    "a number twice": P2 + "message M { optional int32 a = 1; optional int32 b = 1; }",
    "an open enum without 0": P3 + "enum E { A = 1; }",
    "an empty enum": P2 + "enum E {}",
    "a value that is too large": P2 + "enum E { A = 2147483648; }",
    "a reserved value": P2 + "enum E { A = 1; reserved 1; }",
    "a reserved name of a value": P2 + 'enum E { A = 1; reserved "A"; }',
    "values of two enums with one name": P2 + "enum E { A = 1; } enum F { A = 1; }",
    "a field and a message with one name": P2 + "message M { message a {} optional int32 a = 1; }",
    "a field without a label": P2 + "message M { int32 a = 1; }",
    "a field without a type": P3 + "message M { a = 1; }",
    "a field without a semicolon": P2 + "message M { optional int32 a = 1 }",
    "a method of an enum": P3 + "enum M { A = 0; } service S { rpc a(M) returns (M); }",
    "a method of a number": P3 + "service S { rpc a(int32) returns (int32); }",
    "a method twice": P3 + "message M {} service S { rpc a(M) returns (M); rpc a(M) returns (M); }",
    "a type that is not imported": P2 + 'import "c.proto"; message M { optional B b = 1; }',
    "a name that an inner one hides": P2 + "package a; message B {} message M { message a {} optional a.B b = 1; }",
    "a field as a type": P2 + "message M { optional M.x b = 1; optional int32 x = 2; }",
    "a package as a type": P2 + "package q; message M { optional q b = 1; }",
    "a type called stream": P3 + "message stream {} service S { rpc a(stream) returns (.stream); }",
    "a type called optional": P3 + "message optional {} message M { optional optional = 1; }",
    "a comment in a comment": P3 + "/* /* */ */",
    "a comment without an end": P3 + "/* ",
    "a string without an end": 'import "a',
    "a string over two lines": 'import "a\nb";',
    "letters that are not ASCII": "é",
    "NUL": "\0",
    "a control character": "\x01",
    "an unknown escape": 'option java_package = "\\z";',
    "x without digits": 'option java_package = "\\x";',
    "u with two digits": 'option java_package = "\\u12";',
    "an exponent without digits": P2 + "message M { optional float a = 1 [default = 1e]; }",
    "a number with a letter": P2 + "message M { optional float a = 1 [default = 1f]; }",
    "two points": P2 + "message M { optional float a = 1 [default = 1.5.2]; }",
    "a zero before the point": P2 + "message M { optional float a = 1 [default = 00.5]; }",
    "empty brackets": P3 + "message M { int32 a = 1 []; }",
    "a comma at the end": P3 + "message M { int32 a = 1 [deprecated = true,]; }",
    "features in proto3": P3 + "option features.field_presence = IMPLICIT;",
    "a feature of fields on a message": ED + "message M { option features.field_presence = IMPLICIT; }",
    "presence of a repeated field": ED
    + "message M { repeated int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; }",
    "implicit presence of a message": ED + "message M { M a = 1 [features.field_presence = IMPLICIT]; }",
    "presence in a oneof": ED + "message M { oneof o { int32 a = 1 [features.field_presence = IMPLICIT]; } }",
    "presence of an extension": ED
    + "message M { extensions 1; } extend M { int32 a = 1 [features.field_presence = IMPLICIT]; }",
    "repetition of a single field": ED + "message M { int32 a = 1 [features.repeated_field_encoding = EXPANDED]; }",
    "packed strings of an edition": ED
    + "message M { repeated string a = 1 [features.repeated_field_encoding = PACKED]; }",
    "text that is a number": ED + "message M { int32 a = 1 [features.utf8_validation = NONE]; }",
    "a delimited number": ED + "message M { int32 a = 1 [features.message_encoding = DELIMITED]; }",
    "a delimited map": ED + "message M { map<int32, M> a = 1 [features.message_encoding = DELIMITED]; }",
    "a feature without a value": ED + "option features.field_presence = FIELD_PRESENCE_UNKNOWN;",
    "a feature of a later edition": ED + "option features.enforce_naming_style = STYLE2024;",
    "an import of a later edition": ED + 'import option "b.proto";',
    "visibility of a later edition": ED + "export message M {}",
    "jstype of a short number": P3 + "message M { int32 a = 1 [jstype = JS_STRING]; }",
    "a lazy number": P3 + "message M { int32 a = 1 [lazy = true]; }",
    "a message set with fields": P2 + "message M { option message_set_wire_format = true; optional int32 a = 1; }",
    "a message set in proto3": P3 + "message M { option message_set_wire_format = true; }",
    "32 messages deep": P3 + "".join(f"message M{i} {{" for i in range(32)) + "}" * 32,
    "options between ranges": P2 + "message M { extensions 1 to 5, 7 [verification = UNVERIFIED], 9; }",
    "extensions with a minus": P2 + "message M { extensions -1; }",
    "the extension 0": P2 + "message M { extensions 0; }",
    "a field that hides a message to extend": P2
    + "message M { extensions 5; optional int32 M = 1; extend M { optional int32 a = 5; } }",
    "a method that hides its own type": P3 + "message M {} service S { rpc M(M) returns (M); }",
    "an empty statement in a oneof": P3 + "message M { oneof o { int32 a = 1;; } }",
    "an empty statement in an extend": P2 + "message M { extensions 5; } extend M { optional int32 a = 5;; }",
    "a brace too many": P3 + "message M {}}",
    "a brace too few": P3 + "message M {",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_a_file_has_the_descriptors_that_protoc_gives_it(text: str) -> None:
    expected = protoc(text, REFERENCES)
    if expected.syntax == "proto2":
        expected.ClearField("syntax")
    assert described(text, REFERENCES) == expected


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_protoc_refuses_is_refused(text: str) -> None:
    assert protoc(text, REFERENCES) is None
    assert refused(text, REFERENCES) is not None


@given(files)
@settings(max_examples=60)
def test_any_file_has_the_descriptors_that_protoc_gives_it(file: object) -> None:
    text = written(file)
    assert described(text) == protoc(text)


# Differences from protoc: stricter, or more patient


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("// only a comment", id="a comment"),
        pytest.param(P2 + "message M { optional int32 a_b = 1; optional int32 aB = 2; }", id="one name in JSON"),
        pytest.param(P2 + 'message M { optional string a = 1 [default = "\\xff"]; }', id="a default that is not text"),
        pytest.param('option java_package = "\\ud83d";', id="a lone surrogate"),
        pytest.param('option java_package = "\\U00110000";', id="a character past the last"),
        pytest.param('edition = "2024"; message M { int32 a = 1; }', id="edition 2024"),
    ],
)
def test_what_protoc_lets_pass_and_we_do_not(text: str) -> None:
    assert protoc(text) is not None
    assert refused(text) is not None


def test_an_option_that_nobody_defined_is_kept_as_it_is() -> None:
    text = P3 + 'message M { int32 a = 1 [(v.rule).min = 5, (v.other) = {a: [1, 2] b <c: "x">}]; }'
    assert protoc(text) is None
    options = described(text).message_type[0].field[0].options.uninterpreted_option
    assert [[part.name_part for part in option.name] for option in options] == [["v.rule", "min"], ["v.other"]]
    assert options[0].positive_int_value == 5
    assert options[1].aggregate_value == 'a : [ 1 , 2 ] b < c : "x" >'


# Positions of errors


@pytest.mark.parametrize(
    ("text", "line", "column", "path"),
    [
        ("syntax = 'proto3';\nmessage M {\n  int32 a = x;\n}", 3, 13, None),
        ("syntax = 'proto3';\nmessage M {\n  Nothing a = 1;\n}", 3, 11, "/M/a"),
        ("syntax = 'proto3';\n\n  message M { message N { int32 a = 19001; } }", 3, 33, "/M/N/a"),
        ("syntax = 'proto3';\r\n/* \n */ é", 3, 5, None),
        ("message M {\n  optional int32 a = 1;\n  optional int32 a = 2;\n}", 3, 18, None),
        ("package p.q;\nmessage M {\n\toptional int32 a = 1 [packed = true];\n}", 3, 17, "/M/a"),
        ("syntax = 'proto3';\nimport 'zz.proto';", 2, 8, None),
        ("syntax = 'proto3';\nmessage M {\n  int32 a = 1 [deprecated = true,\n    nonsense = 1];\n}", 4, 5, None),
        ("", 1, 1, None),
        ("message M {", 1, 12, None),
    ],
)
def test_a_refusal_says_line_and_column(text: str, line: int, column: int, path: str | None) -> None:
    error = refused(text)
    assert error is not None
    assert (error.details["line"], error.details["column"]) == (line, column)
    assert error.details.get("path") == path
    assert error.message.startswith(f"line {line}, column {column}: ")


def test_a_refusal_of_a_reference_says_which() -> None:
    error = refused(P3 + 'import "a/b.proto";', {"a/b.proto": "message M {\n oops"})
    assert error is not None
    assert (error.details["file"], error.details["line"]) == ("a/b.proto", 2)
    assert error.message.startswith('"a/b.proto", line 2, column ')


# References


def test_only_what_is_imported_is_looked_at() -> None:
    assert refused(P3 + "message M {}", {"broken.proto": "nonsense"}) is None


def test_references_are_found_in_any_order() -> None:
    references = {"a.proto": P3 + 'import "b.proto"; message A { B b = 1; }', "b.proto": P3 + "message B {}"}
    assert refused(P3 + 'import "a.proto"; message M { A a = 1; }', references) is None


def test_files_that_import_each_other_are_refused() -> None:
    references = {"a.proto": P3 + 'import "b.proto";', "b.proto": P3 + 'import "a.proto";'}
    error = refused(P3 + 'import "a.proto";', references)
    assert error is not None
    assert "imports itself" in error.message


def test_a_chain_of_imports_has_an_end() -> None:
    references = {f"{i}.proto": P3 + f'import "{i + 1}.proto";' for i in range(200)}
    error = refused(P3 + 'import "0.proto";', references)
    assert error is not None
    assert "import each other" in error.message


def test_the_same_name_in_two_files_is_refused() -> None:
    references = {"a.proto": P3 + "message M {}", "b.proto": P3 + "message M {}"}
    assert refused(P3 + 'import "a.proto"; message M {}', references) is not None
    assert refused(P3 + 'import "a.proto"; import "b.proto";', references) is not None


def test_a_well_known_file_is_what_it_is_whatever_a_reference_says() -> None:
    text = P3 + 'import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }'
    assert refused(text, {"google/protobuf/timestamp.proto": "nonsense"}) is None
