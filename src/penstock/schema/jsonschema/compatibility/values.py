"""Rules for kinds of values, and for values that are listed one by one."""

from __future__ import annotations

from typing import Any, Final

from jsonschema_rs import ValidationError

from penstock.schema.jsonschema.compatibility.comparison import EACH_VALUE, Comparison, KeywordRule
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ALL, kind_names
from penstock.schema.jsonschema.model.text import compact, pointer, quoted
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts
from penstock.schema.problems import Problem, fragment

_VALUES_NAMED: Final = 3
"""Values that a problem names as refused by the reader: enough to recognise them."""


def false_schema(_: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    """Return the problem of a `false` schema of the reader. A rule that knows what the schema stands for replaces it by
    a clearer one."""
    return [
        Problem(
            kind="FALSE_SCHEMA",
            path=reader.path,
            message=f"the reader takes nothing here; the writer may write {kind_names(writer.kinds)}",
            reader="false",
            fix="allow here what the writer writes",
        )
    ]


def type_(_: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    taken = reader.keywords["type"]
    missing = writer.kinds - taken
    if not missing:
        return []
    kind = "TYPE_NARROWED" if writer.kinds & taken else "TYPE_CHANGED"
    message = f"the writer may write {kind_names(missing)}, the reader takes {kind_names(taken)}"
    return [problem(kind, reader, "type", writer, message, fix=f"add {kind_names(missing)} to the reader's type")]


def each_value(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    """Return one problem for all values of the writer that the reader's validator refuses; it names the first three.

    Only for a writer whose values can be listed (`comparison.values` is not None): otherwise nothing is checked.
    """
    refused = [value for value in comparison.values(writer) or () if not comparison.accepts(reader, value)]
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
            writer=quoted((writer.keyword_values("enum") or writer.keyword_values("const") or [None])[0]),
            fix=fragment(f"let the reader take {named}"),
        )
    ]


def _place(fault: ValidationError) -> list[str | int]:
    """Return the path of a fault below the reader's schema, up to the next `$ref`. The first `$ref` is left out: it
    only led the validator to the reader's schema."""
    path = fault.evaluation_path[1:]
    return path[: path.index("$ref")] if "$ref" in path else path


_KINDS: Final = {"enum": "ENUM_ARRAY_NARROWED", "const": "CONST_CHANGED", "type": "TYPE_NARROWED"}


def enum(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    """Return the problems of the reader's `enum`. The writer's values are checked one by one; if they cannot be listed,
    an `enum` of the writer must be within the reader's."""
    if comparison.values(writer) is not None:
        return each_value(comparison, reader, writer)
    if any(_all_among(listed, reader.keywords["enum"]) for listed in writer.keyword_values("enum")):
        return []
    message = f"the writer may write any {kind_names(writer.kinds)}, the reader takes the values it lists"
    return [problem("ENUM_ARRAY_ADDED", reader, "enum", writer, message, fix="remove the reader's enum")]


def const(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    if comparison.values(writer) is not None:
        return each_value(comparison, reader, writer)
    message = f"the writer may write any {kind_names(writer.kinds)}, the reader takes one value"
    return [problem("CONST_ADDED", reader, "const", writer, message, fix="remove the reader's const")]


def _all_among(values: list[Any], others: list[Any]) -> bool:
    return {compact(value) for value in values} <= {compact(other) for other in others}


RULES: Final = {
    EACH_VALUE: KeywordRule(ALL, each_value),
    "false": KeywordRule(ALL, false_schema),
    "type": KeywordRule(ALL, type_),
    "enum": KeywordRule(ALL, enum),
    "const": KeywordRule(ALL, const),
}
