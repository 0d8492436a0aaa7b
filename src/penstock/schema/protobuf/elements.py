"""The elements that a file declares, in order."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from penstock.schema.protobuf.parsing.options import option_key


class ElementKind(Enum):
    """The kind of an element. Error messages use the values as words."""

    FILE = "file"
    MESSAGE = "message"
    FIELD = "field"
    EXTENSION = "extension"
    ONEOF = "oneof"
    ENUM = "enum"
    VALUE = "enum_entry"
    SERVICE = "service"
    METHOD = "method"
    RANGE = "extension_range"
    PACKAGE = "package"


class Element(NamedTuple):
    sort: ElementKind
    name: str
    """The full name. A range of extensions, which has no name, has that of its message and its index."""
    descriptor: Any
    parent: Any

    def option_key(self, index: int, package: str) -> str:
        """Return the key of the position of an option in the text, see `options.option_key`."""
        name = "" if self.sort is ElementKind.FILE else self.name
        return option_key(name.removeprefix(f"{package}."), index)


def elements(file: Any) -> Iterator[Element]:
    """Yield all elements of a file descriptor: the file itself first, and containers before their contents."""
    yield Element(ElementKind.FILE, file.package, file, None)
    scope = f"{file.package}." if file.package else ""
    for message in file.message_type:
        yield from _message(message, file, scope)
    for enum in file.enum_type:
        yield from _enum(enum, file, scope)
    for extension in file.extension:
        yield Element(ElementKind.EXTENSION, scope + extension.name, extension, file)
    for service in file.service:
        yield Element(ElementKind.SERVICE, scope + service.name, service, file)
        for method in service.method:
            yield Element(ElementKind.METHOD, f"{scope}{service.name}.{method.name}", method, service)


def _message(message: Any, parent: Any, outer: str) -> Iterator[Element]:
    name = outer + message.name
    yield Element(ElementKind.MESSAGE, name, message, parent)
    scope = f"{name}."
    for nested in message.nested_type:
        yield from _message(nested, message, scope)
    for enum in message.enum_type:
        yield from _enum(enum, message, scope)
    for sort, things in (
        (ElementKind.ONEOF, message.oneof_decl),
        (ElementKind.FIELD, message.field),
        (ElementKind.EXTENSION, message.extension),
    ):
        for thing in things:
            yield Element(sort, scope + thing.name, thing, message)
    for index, extension_range in enumerate(message.extension_range):
        yield Element(ElementKind.RANGE, f"{scope}extensions.{index}", extension_range, message)


def _enum(enum: Any, parent: Any, scope: str) -> Iterator[Element]:
    """Yield an enum and its values, which are in the scope that contains the enum."""
    yield Element(ElementKind.ENUM, scope + enum.name, enum, parent)
    for value in enum.value:
        yield Element(ElementKind.VALUE, scope + value.name, value, enum)
