"""A source file before linking: from a .proto text, or from a serialised descriptor."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from penstock.core.schemas import SCHEMA_BYTES_MAX
from penstock.schema.errors import InvalidSchema
from penstock.schema.protobuf.elements import ElementKind, elements
from penstock.schema.protobuf.limits import DESCRIPTOR_BYTES_MAX, TOKENS_MAX
from penstock.schema.protobuf.names import QUALIFIED, camel_case, local
from penstock.schema.protobuf.parsing.cursor import Cursor
from penstock.schema.protobuf.parsing.files import EDITIONS, parse_file
from penstock.schema.protobuf.parsing.tokens import brief, refusal


def decode_descriptor(text: str, name: str) -> Any:
    """Decode a FileDescriptorProto from base64, into the form that the parser makes. Raises `InvalidSchema`."""
    if len(text) // 4 * 3 > DESCRIPTOR_BYTES_MAX:
        raise InvalidSchema(f"a serialised descriptor has at most {DESCRIPTOR_BYTES_MAX} bytes")
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError):
        raise InvalidSchema("it is neither a .proto text nor the base64 of a FileDescriptorProto") from None
    for is_sound, wrong in _RULES:
        if not is_sound(file):
            raise InvalidSchema(f"the FileDescriptorProto is not sound: {wrong}")
    file.name = name
    _drop_derived(file)
    return file


def _drop_derived(file: Any) -> None:
    """Drop comments and positions, JSON names that equal the derived ones, and the default syntax."""
    file.ClearField("source_code_info")
    if file.syntax == "proto2":
        file.ClearField("syntax")
    for element in elements(file):
        if element.sort in (ElementKind.FIELD, ElementKind.EXTENSION):
            field = element.descriptor
            if element.sort is ElementKind.EXTENSION or field.json_name == camel_case(field.name):
                field.ClearField("json_name")


def _all_text_is_text(file: Any) -> bool:
    """Return whether all strings are UTF-8: the library returns bytes for a string that is not."""
    return all(isinstance(text, str) for text in _strings(file))


def _strings(message: Any) -> Iterator[Any]:
    for descriptor, value in message.ListFields():
        values = value if descriptor.is_repeated else (value,)
        if descriptor.message_type is not None:
            for nested in values:
                yield from _strings(nested)
        elif descriptor.type == descriptor.TYPE_STRING:
            yield from values


def _is_not_too_large(file: Any) -> bool:
    """Return whether the number of elements is within the limit. Counting begins outside and stops at the limit."""
    waiting = [(file.message_type, file.enum_type, file.extension)]
    left = TOKENS_MAX // 4
    while waiting and left >= 0:
        messages, enums, fields = waiting.pop()
        left -= len(messages) + len(enums) + len(fields)
        if left >= 0:
            left -= sum(len(element.value) for element in enums)
            waiting.extend((element.nested_type, element.enum_type, element.field) for element in messages)
    return left >= 0


_RULES: Final[tuple[tuple[Callable[[Any], bool], str], ...]] = (
    (_is_not_too_large, "it has too much in it"),
    (_all_text_is_text, "a string in it is not UTF-8"),
    (lambda file: file.syntax in ("", "proto2", "proto3", "editions"), "its syntax is unknown"),
    (lambda file: (file.syntax == "editions") == bool(file.edition), "an edition is one of editions"),
    (lambda file: file.edition in (0, *EDITIONS.values()), f"of editions, {', '.join(EDITIONS)} can be read here"),
    (lambda file: not file.package or bool(QUALIFIED.fullmatch(file.package)), "its package is not a name"),
    (lambda file: len(set(file.dependency)) == len(file.dependency), "it imports a file twice"),
    (
        lambda file: {*file.public_dependency, *file.weak_dependency} <= set(range(len(file.dependency))),
        "it marks an import that it does not have",
    ),
    (lambda file: not file.option_dependency, "it imports files for options only"),
)


_BASE64: Final = re.compile(r"[A-Za-z0-9+/]++={0,2}")


@dataclass(frozen=True, slots=True)
class SourceFile:
    file: Any
    """A FileDescriptorProto."""
    text: str = ""
    """The .proto text; empty for a descriptor that was never text here."""
    positions: dict[str, int] = field(default_factory=dict)
    tokens: int = 0

    def refusal(self, message: str, *names: str) -> InvalidSchema:
        """Return an error at the first of `names` whose position in the text is known; without a position if there is
        none.

        `names` are full names or keys of `positions`.
        """
        where = [local(name.removeprefix("."), self.file.package) for name in names]
        path = {"path": "/" + where[0].replace(".", "/")} if where and where[0].replace(".", "").isidentifier() else {}
        for name in (*where, *names):
            if name in self.positions:
                return refusal(message, self.text, self.positions[name], self.file.name, **path)
        within = f'"{self.file.name}": ' if self.file.name else ""
        details = {"file": self.file.name} if self.file.name else {}
        return InvalidSchema(brief(f"{within}{message}"), **details, **path)


def read_source(text: str, name: str, tokens_max: int) -> SourceFile:
    """Read a .proto text, or the base64 of a FileDescriptorProto, which is how some clients register schemas. Raises
    `InvalidSchema`.

    A .proto text cannot be taken for base64: it contains a semicolon or a brace.
    """
    _check_size(text, name)
    stripped = text.strip()
    if _BASE64.fullmatch(stripped):
        return SourceFile(decode_descriptor(stripped, name))
    cursor = Cursor(text, name, tokens_max)
    parse_file(cursor)
    return SourceFile(cursor.file, text, cursor.positions, cursor.tokens_read)


def _check_size(text: str, name: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise refusal("a lone surrogate is not text", text, error.start, name) from None
    if size > SCHEMA_BYTES_MAX:
        raise InvalidSchema(f"a schema has at most {SCHEMA_BYTES_MAX} bytes, not {size}")
