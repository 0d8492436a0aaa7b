"""Hostile schemas: each is parsed or refused, quickly, and nothing else ever happens."""

from __future__ import annotations

import base64
import json
import resource
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.protobuf.kit import P2, P3, parsed, protoc, refused
from tests.schema.protobuf.test_options import BAD as BAD_OPTIONS
from tests.schema.protobuf.test_options import CUSTOM
from tests.schema.protobuf.test_options import GOOD as OPTIONS
from tests.schema.protobuf.test_parsing import BAD, EVERYTHING, GOOD, REFERENCES

from penstock.schema.protobuf import proto_text
from penstock.schema.protobuf.linking.well_known import ALWAYS, TEXTS

DESCRIPTORS = 'import "google/protobuf/descriptor.proto"; '
IMPORTS = [P3 + f'import "{name}";' for name in (*TEXTS, *ALWAYS)]
RULE = (
    DESCRIPTORS
    + "message A { repeated A a = 1; repeated int32 n = 2; } extend google.protobuf.FileOptions { A x = 50001; } "
)

REFUSED = {
    "10 MB of spaces": P3 + " " * 10_000_000,
    "10 MB of a name": P3 + "message " + "M" * 10_000_000,
    "a long name": P3 + "message " + "M" * 600 + " {}",
    "long names within each other": P3 + "".join(f"message {'M' * 100}{i} {{" for i in range(9)) + "}" * 9,
    "messages within messages": P3 + "message M {" * 100_000,
    "an aggregate in an aggregate": P3 + "option (x) = " + "{a" * 100_000,
    "angles in an aggregate": P3 + "option (x) = { " + "a <" * 100_000,
    "an aggregate that a message could have": P3 + RULE + "option (x) = {" + "a {" * 70 + "}" * 71 + ";",
    "lists in lists": P3 + RULE + "option (x) = {n: " + "[" * 5_000 + "]" * 5_000 + "};",
    "an aggregate of 100,000 words": P3 + RULE + "option (x) = {" + "n: 1 " * 35_000 + "};",
    "100,000 options": P3 + "message M { int32 a = 1 [" + "deprecated = true," * 35_000 + "]; }",
    "options for every range": P2
    + f"message M {{ extensions {', '.join(str(2 * i + 1) for i in range(5_000))} [(x) = '{'y' * 10_000}']; }}",
    "an enum with 30,000 values": P3 + "enum E {" + "".join(f"V{i} = {i};" for i in range(30_000)) + "}",
    "30,000 messages": P3 + "".join(f"message M{i} {{}}" for i in range(30_000)),
    "a message larger than the library has them": P3
    + "message M {"
    + "".join(f"string f{i} = {i + 20_000};" for i in range(5_900))
    + "}",
    "a package of 10,000 parts": P3 + "package " + ".".join(["a"] * 10_000) + ";",
    "10,000 imports": P3 + "".join(f'import "f{i}.proto";' for i in range(10_000)),
    "100,000 semicolons": ";" * 100_000,
    "a string without an end": P3 + "option java_package = '" + "\\" * 900_001,
    "comments that begin": P3 + "/*" * 400_000,
    "slashes and stars": P3 + "/*" + "* /" * 300_000,
    "a number of a million digits": P3 + "message M { int32 a = " + "1" * 1_000_000 + "; }",
    "a long name of a type": P3 + "message M { " + "N" * 500_000 + " a = 1; }",
    "a long name of a file": P3 + 'import "' + "f" * 500_000 + '";',
    "a long option": P3 + "option " + "o" * 500_000 + " = 1;",
    "NUL": P3 + "message M\0 {}",
    "NUL in a string": P3 + "message M { int32 a = 1 [json_name = '\\0']; }",
    "a lone surrogate": P3 + "// \ud800\nmessage M {}",
    "a surrogate in a string": P3 + 'option java_package = "\udfff";',
    "a minus without a number": P3 + "option (x) = -",
    "base64 of many messages": base64.b64encode(b"\x22\x00" * 130_000).decode(),
    "base64 of many fields": base64.b64encode(b"\x22\xfc\xff\x07" + b"\x12\x00" * 65_534).decode(),
    "base64 of nothing much": "A" * 300_000,
    "not even that": "=" * 1000,
}

UNDERSTOOD = {
    "a million characters of comment": P3 + "/*" + "x" * 1_000_000 + "*/ message M {}",
    "250,000 comments": P3 + "/**/" * 250_000 + "message M {}",
    "a zero with a million zeros before it": P3 + "message M { int32 a = " + "0" * 1_000_000 + "1; }",
    "a default of a million digits": P2 + "message M { optional double a = 1 [default = " + "1" * 1_000_000 + "]; }",
    "a string of 200,000 escapes": P3 + "option java_package = '" + "\\x41" * 200_000 + "';",
    "names that look like paths": P3 + 'option java_package = "../../etc/passwd"; message M {}',
    "1,900 maps": P3 + "message M {" + "".join(f"map<int32, M> f{i} = {i + 20_000};" for i in range(1_900)) + "}",
    "5,000 fields": P3 + "message M {" + "".join(f"M f{i} = {i + 20_000};" for i in range(5_000)) + "}",
    "messages that contain each other": P3
    + "".join(f"message M{i} {{ M{(i * 7 + 1) % 900} a = 1; M{i} b = 2; }}" for i in range(900)),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_hostile_schema_is_refused(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = refused(text)
    assert error is not None
    assert len(error.message) < 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize("text", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_a_schema_that_only_looks_hostile_is_understood(text: str) -> None:
    schema = parsed(text)
    assert schema.canonical()
    assert proto_text(schema)
    assert schema.compatibility_problems(schema) == []
    schema.validator().fault(b"")


def test_many_ways_to_one_file_are_one_way() -> None:
    """Every file imports both of the next pair: there are 2^60 ways to the last."""
    references = {
        f"{side}{level}.proto": P3
        + "".join(f'import public "{other}{level + 1}.proto";' for other in "ab" if level < 60)
        + f"message {side.upper()}{level} {{}}"
        for side in "ab"
        for level in range(61)
    }
    text = P3 + 'import "a0.proto"; import "b0.proto"; message M { A60 a = 1; B60 b = 2; }'
    assert refused(text, references) is None


def test_files_that_see_all_of_each_other_are_no_larger_for_that() -> None:
    references = {"0.proto": P3 + "".join(f"message Large{i} {{ int32 a = 1; }}" for i in range(1_900))}
    for i in range(1, 60):
        references[f"{i}.proto"] = P3 + f'import public "{i - 1}.proto"; message M{i} {{ Large{i} a = 1; }}'
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert refused(P3 + 'import "59.proto"; message M { Large0 a = 1; }', references) is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../../etc/passwd", "http://127.0.0.1/x.proto", "file:///etc/passwd", ""]
)
def test_an_import_never_leaves_the_schema(name: str) -> None:
    assert refused(P3 + f'import "{name}";') is not None


WITHOUT_FILES = """
import json, resource, sys
from penstock.schema.errors import InvalidSchema
from penstock.schema.protobuf import file_descriptor, parse, proto_text

texts, references = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
for text in texts:
    try:
        schema = parse(text, references)
    except InvalidSchema:
        continue
    schema.canonical(), proto_text(schema), file_descriptor(schema), schema.compatibility_problems(schema)
    schema.validator().fault(bytes([10])), schema.validator().fault(bytes([255])), schema.validator().fault(b"")
print("done")
"""


def test_no_file_is_opened() -> None:
    """Run like the worker: a process that has imported the package, and can open nothing any more."""
    texts = [EVERYTHING, *GOOD.values(), *BAD.values(), *(CUSTOM + each for each in (*OPTIONS, *BAD_OPTIONS)), *IMPORTS]
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_FILES],
        input=json.dumps([texts, REFERENCES]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("done\n", "")


WORDS = st.sampled_from(
    [
        *("syntax", "edition", "package", "import", "public", "weak", "option", "message", "enum", "service", "rpc"),
        *("extend", "extensions", "reserved", "oneof", "map", "group", "optional", "required", "repeated", "stream"),
        *("returns", "to", "max", "default", "json_name", "true", "inf", "nan", "int32", "string", "M", "a", "b", "E"),
        *("{", "}", "[", "]", "(", ")", "<", ">", ";", ",", "=", ".", "-", ":", "1", "0", "2", "0x1F", "1.5", "-1"),
        *('"proto2"', '"proto3"', '"2023"', '"a"', "'", '"', "//", "/*", "*/", "\n", "\\", "é", "\0", "allow_alias"),
    ]
)


@given(
    st.lists(WORDS, max_size=40),
    st.sampled_from(["", P2, P3, P3 + "message M {", P2 + "message M { optional int32 a = 1 ["]),
)
@settings(max_examples=400)
def test_any_words_are_a_schema_or_a_refusal(words: list[str], head: str) -> None:
    text = head + " ".join(words)
    if refused(text) is None:
        proto_text(parsed(text))
        parsed(text).canonical()


@given(st.text(max_size=60))
@settings(max_examples=100)
def test_any_text_is_a_schema_or_a_refusal(text: str) -> None:
    refused(text)


@given(
    st.integers(0, len(EVERYTHING)), st.integers(0, 40), st.sampled_from(["", " ", "{", "}", ";", "1", "x", '"', "="])
)
@settings(max_examples=80)
def test_what_protoc_refuses_of_a_spoilt_schema_is_refused(place: int, length: int, put: str) -> None:
    spoilt = EVERYTHING[:place] + put + EVERYTHING[place + length :]
    if protoc(spoilt, REFERENCES) is None:
        error = refused(spoilt, REFERENCES)
        assert error is not None or _only_an_option_is_unknown(spoilt)


def _only_an_option_is_unknown(text: str) -> bool:
    """Allow the one difference: an unknown option, which we accept and protoc does not."""
    file = parsed(text, REFERENCES).library.files[""].file
    return "uninterpreted_option" in str(file)
