"""The parsed Protobuf schema: the operations of the registry, and of clients that decode payloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2, message_factory

from penstock.schema.errors import InvalidSchema
from penstock.schema.language import Validator
from penstock.schema.problems import Problem
from penstock.schema.protobuf.compatibility.comparison import compatibility_problems
from penstock.schema.protobuf.elements import ElementKind, elements
from penstock.schema.protobuf.linking.library import ROOT, FileLibrary, load_library
from penstock.schema.protobuf.names import camel_case
from penstock.schema.protobuf.payloads.validator import MessageValidator, RejectingValidator
from penstock.schema.protobuf.printing.canonical import canonical
from penstock.schema.protobuf.printing.text import print_proto

_FILE_NAME: Final = "schema.proto"
"""The name of a schema's own file where it must have one."""


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    library: FileLibrary

    def canonical(self) -> str:
        return canonical(self.library)

    def compatibility_problems(self, writer: ProtobufSchema, *, lenient: bool = False) -> list[Problem]:
        """Return the reasons why a reader with this schema cannot read data written with `writer`; empty if it can.
        `lenient` ignores problems that concern only some of the values that a writer can write, and a changed
        package."""
        return compatibility_problems(self.library, writer.library, lenient=lenient)

    def validator(self) -> Validator:
        """Return the validator of the first message of the schema."""
        first = next(iter(self._messages()), None)
        return RejectingValidator() if first is None else MessageValidator(first)

    def message_class(self, full_name: str | None = None) -> Any:
        """Return the class of the message with this full name; without a name, of the first message. Raises
        `InvalidSchema` if there is none."""
        descriptor = next((message for message in self._messages() if full_name is None), None)
        if full_name is not None:
            descriptor = self._find_message(full_name)
        if descriptor is None:
            raise InvalidSchema(
                f'the schema has no message "{full_name}"' if full_name else "the schema has no message"
            )
        return message_factory.GetMessageClass(descriptor)

    def _messages(self) -> list[Any]:
        return list(self.library.pool.FindFileByName(ROOT).message_types_by_name.values())

    def _find_message(self, full_name: str) -> Any:
        try:
            return self.library.pool.FindMessageTypeByName(full_name)
        except KeyError:
            return None


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Parse a .proto text, or the base64 of a FileDescriptorProto; references may be either too. Raises
    `InvalidSchema`, and nothing else, for any other text."""
    return ProtobufSchema(load_library(text, references))


def file_descriptor(schema: ProtobufSchema) -> bytes:
    """Return the schema's own file as a serialised FileDescriptorProto, with JSON names in it as protoc has them."""
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(schema.library.files[ROOT].file)
    file.name = _FILE_NAME
    for element in elements(file):
        if element.sort in (ElementKind.FIELD, ElementKind.EXTENSION) and not element.descriptor.HasField("json_name"):
            element.descriptor.json_name = camel_case(element.descriptor.name)
    return bytes(file.SerializeToString(deterministic=True))


def proto_text(schema: ProtobufSchema) -> str:
    """Return the schema's own file as a .proto text, in whichever form it was registered."""
    return print_proto(schema.library.files[ROOT], schema.library.pool)


def message_class(text: str, references: Mapping[str, str], full_name: str | None = None) -> Any:
    """Parse a schema and return the class of one of its messages, to decode payloads with: the one with this full name
    or, without a name, the first. Raises `InvalidSchema`."""
    return parse(text, references).message_class(full_name)
