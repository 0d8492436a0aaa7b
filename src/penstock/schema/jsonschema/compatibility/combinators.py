"""Rules for schemas made of schemas: `$ref`, `allOf`, `anyOf`, `oneOf`, `not`, `if`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, KeywordRule
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ALL, NUMBERS, ValueKind, kind_names
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer.choices import by_kind, cases, integers_and_fractions
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts, facts_of, property_of
from penstock.schema.problems import Problem


def reference(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    return [each for target in reader.keywords["$ref"] for each in comparison.problems(target, writer)]


def all_of(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    return [each for branch in reader.keywords["allOf"] for each in comparison.problems(branch, writer)]


def any_of(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    if _accepting_branch(comparison, _candidate_branches(comparison, reader, "anyOf", writer), writer):
        return []
    refused: list[tuple[WriterFacts, list[SchemaNode]]] = []
    for part in _split_by_kind(comparison, reader, "anyOf", writer):
        likely = _candidate_branches(comparison, reader, "anyOf", part)
        if not _accepting_branch(comparison, likely, part):
            refused.append((part, likely))
    return _no_branch(comparison, reader, "anyOf", writer, refused)


def one_of(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    if _exactly_one_accepts(comparison, _candidate_branches(comparison, reader, "oneOf", writer), writer):
        return []
    refused: list[tuple[WriterFacts, list[SchemaNode]]] = []
    taken_twice: list[WriterFacts] = []
    for part in _split_by_kind(comparison, reader, "oneOf", writer):
        likely = _candidate_branches(comparison, reader, "oneOf", part)
        if not _accepting_branch(comparison, likely, part):
            refused.append((part, likely))
        elif not _exactly_one_accepts(comparison, likely, part):
            taken_twice.append(part)
    return _overlap(reader, writer, taken_twice) + _no_branch(comparison, reader, "oneOf", writer, refused)


def not_(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    if comparison.strict.impossible(writer.conforming(reader.keywords["not"])):
        return []
    kind = "NOT_TYPE_EXTENDED" if writer.keyword_values("not") else "NOT_TYPE_ADDED"
    message = "it cannot be shown that the writer writes nothing of what the reader refuses here"
    return [problem(kind, reader, "not", writer, message, fix="refuse less, or have the writer refuse it too")]


def if_(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    keywords = reader.keywords
    problems: list[Problem] = []
    if "then" in keywords:
        problems += comparison.problems(
            keywords["then"], _facts_under_condition(comparison, keywords["if"], "then", writer)
        )
    if "else" in keywords:
        problems += comparison.problems(
            keywords["else"], _facts_under_condition(comparison, keywords["if"], "else", writer)
        )
    return problems


def _facts_under_condition(
    comparison: Comparison, condition: SchemaNode, outcome: str, writer: WriterFacts
) -> WriterFacts:
    """Return the facts about a value for which the reader's `if` holds (`outcome` is `then`) or fails (`outcome` is
    `else`). If the writer has the same condition, its own `then` or `else` is among the facts."""
    facts = writer.conforming(condition) if outcome == "then" else writer.violating(condition)
    for node in writer.conforms:
        if "if" in node.keywords and comparison.alike(node.keywords["if"], condition):
            facts = facts.deciding(node, "if")
            if outcome in node.keywords:
                facts = facts.conforming(node.keywords[outcome])
    return facts


def _candidate_branches(
    comparison: Comparison, reader: SchemaNode, keyword: str, writer: WriterFacts
) -> list[SchemaNode]:
    """Return the branches that may take some of the values; the others certainly take none."""
    branches: list[SchemaNode] = reader.keywords[keyword]
    tag = comparison.strict.tag(reader, keyword)
    tag_values = comparison.strict.values(property_of(writer, tag.name)) if tag is not None else None
    if tag is not None and tag_values is not None:
        return [branch for branch, value in zip(branches, tag.values, strict=True) if value in tag_values]
    comparison.spend(len(branches))
    return [branch for branch in branches if facts_of(branch).kinds & writer.kinds]


def _split_by_kind(comparison: Comparison, reader: SchemaNode, keyword: str, writer: WriterFacts) -> list[WriterFacts]:
    """Split the facts into one case for each kind of value. Integers and fractions are separate cases only if no branch
    takes all numbers."""
    parts = by_kind(writer)
    if parts and parts[-1].kinds == NUMBERS:
        likely = _candidate_branches(comparison, reader, keyword, parts[-1])
        if not _accepting_branch(comparison, likely, parts[-1]):
            parts[-1:] = integers_and_fractions(parts[-1])
    return parts


def _accepting_branch(comparison: Comparison, branches: Sequence[SchemaNode], writer: WriterFacts) -> SchemaNode | None:
    """Return the first branch that is shown to take all values; None if there is none. While the writer has undecided
    choices, only rules are used for this: `Comparison` goes through the choices itself."""
    proves = comparison.proves if cases(writer) is None else comparison.proves_by_rules
    return next((branch for branch in branches if proves(branch, writer)), None)


def _exactly_one_accepts(comparison: Comparison, branches: Sequence[SchemaNode], writer: WriterFacts) -> bool:
    """Return whether it is shown that one branch takes all values and the others take none."""
    accepting = _accepting_branch(comparison, branches, writer)
    others = [branch for branch in branches if branch is not accepting]
    return accepting is not None and all(comparison.strict.impossible(writer.conforming(other)) for other in others)


def _no_branch(
    comparison: Comparison,
    reader: SchemaNode,
    keyword: str,
    writer: WriterFacts,
    refused: Sequence[tuple[WriterFacts, Sequence[SchemaNode]]],
) -> list[Problem]:
    """Return the problems of `refused`: cases that no branch takes, each with its candidate branches. If a case has a
    single candidate, the problems of that branch are returned, because they say more."""
    problems: list[Problem] = []
    unclear: set[ValueKind] = set()
    for part, likely in refused:
        if len(likely) == 1:
            problems += comparison.problems(likely[0], part)
        else:
            unclear |= part.kinds
    if unclear:
        kind = (
            "SUM_TYPE_NARROWED"
            if writer.keyword_values("anyOf") or writer.keyword_values("oneOf")
            else "SUM_TYPE_ADDED"
        )
        message = (
            f"no branch of the reader can be shown to take all of what the writer may write: {kind_names(unclear)}"
        )
        problems.append(problem(kind, reader, keyword, writer, message, fix="add a branch that takes it, or widen one"))
    return problems


def _overlap(reader: SchemaNode, writer: WriterFacts, taken: Sequence[WriterFacts]) -> list[Problem]:
    if not taken:
        return []
    kinds = kind_names(kind for part in taken for kind in part.kinds)
    message = f"more than one branch of the reader may take the same value of the writer: {kinds}"
    fix = "use anyOf, or make the branches exclude each other"
    return [problem("ONE_OF_BRANCHES_OVERLAP", reader, "oneOf", writer, message, fix=fix)]


RULES: Final = {
    "$ref": KeywordRule(ALL, reference, delegates=True),
    "allOf": KeywordRule(ALL, all_of, delegates=True),
    "anyOf": KeywordRule(ALL, any_of),
    "oneOf": KeywordRule(ALL, one_of),
    "not": KeywordRule(ALL, not_),
    "if": KeywordRule(ALL, if_, delegates=True),
}
