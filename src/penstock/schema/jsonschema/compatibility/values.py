"""Rules for kinds of values, and for values that are named one by one."""

from __future__ import annotations

from typing import Any, Final

from jsonschema_rs import ValidationError

from penstock.schema.jsonschema.compatibility.comparison import EACH_VALUE, Comparison, Row
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ALL, described
from penstock.schema.jsonschema.model.text import compact, pointer, quoted
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer.writer_facts import Written
from penstock.schema.problems import Problem, fragment

_VALUES_NAMED: Final = 3
"""Of those that cannot be read: enough to see what is meant."""


def nothing(_: Comparison, reader: Node, written: Written) -> list[Problem]:
    """`false`. Rules that know what it stands for put it in better words."""
    return [
        Problem(
            kind="FALSE_SCHEMA",
            path=reader.path,
            message=f"the reader takes nothing here; the writer may write {described(written.kinds)}",
            reader="false",
            fix="allow here what the writer writes",
        )
    ]


def type_(_: Comparison, reader: Node, written: Written) -> list[Problem]:
    taken = reader.keywords["type"]
    missing = written.kinds - taken
    if not missing:
        return []
    kind = "TYPE_NARROWED" if written.kinds & taken else "TYPE_CHANGED"
    message = f"the writer may write {described(missing)}, the reader takes {described(taken)}"
    return [problem(kind, reader, "type", written, message, fix=f"add {described(missing)} to the reader's type")]


def each_value(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    """The writer can write these values and no others: the reader's validator decides about each."""
    refused = [value for value in comparison.values(written) or () if not comparison.accepts(reader, value)]
    if not refused:
        return []
    fault = comparison.fault(reader, refused[0])
    named = ", ".join(dict.fromkeys(quoted(value) for value in refused[:_VALUES_NAMED]))
    return [
        Problem(
            kind=_KINDS.get(fault.kind.name, "VALUE_NOT_READ"),
            path=reader.document.path(reader.pointer + pointer(_place(fault))),
            message=fragment(f"the writer may write {named}; for the reader, {fault.message}"),
            reader=quoted(reader.raw),
            writer=quoted((written.words("enum") or written.words("const") or [None])[0]),
            fix=fragment(f"let the reader take {named}"),
        )
    ]


def _place(fault: ValidationError) -> list[str | int]:
    """Below the reader, as far as no reference leads elsewhere; the first one led to the reader itself."""
    place = fault.evaluation_path[1:]
    return place[: place.index("$ref")] if "$ref" in place else place


_KINDS: Final = {"enum": "ENUM_ARRAY_NARROWED", "const": "CONST_CHANGED", "type": "TYPE_NARROWED"}


def enum(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    """Against values that are too many to ask about each."""
    if comparison.values(written) is not None:
        return each_value(comparison, reader, written)
    if any(_all_among(given, reader.keywords["enum"]) for given in written.words("enum")):
        return []
    message = f"the writer may write any {described(written.kinds)}, the reader takes the values it lists"
    return [problem("ENUM_ARRAY_ADDED", reader, "enum", written, message, fix="remove the reader's enum")]


def const(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    if comparison.values(written) is not None:
        return each_value(comparison, reader, written)
    message = f"the writer may write any {described(written.kinds)}, the reader takes one value"
    return [problem("CONST_ADDED", reader, "const", written, message, fix="remove the reader's const")]


def _all_among(values: list[Any], others: list[Any]) -> bool:
    return {compact(value) for value in values} <= {compact(other) for other in others}


ROWS: Final = {
    EACH_VALUE: Row(ALL, each_value),
    "false": Row(ALL, nothing),
    "type": Row(ALL, type_),
    "enum": Row(ALL, enum),
    "const": Row(ALL, const),
}
