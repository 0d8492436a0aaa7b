"""What all things have in common when they are printed: blocks, ranges, options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.schema.protobuf.literals import quoted
from penstock.schema.protobuf.printing.options import printed_options

Lines = Iterator[str]
Naming = Callable[[str, str], str]
"""How a type is called, given its full name with a dot before it, by something that has a full name itself."""


@dataclass(frozen=True, slots=True)
class Style:
    file: Any
    pool: Any
    """Knows the options that the file uses."""
    name: Naming

    def options(self, holder: Any) -> Lines:
        return (f"option {each};" for each in printed_options(holder, self.pool))

    def brackets(self, holder: Any, first: Iterable[str] = ()) -> str:
        given = [*first, *printed_options(holder, self.pool)]
        return f" [{', '.join(given)}]" if given else ""

    def reserved(self, holder: Any, past: int, to_max: int) -> Lines:
        """Ranges and names; `past` and `to_max` as for `printed_range`."""
        if holder.reserved_range:
            yield f"reserved {', '.join(printed_range(each, past, to_max) for each in holder.reserved_range)};"
        if holder.reserved_name:
            names = holder.reserved_name if self.file.edition else map(quoted, holder.reserved_name)
            yield f"reserved {', '.join(names)};"


def printed_range(given: Any, past: int, to_max: int) -> str:
    """`past` is 1 where the end is one past the last, and 0 where it is the last."""
    last = given.end - past
    if last == given.start:
        return str(last)
    return f"{given.start} to {'max' if last >= to_max else last}"


def block(head: str, lines: Iterable[str]) -> Lines:
    within = [f"  {line}" for line in lines]
    if not within:
        yield f"{head} {{}}"
        return
    yield f"{head} {{"
    yield from within
    yield "}"


def below(scope: str, name: str) -> str:
    """The full name of something in a scope."""
    return f"{scope}.{name}" if scope else name


def last_name(full: str) -> str:
    return full.rpartition(".")[2]
