"""Rules for the properties of objects: those with names, those like a pattern, all others, and what they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, Row
from penstock.schema.jsonschema.compatibility.evaluated import Evaluated
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import OBJECTS
from penstock.schema.jsonschema.model.patterns import matches, matches_everything
from penstock.schema.jsonschema.model.text import quoted
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer.writer_facts import (
    Written,
    name_of,
    names,
    never,
    patterns,
    property_of,
    unnamed_property_of,
)
from penstock.schema.problems import Problem

"""Patterns that say nothing. `^.*$` does: a line break is not a `.`"""


# With names


def properties(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    mentioned = names(written)
    found: list[Problem] = []
    for name, schema in reader.keywords["properties"].items():
        given = property_of(written, name)
        is_addition = name not in mentioned
        if (comparison.lenient and is_addition and given.is_anything) or not _may_be_called(comparison, written, name):
            continue
        problems = comparison.problems(schema, given)
        if problems and is_addition:
            problems = (_added(reader, written, name, given),)
        elif problems and never(schema):
            problems = (_removed(reader, "properties", written, name, name),)
        found += problems
    return found


def _added(reader: Node, written: Written, name: str, given: Written) -> Problem:
    if given.is_anything:
        kind = "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
        message = f"the writer may write anything as {quoted(name)}, the reader has a schema for it"
        fix = "have writers close their objects, compare leniently, or let the reader take anything"
    else:
        kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        message = f"the reader does not take all that the writer may write as {quoted(name)}"
        fix = f"widen the reader's schema for {quoted(name)}"
    return problem(kind, reader, "properties", written, message, name, fix=fix)


def _removed(reader: Node, keyword: str, written: Written, name: str, *tokens: str) -> Problem:
    message = f"the writer may write {quoted(name)}, the reader takes no such property"
    kind = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
    return problem(kind, reader, keyword, written, message, *tokens, fix=f"let the reader take {quoted(name)} still")


# Like a pattern


def pattern_properties(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    possible = _possible_names(comparison, written)
    found: list[Problem] = []
    for pattern, schema in reader.keywords["patternProperties"].items():
        for name in possible.named:
            if matches(reader.document, pattern, name):
                found += comparison.problems(schema, property_of(written, name))
        if possible.others:
            problems = comparison.problems(schema, unnamed_property_of(written, pattern))
            if problems and pattern not in patterns(written):
                message = f"the reader does not take all that the writer may write in properties like {quoted(pattern)}"
                kind, fix = "PATTERN_PROPERTY_ADDED", "widen the reader's schema for them"
                problems = (problem(kind, reader, "patternProperties", written, message, pattern, fix=fix),)
            found += problems
    return found


# All others


@dataclass(frozen=True, slots=True)
class _Rest:
    """The properties that a keyword is left with."""

    keyword: str
    has: Callable[[str], bool]
    """Whether one of this name is dealt with elsewhere."""
    patterns: set[str]
    """Those that are dealt with elsewhere."""


def additional_properties(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    named = reader.keywords.get("properties", {})
    like = set(reader.keywords.get("patternProperties", ()))
    rest = _Rest(
        "additionalProperties",
        lambda name: name in named or any(matches(reader.document, pattern, name) for pattern in like),
        like,
    )
    return _others(comparison, reader, written, rest)


def unevaluated_properties(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    evaluated = Evaluated(comparison, reader, written)
    if evaluated.all_properties:
        return []
    rest = _Rest("unevaluatedProperties", evaluated.has, evaluated.patterns)
    return _others(comparison, reader, written, rest)


def _others(comparison: Comparison, reader: Node, written: Written, rest: _Rest) -> list[Problem]:
    if any(matches_everything(reader.document, pattern) for pattern in rest.patterns):
        return []
    schema, possible = reader.keywords[rest.keyword], _possible_names(comparison, written)
    found = [
        _not_covered(reader, written, rest, name)
        for name in possible.named
        if not rest.has(name) and not comparison.proves(schema, property_of(written, name))
    ]
    if possible.others:
        found += _nameless(comparison, reader, written, rest)
    return found


def _nameless(comparison: Comparison, reader: Node, written: Written, rest: _Rest) -> list[Problem]:
    schema = reader.keywords[rest.keyword]
    found: list[Problem] = []
    for pattern in sorted(patterns(written) - rest.patterns):
        if not comparison.proves(schema, unnamed_property_of(written, pattern)):
            message = f"the writer may write properties like {quoted(pattern)}, the reader does not take all of them"
            kind, fix = "PATTERN_PROPERTY_REMOVED", "let the reader take them still"
            found.append(problem(kind, reader, rest.keyword, written, message, fix=fix))
    if not comparison.proves(schema, unnamed_property_of(written)):
        kind = "ADDITIONAL_PROPERTIES_REMOVED" if never(schema) else "ADDITIONAL_PROPERTIES_NARROWED"
        message = "the writer may write other properties than those it names, the reader does not take all of them"
        found.append(problem(kind, reader, rest.keyword, written, message, fix="let the reader take any others"))
    return found


def _not_covered(reader: Node, written: Written, rest: _Rest, name: str) -> Problem:
    if never(reader.keywords[rest.keyword]):
        return _removed(reader, rest.keyword, written, name)
    message = (
        f"the writer may write {quoted(name)}, and in it what the reader does not take in properties it has no name for"
    )
    kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return problem(kind, reader, rest.keyword, written, message, fix=f"give {quoted(name)} a schema in the reader")


# Names


@dataclass(frozen=True, slots=True)
class _Names:
    named: list[str]
    others: bool
    """There may be properties with names that nobody mentions."""


def _possible_names(comparison: Comparison, written: Written) -> _Names:
    if written.words("propertyNames"):
        listed = comparison.values(name_of(written))
        if listed is not None:
            return _Names(listed, others=False)
    named = sorted(name for name in names(written) if _may_be_called(comparison, written, name))
    open_ended = [unnamed_property_of(written, pattern) for pattern in (None, *patterns(written))]
    return _Names(named, others=any(given.kinds for given in open_ended))


def _may_be_called(comparison: Comparison, written: Written, name: str) -> bool:
    return all(comparison.accepts(schema, name) for schema in written.words("propertyNames"))


def property_names(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    schema, possible = reader.keywords["propertyNames"], _possible_names(comparison, written)
    if possible.others:
        return list(comparison.problems(schema, name_of(written)))
    found: list[Problem] = []
    for name in possible.named:
        if property_of(written, name).kinds and not comparison.accepts(schema, name):
            message = f"the writer may call a property {quoted(name)}, the reader does not take such a name"
            kind, fix = "PROPERTY_NAMES_NARROWED", "let the reader take it"
            found.append(problem(kind, reader, "propertyNames", written, message, fix=fix))
    return found


ROWS: Final = {
    "properties": Row(OBJECTS, properties),
    "patternProperties": Row(OBJECTS, pattern_properties),
    "additionalProperties": Row(OBJECTS, additional_properties),
    "unevaluatedProperties": Row(OBJECTS, unevaluated_properties),
    "propertyNames": Row(OBJECTS, property_names),
}
