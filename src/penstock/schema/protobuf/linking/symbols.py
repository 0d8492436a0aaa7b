"""Which names a file can see, and what each of them means in a scope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.schema.protobuf.walk import Element, Sort

HOLDERS: Final = (Sort.MESSAGE, Sort.ENUM, Sort.SERVICE, Sort.PACKAGE)
"""What other names can be within."""
TYPES: Final = (Sort.MESSAGE, Sort.ENUM)

Symbols = Mapping[str, Element]
"""By full name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What can be seen from within one file."""

    symbols: Symbols

    def find(self, name: str, scope: str, sorts: tuple[Sort, ...]) -> Element | str:
        """What `name` means to something whose full name is `scope`: from there outwards, the first scope that has its
        first part decides, unless that is something other things cannot be in, or a type is sought and it is none. If
        nothing is found, a sentence that says so."""
        if name.startswith("."):
            return self._absolute(name[1:], sorts)
        first, _, rest = name.partition(".")
        for outer in _outwards(scope):
            found = self.symbols.get(outer + first)
            if found is None:
                continue
            if not rest:
                if found.sort in sorts or sorts != TYPES or outer == "":
                    return _if_of(found, sorts, name)
            elif found.sort in HOLDERS:
                return self._absolute(outer + name, sorts, name)
        return f'"{name}" is not defined, here or in what is imported'

    def _absolute(self, full: str, sorts: tuple[Sort, ...], written: str = "") -> Element | str:
        found = self.symbols.get(full)
        if found is not None:
            return _if_of(found, sorts, full)
        if written and written != full:
            return f'"{written}" means "{full}" here, which is not defined; ".{written}" begins outermost'
        return f'"{full}" is not defined, here or in what is imported'


def _outwards(scope: str) -> Iterator[str]:
    parts = scope.split(".") if scope else []
    for length in range(len(parts) - 1, 0, -1):
        yield ".".join(parts[:length]) + "."
    yield ""


def _if_of(found: Element, sorts: tuple[Sort, ...], name: str) -> Element | str:
    if found.sort in sorts:
        return found
    return f'"{name}" ({found.sort.value.replace("_", " ")}) cannot stand here'
