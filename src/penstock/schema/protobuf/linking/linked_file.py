"""Linked files: the types of fields, extensions and methods resolved to full names by the names that the file can
see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf.elements import Element, ElementKind, elements
from penstock.schema.protobuf.limits import FULL_NAME_CHARS_MAX, PACKAGE_PARTS_MAX
from penstock.schema.protobuf.linking.source import SourceFile

HOLDERS: Final = (ElementKind.MESSAGE, ElementKind.ENUM, ElementKind.SERVICE, ElementKind.PACKAGE)
"""Kinds of elements that contain other names."""
TYPES: Final = (ElementKind.MESSAGE, ElementKind.ENUM)

Symbols = Mapping[str, Element]
"""Elements by full name."""


@dataclass(frozen=True, slots=True)
class VisibleNames:
    """The names that are visible within one file."""

    symbols: Symbols

    def find(self, name: str, scope: str, sorts: tuple[ElementKind, ...]) -> Element | str:
        """Return the element that `name` means within the element with the full name `scope`; a message if it cannot be
        resolved. `sorts`: the kinds of elements that may stand there.

        Scopes are searched from inside outwards, and the first one that has the name's first part decides. It is passed
        over if more parts follow and the element contains no names, or if a type is wanted and the element is not one.
        """
        if name.startswith("."):
            return self._absolute(name[1:], sorts)
        first, _, rest = name.partition(".")
        for outer in _outwards(scope):
            element = self.symbols.get(outer + first)
            if element is None:
                continue
            if not rest:
                if element.sort in sorts or sorts != TYPES or outer == "":
                    return _checked_kind(element, sorts, name)
            elif element.sort in HOLDERS:
                return self._absolute(outer + name, sorts, name)
        return f'"{name}" is not defined, here or in what is imported'

    def _absolute(self, full: str, sorts: tuple[ElementKind, ...], written: str = "") -> Element | str:
        element = self.symbols.get(full)
        if element is not None:
            return _checked_kind(element, sorts, full)
        if written and written != full:
            return f'"{written}" means "{full}" here, which is not defined; ".{written}" begins outermost'
        return f'"{full}" is not defined, here or in what is imported'


def _outwards(scope: str) -> Iterator[str]:
    parts = scope.split(".") if scope else []
    for length in range(len(parts) - 1, 0, -1):
        yield ".".join(parts[:length]) + "."
    yield ""


def _checked_kind(element: Element, sorts: tuple[ElementKind, ...], name: str) -> Element | str:
    if element.sort in sorts:
        return element
    return f'"{name}" ({element.sort.value.replace("_", " ")}) cannot stand here'


_Proto: Final = descriptor_pb2.FieldDescriptorProto
_FIELDS: Final = (ElementKind.FIELD, ElementKind.EXTENSION)


@dataclass(frozen=True, slots=True)
class LinkedFile:
    """A file with all names resolved."""

    source: SourceFile
    symbols: Symbols
    """The file's own symbols."""
    seen: tuple[Symbols, ...]
    """Symbols of the files it imports, and of their public imports."""
    shown: tuple[Symbols, ...]
    """Symbols visible to files that import it: its own, and those of its public imports."""

    @property
    def file(self) -> Any:
        return self.source.file

    def scope(self) -> VisibleNames:
        """Return all names visible within it. Built on demand: a hundred files that see all of each other would hold
        them a hundred times."""
        visible: dict[str, Element] = {}
        for symbols in (*self.seen, self.symbols):
            visible.update(symbols)
        return VisibleNames(visible)


def link_file(source: SourceFile, imports: tuple[LinkedFile, ...]) -> LinkedFile:
    """Write resolved types and full names into `source.file`. Raises `InvalidSchema` for a name that means nothing, or
    two things at once."""
    own = _own_symbols(source)
    public = [imports[index] for index in source.file.public_dependency]
    linked = LinkedFile(source, own, _once(imports), (own, *_once(public)))
    _check_unique(linked)
    scope = linked.scope()
    for element in own.values():
        if element.sort in _FIELDS:
            _resolve_field(source, scope, element)
        elif element.sort is ElementKind.METHOD:
            _resolve_method(source, scope, element)
    return linked


def _once(files: Iterable[LinkedFile]) -> tuple[Symbols, ...]:
    """Return the symbols that files show, each once: a file may be imported on many ways."""
    return tuple({id(shown): shown for file in files for shown in file.shown}.values())


def _own_symbols(source: SourceFile) -> dict[str, Element]:
    own = _packages(source)
    for element in elements(source.file):
        if element.sort is ElementKind.FILE:
            continue
        if len(element.name) > FULL_NAME_CHARS_MAX:
            raise source.refusal(f"a full name has at most {FULL_NAME_CHARS_MAX} characters")
        if element.name in own:
            raise source.refusal(f'"{element.name}" is defined twice', element.name)
        own[element.name] = element
    return own


def _packages(source: SourceFile) -> dict[str, Element]:
    package = source.file.package
    parts = package.split(".") if package else []
    if len(parts) > PACKAGE_PARTS_MAX or len(package) > FULL_NAME_CHARS_MAX:
        raise source.refusal(f"a package has at most {PACKAGE_PARTS_MAX} parts", "package")
    names = [".".join(parts[: length + 1]) for length in range(len(parts))]
    return {name: Element(ElementKind.PACKAGE, name, None, None) for name in names}


def _check_unique(linked: LinkedFile) -> None:
    for symbols in linked.seen:
        for name in symbols.keys() & linked.symbols.keys():
            if (symbols[name].sort, linked.symbols[name].sort) != (ElementKind.PACKAGE, ElementKind.PACKAGE):
                message = f'"{name}" is defined in this file and in one that it imports'
                raise linked.source.refusal(message, name, "package")


def _resolve_field(source: SourceFile, scope: VisibleNames, element: Element) -> None:
    field = element.descriptor
    if field.type_name:
        target = _found(source, scope, element, field.type_name, TYPES)
        field.type_name = f".{target.name}"
        _resolve_type(source, element, target)
    elif not field.HasField("type") or field.type in (_Proto.TYPE_MESSAGE, _Proto.TYPE_ENUM, _Proto.TYPE_GROUP):
        raise source.refusal("a field without a type", element.name)
    if element.sort is ElementKind.EXTENSION:
        target = _found(source, scope, element, field.extendee, (ElementKind.MESSAGE,))
        field.extendee = f".{target.name}"
    elif field.extendee:
        raise source.refusal("a field of a message extends nothing", element.name)


def _resolve_type(source: SourceFile, element: Element, target: Element) -> None:
    field = element.descriptor
    meant = _Proto.TYPE_ENUM if target.sort is ElementKind.ENUM else _Proto.TYPE_MESSAGE
    if not field.HasField("type"):
        field.type = meant
    if field.type != meant and not (field.type == _Proto.TYPE_GROUP and target.sort is ElementKind.MESSAGE):
        raise source.refusal(f'"{target.name}" is not of the type the field says it has', element.name)


def _resolve_method(source: SourceFile, scope: VisibleNames, element: Element) -> None:
    method = element.descriptor
    for side in ("input_type", "output_type"):
        target = _found(source, scope, element, getattr(method, side), (ElementKind.MESSAGE,))
        setattr(method, side, f".{target.name}")


def _found(
    source: SourceFile, scope: VisibleNames, element: Element, name: str, sorts: tuple[ElementKind, ...]
) -> Element:
    target = scope.find(name, element.name, sorts)
    if isinstance(target, str):
        raise source.refusal(target, element.name)
    return target
