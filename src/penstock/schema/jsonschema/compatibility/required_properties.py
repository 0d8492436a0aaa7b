"""Rules for required properties: unconditional ones, and those that other properties demand."""

from __future__ import annotations

from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, KeywordRule
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import OBJECTS
from penstock.schema.jsonschema.model.text import quoted
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts, names, property_of
from penstock.schema.problems import Problem


def required(_: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    mentioned = names(writer)
    problems: list[Problem] = []
    for index, name in enumerate(reader.keywords["required"]):
        if name in writer.present:
            continue
        is_addition = name in reader.keywords.get("properties", ()) and name not in mentioned
        kind = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL" if is_addition else "REQUIRED_ATTRIBUTE_ADDED"
        message = f"the writer may leave out {quoted(name)}, the reader requires it"
        fix = f"do not require {quoted(name)} in the reader"
        problems.append(problem(kind, reader, "required", writer, message, index, fix=fix))
    return problems


def dependent_required(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    problems: list[Problem] = []
    for name, needed in reader.keywords["dependentRequired"].items():
        comparison.spend(len(writer.present))
        missing = set(needed) - writer.having(name).present
        if not missing or comparison.strict.impossible(property_of(writer, name)):
            continue
        facts_of = any(name in keyword_values for keyword_values in writer.keyword_values("dependentRequired"))
        kind = "DEPENDENCY_ARRAY_EXTENDED" if facts_of else "DEPENDENCY_ARRAY_ADDED"
        without = ", ".join(quoted(missing_name) for missing_name in sorted(missing))
        message = f"the writer may write {quoted(name)} without {without}, the reader does not take that"
        fix = f"do not require {without} in the reader"
        problems.append(problem(kind, reader, "dependentRequired", writer, message, name, fix=fix))
    return problems


def dependent_schemas(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    """Return the problems of the reader's dependent schemas, each compared with the facts about an object that has the
    property."""
    problems: list[Problem] = []
    for name, schema in reader.keywords["dependentSchemas"].items():
        comparison.spend(len(writer.present))
        if not comparison.strict.impossible(property_of(writer, name)):
            problems += comparison.problems(schema, writer.having(name))
    return problems


RULES: Final = {
    "required": KeywordRule(OBJECTS, required),
    "dependentRequired": KeywordRule(OBJECTS, dependent_required),
    "dependentSchemas": KeywordRule(OBJECTS, dependent_schemas, delegates=True),
}
