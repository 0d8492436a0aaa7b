"""Protobuf: schemas as .proto texts, or as the base64 of a FileDescriptorProto.

No file is opened and no compiler runs: a parser of our own makes descriptors of the text, and the descriptor pool of
the Protobuf library loads them. proto2, proto3 and edition 2023 are supported.
"""

from __future__ import annotations

from penstock.schema.protobuf.schema import (
    ProtobufSchema,
    file_descriptor,
    message_class,
    parse,
    proto_text,
)

__all__ = ["ProtobufSchema", "file_descriptor", "message_class", "parse", "proto_text"]
