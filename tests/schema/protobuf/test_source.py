"""Schemas as the base64 of a descriptor: the same as their text, and checked as closely."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.protobuf.kit import P2, P3, described, parsed, protoc, refused
from tests.schema.protobuf.strategies import files, written

from penstock.schema.protobuf import file_descriptor, proto_text
from penstock.schema.protobuf.limits import DESCRIPTOR_BYTES_MAX

Proto = descriptor_pb2.FieldDescriptorProto


def encoded(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def file(text: str = P3 + "message M { int32 a = 1; }") -> Any:
    return described(text)


@given(files)
@settings(max_examples=20)
def test_a_descriptor_of_protoc_is_the_same_schema_as_its_text(made: object) -> None:
    text = written(made)
    schema = parsed(encoded(protoc(text)))
    assert schema.canonical() == parsed(text).canonical()
    assert file_descriptor(schema) == file_descriptor(parsed(text))


def test_a_descriptor_as_python_modules_have_it_is_a_schema() -> None:
    schema = parsed(base64.b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode())
    assert "message Timestamp {" in proto_text(schema)
    assert schema.message_class().DESCRIPTOR.full_name == "google.protobuf.Timestamp"


def test_references_may_be_descriptors_too() -> None:
    references = {"b.proto": encoded(file(P3 + "package b; message B {}"))}
    text = P3 + 'import "b.proto"; message M { b.B b = 1; }'
    assert parsed(text, references).canonical() == parsed(encoded(described(text, references)), references).canonical()


def test_comments_and_places_in_a_descriptor_are_forgotten() -> None:
    told = file()
    told.source_code_info.location.add(path=[4, 0], leading_comments="hello")
    assert parsed(encoded(told)).canonical() == parsed(encoded(file())).canonical()


def test_space_around_base64_does_not_matter() -> None:
    assert refused(f"\n {encoded(file())} \n") is None


@pytest.mark.parametrize(
    "text", ["A", "AAAA", "message", "Zm9v", "====", "A" * 1000, base64.b64encode(b"\xff").decode()]
)
def test_what_is_not_a_descriptor_is_refused(text: str) -> None:
    assert refused(text) is not None


def changed(change: Callable[[Any], object], text: str = P2 + "package p; message M { optional int32 a = 1; }") -> Any:
    told = file(text)
    change(told)
    return told


def as_field(**given: Any) -> Any:
    def change(told: Any) -> None:
        for name, value in given.items():
            setattr(told.message_type[0].field[0], name, value)

    return change


UNSOUND = {
    "a name that is none": changed(lambda told: setattr(told.message_type[0], "name", "M {} message X")),
    "an empty name": changed(lambda told: setattr(told.message_type[0], "name", "")),
    "a package that is none": changed(lambda told: setattr(told, "package", "p; import 'x'")),
    "an unknown syntax": changed(lambda told: setattr(told, "syntax", "proto9")),
    "an edition without the word": changed(lambda told: setattr(told, "edition", 1000)),
    "editions without one": changed(lambda told: setattr(told, "syntax", "editions")),
    "an import twice": changed(lambda told: told.dependency.extend(["a", "a"])),
    "an import of nothing": changed(lambda told: told.dependency.extend([""])),
    "a public import that is not there": changed(lambda told: told.public_dependency.append(7)),
    "a negative import": changed(lambda told: told.weak_dependency.append(-1)),
    "a type twice": changed(lambda told: told.message_type.add(name="M")),
    "a field without a type": changed(lambda told: told.message_type[0].field[0].ClearField("type")),
    "a message without its name": changed(as_field(type=Proto.TYPE_MESSAGE)),
    "an enum that is a message": changed(as_field(type=Proto.TYPE_ENUM, type_name=".p.M")),
    "a number with a type name": changed(as_field(type_name=".p.M")),
    "a type that is not there": changed(as_field(type=Proto.TYPE_MESSAGE, type_name=".p.N")),
    "a group from elsewhere": changed(as_field(type=Proto.TYPE_GROUP, type_name=".p.M")),
    "an extendee": changed(as_field(extendee=".p.M")),
    "a oneof that is not there": changed(as_field(oneof_index=3)),
    "a negative oneof": changed(as_field(oneof_index=-1)),
    "a oneof without fields": changed(lambda told: told.message_type[0].oneof_decl.add(name="o")),
    "proto3_optional in proto2": changed(as_field(proto3_optional=True)),
    "a negative number": changed(as_field(number=-1)),
    "a default that is no number": changed(as_field(default_value="1; message X {}")),
    "a default with a plus": changed(as_field(default_value="+1")),
    "a default with an escape that is none": changed(as_field(type=Proto.TYPE_BYTES, default_value="\\z")),
    "a default with a quote": changed(as_field(type=Proto.TYPE_BYTES, default_value='"')),
    "any message as a map entry": changed(lambda told: setattr(told.message_type[0].options, "map_entry", True)),
    "a map entry of another message": changed(
        lambda told: told.message_type.add(name="N").field.add(
            name="x", number=1, label=Proto.LABEL_REPEATED, type=Proto.TYPE_MESSAGE, type_name=".p.M.AEntry"
        ),
        P2 + "package p; message M { map<int32, int32> a = 1; }",
    ),
    "a map entry that is not repeated": changed(
        as_field(label=Proto.LABEL_OPTIONAL), P2 + "package p; message M { map<int32, int32> a = 1; }"
    ),
    "an option without a name": changed(lambda told: told.options.uninterpreted_option.add(identifier_value="x")),
    "a range that ends before it begins": changed(lambda told: told.message_type[0].reserved_range.add(start=5, end=2)),
    "an empty range": changed(lambda told: told.message_type[0].reserved_range.add(start=5, end=5)),
    "a negative range": changed(lambda told: told.message_type[0].extension_range.add(start=-5, end=-2)),
    "a method without types": changed(lambda told: told.service.add(name="S").method.add(name="R")),
    "an enum without values": changed(lambda told: told.enum_type.add(name="E")),
    "an enum with a backward range": changed(
        lambda told: told.enum_type[0].reserved_range.add(start=9, end=7), P2 + "package p; enum E { A = 0; }"
    ),
}


@pytest.mark.parametrize("told", UNSOUND.values(), ids=UNSOUND)
def test_a_descriptor_that_no_text_could_give_is_refused(told: Any) -> None:
    assert refused(encoded(told)) is not None


def test_text_that_is_not_utf_8_is_refused() -> None:
    told = file().SerializeToString().replace(b"\x01M", b"\x01\xff")
    assert refused(base64.b64encode(told).decode()) is not None


def test_a_descriptor_that_is_too_large_is_refused() -> None:
    assert refused(base64.b64encode(b"\x22\x00" * (DESCRIPTOR_BYTES_MAX // 2)).decode()) is not None
    assert refused("A" * (DESCRIPTOR_BYTES_MAX * 4 // 3 + 400)) is not None


def test_messages_as_deep_as_the_library_lets_them_be_are_refused() -> None:
    told: Any = descriptor_pb2.DescriptorProto(name="M")
    for _ in range(90):
        outer = descriptor_pb2.DescriptorProto(name="M")
        outer.nested_type.append(told)
        told = outer
    assert refused(encoded(descriptor_pb2.FileDescriptorProto(message_type=[told]))) is not None


@given(st.binary(max_size=60), st.integers(0, 200), st.binary(min_size=1, max_size=3))
@settings(max_examples=120)
def test_bytes_put_into_a_descriptor_give_a_schema_or_a_refusal(noise: bytes, place: int, replaced: bytes) -> None:
    whole = file(P2 + "package p; message M { map<int32, M> a = 1; oneof o { string b = 2; } } enum E { A = 0; }")
    data = whole.SerializeToString()
    for mixed in (noise, data[:place] + replaced + data[place + len(replaced) :], data[:place] + noise + data[place:]):
        text = base64.b64encode(mixed).decode()
        if text and refused(text) is None:
            proto_text(parsed(text))
            parsed(text).canonical()
