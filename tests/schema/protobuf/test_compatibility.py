"""Protobuf compatibility, case by case and in both directions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.schema.protobuf.kit import ED, P2, P3, parsed

from penstock.schema.problems import FRAGMENT_CHARS_MAX, PROBLEMS_MAX, Problem
from penstock.schema.protobuf.compatibility.problem_kinds import PROBLEM_KINDS


@dataclass(frozen=True)
class Case:
    """Two versions of a schema, and the problems of each when it reads the other: kinds and paths."""

    older: str
    newer: str
    backward: tuple[str, ...] = ()
    """Problems of the newer version reading the older."""
    forward: tuple[str, ...] = ()
    """Problems of the older version reading the newer."""
    lenient_backward: tuple[str, ...] = ()
    lenient_forward: tuple[str, ...] = ()


def message(older: str, newer: str, backward: str = "", forward: str = "", *, head: str = P3) -> Case:
    """Return a case of a message M with other fields; problems have commas between them, and a ? after tolerable
    ones."""
    return _case(f"{head} message M {{ {older} }}", f"{head} message M {{ {newer} }}", backward, forward)


def _case(older: str, newer: str, backward: str = "", forward: str = "") -> Case:
    return Case(older, newer, _words(backward), _words(forward), _strict(backward), _strict(forward))


def _words(problems: str) -> tuple[str, ...]:
    return tuple(each.strip().removesuffix("?").strip() for each in problems.split(",") if each)


def _strict(problems: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in problems.split(",") if each and not each.endswith("?"))


SCALAR = "FIELD_SCALAR_KIND_CHANGED /M/a"
KIND = "FIELD_KIND_CHANGED /M/a"
NAMED = "FIELD_NAMED_TYPE_CHANGED /M/a"
UTF8 = "FIELD_UTF8_DEMANDED /M/a"
LABEL = "FIELD_NUMERIC_LABEL_CHANGED /M/a"

CASES = {
    # Added and removed fields
    "the same": message("int32 a = 1;", "int32 a = 1;"),
    "a field added": message("int32 a = 1;", "int32 a = 1; int32 b = 2;"),
    "a field removed": message("int32 a = 1; int32 b = 2;", "int32 a = 1;"),
    "a field removed and reserved": message("int32 a = 1; int32 b = 2;", 'int32 a = 1; reserved 2; reserved "b";'),
    "a field renamed": message("int32 a = 1;", "int32 b = 1;"),
    "a field with another number": message(
        "int32 a = 1;", "int32 a = 2;", "FIELD_NUMBER_CHANGED /M/a", "FIELD_NUMBER_CHANGED /M/a"
    ),
    "two fields with each other's number": message(
        "int32 a = 1; int32 b = 2;",
        "int32 b = 1; int32 a = 2;",
        "FIELD_NUMBER_CHANGED /M/a, FIELD_NUMBER_CHANGED /M/b",
        "FIELD_NUMBER_CHANGED /M/b, FIELD_NUMBER_CHANGED /M/a",
    ),
    "a field renamed, and its name used again": message("int32 a = 1;", "int32 old_a = 1; string a = 2;"),
    "another type under an old number": message(
        "int32 a = 1;", "string b = 1;", "FIELD_SCALAR_KIND_CHANGED /M/b", SCALAR
    ),
    "a reserved number used again, its name forgotten": message(
        'reserved 1; reserved "old";', "int32 a = 1;", "FIELD_NUMBER_RESERVED /M/a"
    ),
    "a reserved number used again, its name still reserved": message(
        'reserved 1; reserved "old";', 'int32 a = 1; reserved "old";'
    ),
    "another name in JSON": message("int32 a = 1;", 'int32 a = 1 [json_name = "x"];'),
    # Numbers
    "int32 to int64": message("int32 a = 1;", "int64 a = 1;"),
    "int32 to uint32": message("int32 a = 1;", "uint32 a = 1;"),
    "uint64 to bool": message("uint64 a = 1;", "bool a = 1;"),
    "sint32 to sint64": message("sint32 a = 1;", "sint64 a = 1;"),
    "int32 to sint32": message("int32 a = 1;", "sint32 a = 1;", SCALAR, SCALAR),
    "fixed32 to sfixed32": message("fixed32 a = 1;", "sfixed32 a = 1;"),
    "fixed64 to sfixed64": message("fixed64 a = 1;", "sfixed64 a = 1;"),
    "fixed32 to fixed64": message("fixed32 a = 1;", "fixed64 a = 1;", SCALAR, SCALAR),
    "fixed32 to float": message("fixed32 a = 1;", "float a = 1;", SCALAR, SCALAR),
    "fixed64 to double": message("fixed64 a = 1;", "double a = 1;", SCALAR, SCALAR),
    "float to double": message("float a = 1;", "double a = 1;", SCALAR, SCALAR),
    "int32 to fixed32": message("int32 a = 1;", "fixed32 a = 1;", SCALAR, SCALAR),
    "int32 to string": message("int32 a = 1;", "string a = 1;", SCALAR, SCALAR),
    "int32 to an open enum": message("int32 a = 1;", "E a = 1; enum E { A = 0; }"),
    "int32 to a closed enum": message(
        "optional int32 a = 1;", "optional E a = 1; enum E { A = 0; }", f"{KIND}?", head=P2
    ),
    "bool to an open enum": message("bool a = 1;", "E a = 1; enum E { A = 0; }"),
    "sint32 to an enum": message("sint32 a = 1;", "E a = 1; enum E { A = 0; }", SCALAR, SCALAR),
    # Text, bytes, messages
    "string to bytes": message("string a = 1;", "bytes a = 1;", "", f"{SCALAR}?"),
    "a message to bytes": message("M a = 1;", "bytes a = 1;", "", f"{KIND}?"),
    "a message to string": message("M a = 1;", "string a = 1;", KIND, KIND),
    "a message to int32": message("M a = 1;", "int32 a = 1;", KIND, KIND),
    "a message to a group": message(
        "optional G g = 1; message G {}",
        "optional group G = 1 {}",
        "FIELD_KIND_CHANGED /M/g",
        "FIELD_KIND_CHANGED /M/g",
        head=P2,
    ),
    "a message to a delimited one": message(
        "M a = 1;", "M a = 1 [features.message_encoding = DELIMITED];", KIND, KIND, head=ED
    ),
    "an edition for proto2": _case(
        P2 + "message M { optional int32 a = 1; repeated int32 b = 2; required int32 c = 3; }",
        ED
        + "message M { int32 a = 1; repeated int32 b = 2 [features.repeated_field_encoding = EXPANDED];"
        + " int32 c = 3 [features.field_presence = LEGACY_REQUIRED]; }",
    ),
    "a delimited message for a group": _case(
        P2 + "message M { optional group G = 1 { optional int32 a = 1; } }",
        ED + "message M { G g = 1 [features.message_encoding = DELIMITED]; message G { int32 a = 1; } }",
    ),
    # Strings that need not be UTF-8
    "a string of proto2 to one of proto3": _case(
        P2 + "message M { optional string a = 1; }", P3 + "message M { optional string a = 1; }", f"{UTF8}?"
    ),
    "a string of proto2 to bytes": _case(
        P2 + "message M { optional string a = 1; }", P3 + "message M { bytes a = 1; }", "", f"{SCALAR}?"
    ),
    "a string of proto2 to one that is not verified": _case(
        P2 + "message M { optional string a = 1; }",
        ED + "message M { string a = 1 [features.utf8_validation = NONE]; }",
    ),
    "a string that becomes verified": message(
        "string a = 1 [features.utf8_validation = NONE];", "string a = 1;", f"{UTF8}?", head=ED
    ),
    "strings that become verified": message(
        "repeated string a = 1 [features.utf8_validation = NONE];", "repeated string a = 1;", f"{UTF8}?", head=ED
    ),
    "a string that becomes verified and many": message(
        "string a = 1 [features.utf8_validation = NONE];", "repeated string a = 1;", f"{UTF8}?", head=ED
    ),
    "a map of strings that becomes verified": message(
        "map<string, string> a = 1 [features.utf8_validation = NONE];",
        "map<string, string> a = 1;",
        "FIELD_UTF8_DEMANDED /M/a/key?, FIELD_UTF8_DEMANDED /M/a/value?",
        head=ED,
    ),
    "a file of strings that becomes verified": _case(
        ED + "option features.utf8_validation = NONE; message M { N n = 1; message N { string a = 1; } }",
        ED + "message M { N n = 1; message N { string a = 1; } }",
        "FIELD_UTF8_DEMANDED /M/N/a?",
    ),
    # Labels
    "one string to many": message("string a = 1;", "repeated string a = 1;"),
    "one message to many": message("M a = 1;", "repeated M a = 1;"),
    "one number to many": message("int32 a = 1;", "repeated int32 a = 1;", "", LABEL),
    "one number to many that are not packed": message(
        "int32 a = 1;", "repeated int32 a = 1 [packed = false];", "", LABEL
    ),
    "one enum to many": message("E a = 1; enum E { A = 0; }", "repeated E a = 1; enum E { A = 0; }", "", LABEL),
    "packed to not packed": message("repeated int32 a = 1;", "repeated int32 a = 1 [packed = false];"),
    "implicit to explicit presence": message("int32 a = 1;", "optional int32 a = 1;"),
    "a required field added": message("", "required int32 a = 1;", "REQUIRED_FIELD_ADDED /M/a", head=P2),
    "a required field removed": message("required int32 a = 1;", "", "", "REQUIRED_FIELD_ADDED /M/a", head=P2),
    "a required field removed and reserved": message(
        "required int32 a = 1;", 'reserved 1; reserved "a";', "", "REQUIRED_FIELD_REMOVED /M/a", head=P2
    ),
    "an optional field to required": message(
        "optional int32 a = 1;", "required int32 a = 1;", "REQUIRED_FIELD_ADDED /M/a", head=P2
    ),
    "a default changed": message("optional int32 a = 1;", "optional int32 a = 1 [default = 5];", head=P2),
    # Maps
    "another key of a map": message("map<int32, string> a = 1;", "map<int64, string> a = 1;"),
    "a key of a map that is no number": message(
        "map<int32, string> a = 1;",
        "map<string, string> a = 1;",
        "FIELD_SCALAR_KIND_CHANGED /M/a/key",
        "FIELD_SCALAR_KIND_CHANGED /M/a/key",
    ),
    "another value of a map": message(
        "map<int32, string> a = 1;", "map<int32, bytes> a = 1;", "", "FIELD_SCALAR_KIND_CHANGED /M/a/value?"
    ),
    "a map to its entries": message(
        "map<int32, string> a = 1;", "repeated E a = 1; message E { int32 key = 1; string value = 2; }"
    ),
    "a map to other entries": message(
        "map<int32, string> a = 1;",
        "repeated E a = 1; message E { int32 key = 1; double value = 2; }",
        "FIELD_SCALAR_KIND_CHANGED /M/a/value",
        "FIELD_SCALAR_KIND_CHANGED /M/a/value",
    ),
    "a map to messages": message("map<int32, string> a = 1;", "repeated M a = 1;", KIND, KIND),
    "a map to one entry": message(
        "map<int32, string> a = 1;", "E a = 1; message E { int32 key = 1; string value = 2; }", KIND, KIND
    ),
    "a map to bytes": message("map<int32, string> a = 1;", "repeated bytes a = 1;", KIND, KIND),
    # Oneofs
    "a field moved into a new oneof": message("int32 a = 1;", "oneof o { int32 a = 1; }"),
    "a field moved into a new oneof with another new one": message(
        "int32 a = 1;", "oneof o { int32 a = 1; int32 b = 2; }"
    ),
    "two fields moved into a oneof": message(
        "int32 a = 1; int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }", "MULTIPLE_FIELDS_MOVED_TO_ONEOF /M/o?"
    ),
    "an optional field moved into a new oneof": message("optional int32 a = 1;", "oneof o { int32 a = 1; }"),
    "two optional fields moved into a oneof": message(
        "optional int32 a = 1; optional int32 b = 2;",
        "oneof o { int32 a = 1; int32 b = 2; }",
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF /M/o?",
    ),
    "a field moved into an existing oneof": message(
        "int32 a = 1; oneof o { int32 b = 2; int32 c = 3; }",
        "oneof o { int32 a = 1; int32 b = 2; int32 c = 3; }",
        "FIELD_MOVED_TO_EXISTING_ONEOF /M/a?",
    ),
    "a field moved from one oneof to another": message(
        "oneof o { int32 a = 1; int32 b = 2; } oneof p { int32 c = 3; int32 d = 4; }",
        "oneof o { int32 b = 2; } oneof p { int32 a = 1; int32 c = 3; int32 d = 4; }",
        "FIELD_MOVED_TO_EXISTING_ONEOF /M/a?",
        "FIELD_MOVED_TO_EXISTING_ONEOF /M/a?",
    ),
    "a oneof dissolved": message(
        "oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;", "", "MULTIPLE_FIELDS_MOVED_TO_ONEOF /M/o?"
    ),
    "a oneof renamed": message("oneof o { int32 a = 1; int32 b = 2; }", "oneof p { int32 a = 1; int32 b = 2; }"),
    "a field added to a oneof": message(
        "oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 b = 2; }", "", "ONEOF_FIELD_REMOVED /M/b?"
    ),
    "a field removed from a oneof": message(
        "oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; }", "ONEOF_FIELD_REMOVED /M/b?"
    ),
    "a whole oneof removed": message("int32 x = 9; oneof o { int32 a = 1; int32 b = 2; }", "int32 x = 9;"),
    # Enums
    "a value added to an open enum": message("E a = 1; enum E { A = 0; }", "E a = 1; enum E { A = 0; B = 1; }"),
    "a value added to a closed enum": message(
        "optional E a = 1; enum E { A = 0; }",
        "optional E a = 1; enum E { A = 0; B = 1; }",
        "",
        "ENUM_VALUE_REMOVED /M/E/B?",
        head=P2,
    ),
    "a value renamed": message("E a = 1; enum E { A = 0; B = 1; }", "E a = 1; enum E { A = 0; C = 1; }"),
    "values with each other's number": message(
        "E a = 1; enum E { A = 0; B = 1; C = 2; }",
        "E a = 1; enum E { A = 0; C = 1; B = 2; }",
        "ENUM_VALUE_RENUMBERED /M/E/B, ENUM_VALUE_RENUMBERED /M/E/C",
        "ENUM_VALUE_RENUMBERED /M/E/C, ENUM_VALUE_RENUMBERED /M/E/B",
    ),
    "a value with a new number": message(
        "E a = 1; enum E { A = 0; B = 1; }",
        "E a = 1; enum E { A = 0; B = 7; }",
        "ENUM_VALUE_RENUMBERED /M/E/B",
        "ENUM_VALUE_RENUMBERED /M/E/B",
    ),
    "an alias more": message(
        "E a = 1; enum E { A = 0; B = 1; }", "E a = 1; enum E { option allow_alias = true; A = 0; B = 1; C = 1; }"
    ),
    "an enum under another name": message("E a = 1; enum E { A = 0; B = 1; }", "F a = 1; enum F { A = 0; B = 1; }"),
    "another enum": message("E a = 1; enum E { A = 0; B = 1; }", "F a = 1; enum F { A = 0; C = 1; }", NAMED, NAMED),
    "an enum that nothing uses any more": message("E a = 1; enum E { A = 0; }", "int32 a = 1;"),
    "an enum opened": _case(
        P2 + "message M { optional E a = 1; enum E { A = 0; B = 1; } }",
        P3 + "message M { optional E a = 1; enum E { A = 0; } }",
        "",
        "ENUM_CLOSED /M/E?",
    ),
    "an enum closed": message(
        "E a = 1; enum E { A = 0; }",
        "E a = 1; enum E { option features.enum_type = CLOSED; A = 0; }",
        "ENUM_CLOSED /M/E?",
        head=ED,
    ),
    "an enum closed that several fields have": message(
        "repeated E a = 1; map<int32, E> b = 2; enum E { A = 0; B = 1; }",
        "repeated E a = 1; map<int32, E> b = 2; enum E { option features.enum_type = CLOSED; A = 0; }",
        "ENUM_CLOSED /M/E?, ENUM_VALUE_REMOVED /M/E/B?",
        head=ED,
    ),
    # Messages
    "a message added": _case(P3 + "message M {}", P3 + "message M {} message N {}", "", "MESSAGE_REMOVED /N"),
    "a message removed": _case(P3 + "message M {} message N {}", P3 + "message M {}", "MESSAGE_REMOVED /N"),
    "the order of messages": _case(P3 + "message M {} message N {}", P3 + "message N {} message M {}"),
    "the order of messages that are not alike": _case(
        P3 + "message M { int32 a = 1; } message N { string b = 1; }",
        P3 + "message N { string b = 1; } message M { int32 a = 1; }",
        "FIRST_MESSAGE_CHANGED /M",
        "FIRST_MESSAGE_CHANGED /N",
    ),
    "the order of messages, of which one has all that is in the other": _case(
        P3 + "message M { int32 a = 1; } message N { int64 a = 1; string b = 2; }",
        P3 + "message N { int64 a = 1; string b = 2; } message M { int32 a = 1; }",
        "",
        "FIRST_MESSAGE_CHANGED /N",
    ),
    "the order of messages that differ in types": _case(
        P3 + "message M { int32 a = 1; } message N { string a = 1; }",
        P3 + "message N { string a = 1; } message M { int32 a = 1; }",
        "FIRST_MESSAGE_CHANGED /M",
        "FIRST_MESSAGE_CHANGED /N",
    ),
    "the order of messages that differ in text": _case(
        ED + "message M { string a = 1 [features.utf8_validation = NONE]; } message N { string a = 1; }",
        ED + "message N { string a = 1; } message M { string a = 1 [features.utf8_validation = NONE]; }",
        "FIRST_MESSAGE_CHANGED /M?",
    ),
    "a message put before the first": _case(
        P3 + "message M { int32 a = 1; }",
        P3 + "message N {} message M { int32 a = 1; }",
        "FIRST_MESSAGE_CHANGED /M",
        "MESSAGE_REMOVED /N",
    ),
    "a message put before the first, around it": _case(
        P3 + "message M { int32 a = 1; }",
        P3 + "message N { M m = 1; } message M { int32 a = 1; }",
        "FIRST_MESSAGE_CHANGED /M",
        "MESSAGE_REMOVED /N, FIRST_MESSAGE_CHANGED /N",
    ),
    "the first message replaced": _case(
        P3 + "message M { int32 a = 1; }",
        P3 + "message N { int32 b = 2; }",
        "MESSAGE_REMOVED /M, FIRST_MESSAGE_CHANGED /M",
        "MESSAGE_REMOVED /N, FIRST_MESSAGE_CHANGED /N",
    ),
    "the last message removed": _case(
        P3 + "message M {}", P3 + "enum E { A = 0; }", "MESSAGE_REMOVED /M, FIRST_MESSAGE_CHANGED /M"
    ),
    "a message renamed": _case(P3 + "message M {}", P3 + "message N {}", "MESSAGE_REMOVED /M", "MESSAGE_REMOVED /N"),
    "a message that only a field used": message("N a = 1; message N {}", ""),
    "a message within, that no field used": message("message N {}", "", "MESSAGE_REMOVED /M/N"),
    "a field of a message within": message(
        "N n = 1; message N { int32 a = 1; }",
        "N n = 1; message N { string a = 1; }",
        "FIELD_SCALAR_KIND_CHANGED /M/N/a",
        "FIELD_SCALAR_KIND_CHANGED /M/N/a",
    ),
    "a type under another name": message(
        "N a = 1; message N { int32 x = 1; }", "O a = 1; message O { int32 x = 1; int32 y = 2; }", "", NAMED
    ),
    "another type": message("N a = 1; message N { int32 x = 1; }", "O a = 1; message O { int32 y = 1; }", NAMED, NAMED),
    "a type that moved outwards": _case(
        P3 + "message M { N a = 1; message N { int32 x = 1; } }",
        P3 + "message M { N a = 1; } message N { int32 x = 1; }",
        "",
        "MESSAGE_REMOVED /N",
    ),
    "a type that contains itself": message(
        "M a = 1; int32 b = 2;",
        "M a = 1; string b = 2;",
        "FIELD_SCALAR_KIND_CHANGED /M/b",
        "FIELD_SCALAR_KIND_CHANGED /M/b",
    ),
    "another package": _case(
        P3 + "package a; message M { N n = 1; } message N {}",
        P3 + "package b; message M { N n = 1; } message N {}",
        "PACKAGE_CHANGED?",
        "PACKAGE_CHANGED?",
    ),
    "a message set": message(
        "extensions 4 to 1000;",
        "option message_set_wire_format = true; extensions 4 to 1000;",
        "MESSAGE_SET_CHANGED /M",
        "MESSAGE_SET_CHANGED /M",
        head=P2,
    ),
    "services": _case(P3 + "message M {} service S { rpc A(M) returns (M); }", P3 + "message M {}"),
    "options": message("int32 a = 1;", "int32 a = 1 [deprecated = true];"),
    "proto2 to proto3": _case(
        P2 + "message M { optional int32 a = 1; repeated int32 b = 2; }",
        P3 + "message M { int32 a = 1; repeated int32 b = 2; }",
    ),
    # Extensions
    "a field to an extension": _case(
        P2 + "message M { optional int32 a = 100; }",
        P2 + "message M { extensions 100; } extend M { optional int32 a = 100; }",
    ),
    "a field to another extension": _case(
        P2 + "message M { optional int32 a = 100; }",
        P2 + "message M { extensions 100; } extend M { optional string a = 100; }",
        "FIELD_SCALAR_KIND_CHANGED /M/(a)",
        SCALAR,
    ),
    "an extension changed": _case(
        P2 + "package p; message M { extensions 100; } extend M { optional int32 a = 100; }",
        P2 + "package p; message M { extensions 100; } message N { extend M { optional string a = 100; } }",
        "FIELD_SCALAR_KIND_CHANGED /M/(p.N.a)",
        "MESSAGE_REMOVED /N, FIELD_SCALAR_KIND_CHANGED /M/(p.a)",
    ),
    "an extension removed": _case(
        P2 + "message M { extensions 100; } extend M { optional int32 a = 100; }", P2 + "message M { extensions 100; }"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_stands_in_the_way_of_reading(case: Case) -> None:
    older, newer = parsed(case.older), parsed(case.newer)
    assert found(newer.compatibility_problems(older)) == case.backward
    assert found(older.compatibility_problems(newer)) == case.forward


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_lenient_reader_lets_pass(case: Case) -> None:
    older, newer = parsed(case.older), parsed(case.newer)
    assert found(newer.compatibility_problems(older, lenient=True)) == case.lenient_backward
    assert found(older.compatibility_problems(newer, lenient=True)) == case.lenient_forward


def test_every_kind_of_problem_has_a_case() -> None:
    named = {problem.split()[0] for case in CASES.values() for problem in (*case.backward, *case.forward)}
    assert named == set(PROBLEM_KINDS) - {"TYPES_TOO_MANY"}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_problem_explains_itself(case: Case) -> None:
    older, newer = parsed(case.older), parsed(case.newer)
    for problem in (*newer.compatibility_problems(older), *older.compatibility_problems(newer)):
        assert problem.message
        assert problem.fix
        assert "{" not in problem.fix
        assert problem.reader or problem.writer
        assert len(problem.reader) <= FRAGMENT_CHARS_MAX


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_schema_reads_its_own_bytes(case: Case) -> None:
    for text in (case.older, case.newer):
        assert parsed(text).compatibility_problems(parsed(text)) == []


def found(problems: list[Problem]) -> tuple[str, ...]:
    return tuple(f"{problem.kind} {problem.path}".strip() for problem in problems)


# References


MONEY = P3 + "package money; message Money { int64 units = 1; string currency = 2; }"
ORDER = P3 + 'import "money.proto"; message Order { money.Money total = 1; }'


def test_types_of_other_files_are_compared_too() -> None:
    older = parsed(ORDER, {"money.proto": MONEY})
    newer = parsed(ORDER, {"money.proto": MONEY.replace("int64 units", "string units")})
    assert found(newer.compatibility_problems(older)) == ("FIELD_SCALAR_KIND_CHANGED /Money/units",)


def test_a_message_may_move_to_another_file() -> None:
    here = parsed(P3 + "message Order { Money total = 1; } message Money { int64 units = 1; string currency = 2; }")
    there = parsed(ORDER, {"money.proto": MONEY})
    assert there.compatibility_problems(here) == []


def test_the_first_message_may_not_move_to_another_file() -> None:
    here, there = MONEY.replace("package money; ", ""), P3 + 'import "money.proto"; message Order {}'
    (problem,) = parsed(there, {"money.proto": here}).compatibility_problems(parsed(here))
    assert (problem.kind, problem.path) == ("FIRST_MESSAGE_CHANGED", "/Money")
    assert problem.fix == "put the message Money first again"
    empty = parsed(P3 + 'import "money.proto";', {"money.proto": here})
    assert found(empty.compatibility_problems(parsed(here))) == ("FIRST_MESSAGE_CHANGED /Money",)


def test_an_import_may_go_when_nothing_uses_it() -> None:
    older = parsed(P3 + 'import "money.proto"; message Order {}', {"money.proto": MONEY})
    assert parsed(P3 + "message Order {}").compatibility_problems(older) == []


# Size


def test_there_are_never_more_problems_than_anybody_would_read() -> None:
    older = P3 + "message M {" + "".join(f"int32 f{n} = {n};" for n in range(1, 500)) + "}"
    newer = parsed(older.replace("int32", "string"))
    assert len(newer.compatibility_problems(parsed(older))) == PROBLEMS_MAX


def test_types_that_refer_to_each_other_in_circles_are_compared_in_good_time() -> None:
    """Two circles of coprime lengths would be compared in every combination."""

    def circle(prefix: str, length: int) -> str:
        return "".join(f"message {prefix}{n} {{ {prefix}{(n + 1) % length} m = 1; }}" for n in range(length))

    older = P3 + "message M { A0 m = 1; }" + circle("A", 1201)
    newer = P3 + "message M { B0 m = 1; }" + circle("B", 1202)
    problems = parsed(newer).compatibility_problems(parsed(older), lenient=True)
    assert "TYPES_TOO_MANY" in {problem.kind for problem in problems} or len(problems) == PROBLEMS_MAX
