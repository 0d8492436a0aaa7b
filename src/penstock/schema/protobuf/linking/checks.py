"""The runner of a file's rules: each rule checks one element and returns the violation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf.elements import Element, ElementKind
from penstock.schema.protobuf.linking.linked_file import LinkedFile
from penstock.schema.protobuf.numbers import Ranges
from penstock.schema.protobuf.parsing.cursor import Dialect

_DECLARATION: Final = descriptor_pb2.ExtensionRangeOptions.DECLARATION


class RuleContext:
    """The file being checked, with cached ranges that many of its elements need."""

    def __init__(self, linked: LinkedFile) -> None:
        self.linked = linked
        self.scope = linked.scope()
        self.dialect = dialect(linked.file)
        self._taken: dict[str, tuple[Ranges, frozenset[str]]] = {}
        self._extensible: dict[str, Ranges] = {}
        self._declared: dict[str, tuple[Ranges, dict[int, Any]]] = {}
        self._extensions: dict[tuple[str, int], str] = {}

    def find(self, name: str) -> Element:
        """Return an element that the file can see. `name`: its full name with a leading dot. Raises `KeyError` for an
        unknown one."""
        return self.scope.symbols[name[1:]]

    def taken(self, element: Element) -> tuple[Ranges, frozenset[str]]:
        """Return the numbers and names that no field of the element's message may have."""
        message = outer(element.name)
        if message not in self._taken:
            parent = element.parent
            ranges = Ranges.of((*parent.reserved_range, *parent.extension_range))
            self._taken[message] = ranges, frozenset(parent.reserved_name)
        return self._taken[message]

    def extensible(self, message: Element) -> Ranges:
        if message.name not in self._extensible:
            self._extensible[message.name] = Ranges.of(message.descriptor.extension_range)
        return self._extensible[message.name]

    def declared(self, message: Element) -> tuple[Ranges, dict[int, Any]]:
        """Return the extension numbers of a message that must be declared with it, and the declarations."""
        if message.name not in self._declared:
            strict = [
                extension_range
                for extension_range in message.descriptor.extension_range
                if _asks_for_declarations(extension_range)
            ]
            known = {
                declaration.number: declaration
                for extension_range in strict
                for declaration in extension_range.options.declaration
            }
            self._declared[message.name] = Ranges.of(strict), known
        return self._declared[message.name]

    def first_extension(self, extension: Element) -> str:
        """Return the name of the first visited extension of the same message with the same number; of `extension`
        itself if there was none before."""
        which = extension.descriptor.extendee, extension.descriptor.number
        return self._extensions.setdefault(which, extension.name)


Rule = Callable[[RuleContext, Element], str | None]
"""A rule: returns a message about how an element violates it, or None."""


def dialect(file: Any) -> Dialect:
    return Dialect(file.syntax or "proto2")


def check_rules(linked: LinkedFile, rules: dict[ElementKind, tuple[Rule, ...]]) -> None:
    """Raise `InvalidSchema` for the first element that breaks a rule."""
    file = RuleContext(linked)
    for element in (Element(ElementKind.FILE, linked.file.package, linked.file, None), *linked.symbols.values()):
        for rule in rules.get(element.sort, ()):
            wrong = rule(file, element)
            if wrong is not None:
                raise linked.source.refusal(wrong, element.name, element.option_key(0, linked.file.package))


def _asks_for_declarations(extension_range: Any) -> bool:
    options = extension_range.options
    return bool(options.declaration) or options.verification == _DECLARATION


def outer(name: str) -> str:
    return name.rpartition(".")[0]
