"""Protobuf: schemas written in the language of .proto files, or given as the base64 of a FileDescriptorProto.

No file is ever opened and no compiler is run: an own parser makes descriptors of the text, and the pool of the Protobuf
library takes them in. proto2, proto3 and edition 2023 are understood.
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
