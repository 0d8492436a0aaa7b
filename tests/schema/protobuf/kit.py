"""Helpers for the tests of Protobuf schemas: protoc itself, run in this process, and shortcuts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from grpc_tools import protoc as compiler

from penstock.schema.errors import InvalidSchema
from penstock.schema.protobuf import ProtobufSchema, file_descriptor, parse

P2 = 'syntax = "proto2"; '
P3 = 'syntax = "proto3"; '
ED = 'edition = "2023"; '

_INCLUDED = Path(str(compiler.__file__)).parent / "_proto"


def protoc(text: str, references: Mapping[str, str] | None = None) -> Any:
    """Return the compiler's descriptor of a file; None if it refuses the file."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for name, content in {**(references or {}), "schema.proto": text}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content, "utf-8")
        out = root / "out"
        arguments = ["protoc", f"-I{root}", f"-I{_INCLUDED}", "--retain_options", f"--descriptor_set_out={out}"]
        if compiler.main([*arguments, str(root / "schema.proto")]):
            return None
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]


def described(text: str, references: Mapping[str, str] | None = None) -> Any:
    """Return our descriptor of the schema."""
    schema = parse(text, references or {})
    return descriptor_pb2.FileDescriptorProto.FromString(file_descriptor(schema))


def parsed(text: str, references: Mapping[str, str] | None = None) -> ProtobufSchema:
    return parse(text, references or {})


def refused(text: str, references: Mapping[str, str] | None = None) -> InvalidSchema | None:
    """Return the error of the parser; None if it accepts the schema."""
    try:
        parse(text, references or {})
    except InvalidSchema as error:
        return error
    return None
