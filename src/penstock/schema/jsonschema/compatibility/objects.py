"""Rules for the properties of objects: named ones, those that match a pattern, all others, and property names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, KeywordRule
from penstock.schema.jsonschema.compatibility.evaluated import Evaluated
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import OBJECTS
from penstock.schema.jsonschema.model.patterns import matches, matches_everything
from penstock.schema.jsonschema.model.text import quoted
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer.writer_facts import (
    WriterFacts,
    is_false,
    name_of,
    names,
    patterns,
    property_of,
    unnamed_property_of,
)
from penstock.schema.problems import Problem

# Named properties


def properties(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    mentioned = names(writer)
    all_problems: list[Problem] = []
    for name, schema in reader.keywords["properties"].items():
        value = property_of(writer, name)
        is_addition = name not in mentioned
        if (comparison.lenient and is_addition and value.is_anything) or not _may_have_name(comparison, writer, name):
            continue
        problems = comparison.problems(schema, value)
        if problems and is_addition:
            problems = (_added(reader, writer, name, value),)
        elif problems and is_false(schema):
            problems = (_removed(reader, "properties", writer, name, name),)
        all_problems += problems
    return all_problems


def _added(reader: SchemaNode, writer: WriterFacts, name: str, value: WriterFacts) -> Problem:
    if value.is_anything:
        kind = "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
        message = f"the writer may write anything as {quoted(name)}, the reader has a schema for it"
        fix = "have writers close their objects, compare leniently, or let the reader take anything"
    else:
        kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        message = f"the reader does not take all that the writer may write as {quoted(name)}"
        fix = f"widen the reader's schema for {quoted(name)}"
    return problem(kind, reader, "properties", writer, message, name, fix=fix)


def _removed(reader: SchemaNode, keyword: str, writer: WriterFacts, name: str, *tokens: str) -> Problem:
    message = f"the writer may write {quoted(name)}, the reader takes no such property"
    kind = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
    return problem(kind, reader, keyword, writer, message, *tokens, fix=f"let the reader take {quoted(name)} still")


# Properties that match a pattern


def pattern_properties(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    possible = _possible_names(comparison, writer)
    all_problems: list[Problem] = []
    for pattern, schema in reader.keywords["patternProperties"].items():
        for name in possible.named:
            if matches(reader.document, pattern, name):
                all_problems += comparison.problems(schema, property_of(writer, name))
        if possible.others:
            problems = comparison.problems(schema, unnamed_property_of(writer, pattern))
            if problems and pattern not in patterns(writer):
                message = f"the reader does not take all that the writer may write in properties like {quoted(pattern)}"
                kind, fix = "PATTERN_PROPERTY_ADDED", "widen the reader's schema for them"
                problems = (problem(kind, reader, "patternProperties", writer, message, pattern, fix=fix),)
            all_problems += problems
    return all_problems


# All other properties


@dataclass(frozen=True, slots=True)
class _RemainingProperties:
    """The properties that `additionalProperties` or `unevaluatedProperties` applies to."""

    keyword: str
    has: Callable[[str], bool]
    """Returns whether another keyword covers the property of this name."""
    patterns: set[str]
    """The patterns that another keyword covers."""


def additional_properties(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    named = reader.keywords.get("properties", {})
    like = set(reader.keywords.get("patternProperties", ()))
    rest = _RemainingProperties(
        "additionalProperties",
        lambda name: name in named or any(matches(reader.document, pattern, name) for pattern in like),
        like,
    )
    return _others(comparison, reader, writer, rest)


def unevaluated_properties(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    evaluated = Evaluated(comparison, reader, writer)
    if evaluated.all_properties:
        return []
    rest = _RemainingProperties("unevaluatedProperties", evaluated.has, evaluated.patterns)
    return _others(comparison, reader, writer, rest)


def _others(
    comparison: Comparison, reader: SchemaNode, writer: WriterFacts, rest: _RemainingProperties
) -> list[Problem]:
    if any(matches_everything(reader.document, pattern) for pattern in rest.patterns):
        return []
    schema, possible = reader.keywords[rest.keyword], _possible_names(comparison, writer)
    problems = [
        _not_covered(reader, writer, rest, name)
        for name in possible.named
        if not rest.has(name) and not comparison.proves(schema, property_of(writer, name))
    ]
    if possible.others:
        problems += _unnamed_problems(comparison, reader, writer, rest)
    return problems


def _unnamed_problems(
    comparison: Comparison, reader: SchemaNode, writer: WriterFacts, rest: _RemainingProperties
) -> list[Problem]:
    schema = reader.keywords[rest.keyword]
    problems: list[Problem] = []
    for pattern in sorted(patterns(writer) - rest.patterns):
        if not comparison.proves(schema, unnamed_property_of(writer, pattern)):
            message = f"the writer may write properties like {quoted(pattern)}, the reader does not take all of them"
            kind, fix = "PATTERN_PROPERTY_REMOVED", "let the reader take them still"
            problems.append(problem(kind, reader, rest.keyword, writer, message, fix=fix))
    if not comparison.proves(schema, unnamed_property_of(writer)):
        kind = "ADDITIONAL_PROPERTIES_REMOVED" if is_false(schema) else "ADDITIONAL_PROPERTIES_NARROWED"
        message = "the writer may write other properties than those it names, the reader does not take all of them"
        problems.append(problem(kind, reader, rest.keyword, writer, message, fix="let the reader take any others"))
    return problems


def _not_covered(reader: SchemaNode, writer: WriterFacts, rest: _RemainingProperties, name: str) -> Problem:
    if is_false(reader.keywords[rest.keyword]):
        return _removed(reader, rest.keyword, writer, name)
    message = (
        f"the writer may write {quoted(name)}, and in it what the reader does not take in properties it has no name for"
    )
    kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return problem(kind, reader, rest.keyword, writer, message, fix=f"give {quoted(name)} a schema in the reader")


# Property names


@dataclass(frozen=True, slots=True)
class _PropertyNames:
    named: list[str]
    others: bool
    """True if there may be properties with names that neither side mentions."""


def _possible_names(comparison: Comparison, writer: WriterFacts) -> _PropertyNames:
    if writer.keyword_values("propertyNames"):
        listed = comparison.values(name_of(writer))
        if listed is not None:
            return _PropertyNames(listed, others=False)
    named = sorted(name for name in names(writer) if _may_have_name(comparison, writer, name))
    open_ended = [unnamed_property_of(writer, pattern) for pattern in (None, *patterns(writer))]
    return _PropertyNames(named, others=any(value.kinds for value in open_ended))


def _may_have_name(comparison: Comparison, writer: WriterFacts, name: str) -> bool:
    return all(comparison.accepts(schema, name) for schema in writer.keyword_values("propertyNames"))


def property_names(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    schema, possible = reader.keywords["propertyNames"], _possible_names(comparison, writer)
    if possible.others:
        return list(comparison.problems(schema, name_of(writer)))
    problems: list[Problem] = []
    for name in possible.named:
        if property_of(writer, name).kinds and not comparison.accepts(schema, name):
            message = f"the writer may call a property {quoted(name)}, the reader does not take such a name"
            kind, fix = "PROPERTY_NAMES_NARROWED", "let the reader take it"
            problems.append(problem(kind, reader, "propertyNames", writer, message, fix=fix))
    return problems


RULES: Final = {
    "properties": KeywordRule(OBJECTS, properties),
    "patternProperties": KeywordRule(OBJECTS, pattern_properties),
    "additionalProperties": KeywordRule(OBJECTS, additional_properties),
    "unevaluatedProperties": KeywordRule(OBJECTS, unevaluated_properties),
    "propertyNames": KeywordRule(OBJECTS, property_names),
}
