"""Rules for what an object must have: always, or because of what else it has."""

from __future__ import annotations

from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, Row
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import OBJECTS
from penstock.schema.jsonschema.model.text import quoted
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer.writer_facts import Written, names, property_of
from penstock.schema.problems import Problem


def required(_: Comparison, reader: Node, written: Written) -> list[Problem]:
    mentioned = names(written)
    found: list[Problem] = []
    for place, name in enumerate(reader.keywords["required"]):
        if name in written.present:
            continue
        is_addition = name in reader.keywords.get("properties", ()) and name not in mentioned
        kind = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL" if is_addition else "REQUIRED_ATTRIBUTE_ADDED"
        message = f"the writer may leave out {quoted(name)}, the reader requires it"
        fix = f"do not require {quoted(name)} in the reader"
        found.append(problem(kind, reader, "required", written, message, place, fix=fix))
    return found


def dependent_required(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    found: list[Problem] = []
    for name, needed in reader.keywords["dependentRequired"].items():
        comparison.spend(len(written.present))
        missing = set(needed) - written.having(name).present
        if not missing or comparison.strict.impossible(property_of(written, name)):
            continue
        known = any(name in words for words in written.words("dependentRequired"))
        kind = "DEPENDENCY_ARRAY_EXTENDED" if known else "DEPENDENCY_ARRAY_ADDED"
        without = ", ".join(quoted(each) for each in sorted(missing))
        message = f"the writer may write {quoted(name)} without {without}, the reader does not take that"
        fix = f"do not require {without} in the reader"
        found.append(problem(kind, reader, "dependentRequired", written, message, name, fix=fix))
    return found


def dependent_schemas(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    """An object with such a property conforms to more, if the writer says so too."""
    found: list[Problem] = []
    for name, schema in reader.keywords["dependentSchemas"].items():
        comparison.spend(len(written.present))
        if not comparison.strict.impossible(property_of(written, name)):
            found += comparison.problems(schema, written.having(name))
    return found


ROWS: Final = {
    "required": Row(OBJECTS, required),
    "dependentRequired": Row(OBJECTS, dependent_required),
    "dependentSchemas": Row(OBJECTS, dependent_schemas, asks_others=True),
}
