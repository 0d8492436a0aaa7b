"""Options: their meaning where a visible definition exists, and the errors of those that cannot have one."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, message_factory, text_format
from tests.schema.protobuf.kit import ED, P2, P3, described, parsed, protoc, refused

DESCRIPTORS = 'import "google/protobuf/descriptor.proto"; '
CUSTOM = (
    P2
    + "package p; "
    + DESCRIPTORS
    + """
    message Rule {
      optional int32 low = 1; repeated Rule rules = 2; optional string text = 3; optional Level level = 4;
      optional float share = 5; extensions 100;
    }
    enum Level { NONE = 0; SOME = 1; }
    extend Rule { optional sint64 more = 100; }
    extend google.protobuf.FileOptions {
      optional int32 number = 50001; optional bool flag = 50002; optional string text = 50003;
      optional float share = 50004; optional Rule rule = 50005; repeated Rule rules = 50006;
      optional bytes raw = 50007; optional Level level = 50008; repeated uint64 numbers = 50009;
      optional .google.protobuf.FileOptions again = 50010;
    }
    """
)

GOOD = [
    "option (number) = -5;",
    "option (p.number) = 0x7fffffff;",
    "option (.p.flag) = true;",
    'option (text) = "a" "b";',
    "option (share) = -inf;",
    "option (share) = 1.5;",
    "option (share) = 7;",
    "option (share) = nan;",
    'option (raw) = "\\xff\\0";',
    "option (level) = SOME;",
    "option (numbers) = 1; option (numbers) = 18446744073709551615;",
    "option (rule).low = 5; option (rule).level = SOME;",
    "option (rule).(more) = -7;",
    "option (rule) = {low: 1, rules {low: 2} rules: <text: 'x'>; rules: [{}, {share: 1e3}] [p.more]: 7};",
    "option (rules) = {low: 1}; option (rules) = {};",
    'option (again).java_package = "x"; option (again).(number) = 7; option (again).(again).(flag) = false;',
    "option deprecated = true; option java_multiple_files = false; option optimize_for = CODE_SIZE;",
]

BAD = [
    "option (number) = 2147483648;",
    "option (number) = 1.5;",
    "option (number) = true;",
    'option (number) = "1";',
    "option (number) = {};",
    "option (flag) = 1;",
    "option (flag) = TRUE;",
    "option (text) = 1;",
    "option (share) = '1';",
    "option (level) = 1;",
    "option (level) = OTHER;",
    "option (numbers) = -1;",
    "option (number) = 1; option (number) = 2;",
    "option (rule) = 5;",
    "option (rule).low = 5; option (rule).low = 6;",
    "option (rule).nothing = 5;",
    "option (rule).low.deeper = 5;",
    "option (rule) = {nothing: 1};",
    "option (rule) = {low: 1 low: 2};",
    "option (rule) = {low: };",
    "option (rule) = {low: 1",
    "option (rules).low = 1;",
    "option (more) = 1;",
    "option nothing = 1;",
    "option java_package = 1;",
    "option java_package.x = 'y';",
    "option optimize_for = NOTHING;",
    "option uninterpreted_option = {};",
    "option java_package = 'a'; option java_package = 'b';",
    "option (number) = -foo;",
    "option (number) = -'x';",
    "option (number);",
    "option () = 1;",
    "option = 1;",
]


@pytest.mark.parametrize("statement", GOOD)
def test_an_option_means_what_protoc_takes_it_for(statement: str) -> None:
    """Extensions are bytes in descriptors, in no particular order: read with their definition they are the same."""
    schema = parsed(CUSTOM + statement)
    kind = message_factory.GetMessageClass(schema.library.pool.FindMessageTypeByName("google.protobuf.FileOptions"))
    files = described(CUSTOM + statement), protoc(CUSTOM + statement)
    ours, theirs = (kind.FromString(file.options.SerializeToString()) for file in files)
    assert text_format.MessageToString(ours) == text_format.MessageToString(theirs)
    assert not described(CUSTOM + statement).options.uninterpreted_option


@pytest.mark.parametrize("statement", BAD)
def test_an_option_that_cannot_be_is_refused(statement: str) -> None:
    assert protoc(CUSTOM + statement) is None
    error = refused(CUSTOM + statement)
    assert error is not None
    assert "line" in error.details


def test_everything_can_have_options() -> None:
    definitions = "".join(
        f"extend google.protobuf.{kind}Options {{ optional string on_{kind.lower()} = 50001; }}"
        for kind in ("File", "Message", "Field", "Oneof", "Enum", "EnumValue", "Service", "Method", "ExtensionRange")
    )
    text = (
        P2
        + DESCRIPTORS
        + definitions
        + """
        option (on_file) = "x";
        message M {
          option (on_message) = "x";
          optional int32 a = 1 [(on_field) = "x", deprecated = true];
          oneof o { option (on_oneof) = "x"; int32 b = 2; }
          map<string, M> c = 3 [(on_field) = "x"];
          optional group G = 4 [(on_field) = "x"] { optional int32 d = 5 [(on_field) = "x"]; }
          extensions 100 to 110, 120 [(on_extensionrange) = "x"];
          extend M { optional int32 e = 100 [(on_field) = "x"]; }
        }
        enum E { option (on_enum) = "x"; A = 0 [(on_enumvalue) = "x"]; }
        service S { option (on_service) = "x"; rpc R(M) returns (M) { option (on_method) = "x"; } }
    """
    )
    assert described(text) == protoc(text)


def test_options_of_an_imported_file_are_found() -> None:
    references = {
        "o.proto": P3 + "package o; " + DESCRIPTORS + "extend google.protobuf.FieldOptions { string note = 50001; }"
    }
    text = P3 + 'import "o.proto"; message M { int32 a = 1 [(o.note) = "x"]; }'
    assert described(text, references) == protoc(text, references)


def test_a_file_may_use_the_name_of_an_option_before_it_defines_it() -> None:
    text = P3 + DESCRIPTORS + 'option (late) = "x"; extend google.protobuf.FileOptions { string late = 50001; }'
    assert described(text) == protoc(text)


def test_a_message_set_may_have_custom_options_too() -> None:
    text = (
        P2
        + DESCRIPTORS
        + "extend google.protobuf.MessageOptions { optional string note = 50001; }"
        + "message M { option message_set_wire_format = true; option (note) = 'x'; extensions 4 to max; }"
        + "message N { extend M { optional N more = 2147483646; } }"
    )
    assert described(text) == protoc(text)


def test_required_fields_of_an_option_are_required() -> None:
    text = (
        P2
        + DESCRIPTORS
        + """
        message M { required int32 a = 1; } extend google.protobuf.FileOptions { optional M m = 50001; }
        option (m) = {};
    """
    )
    assert protoc(text) is None
    assert refused(text) is not None


def test_features_stand_where_they_may() -> None:
    features = described(ED + "option features.enum_type = CLOSED; enum E { A = 1; }").options.features
    assert features == descriptor_pb2.FeatureSet(enum_type="CLOSED")
