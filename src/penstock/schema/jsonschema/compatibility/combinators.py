"""Rules for schemas made of schemas: all of them, any of them, one of them, not this one, this one if that one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, Row
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ALL, NUMBERS, Kind, described
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer.choices import by_kind, cases, whole_and_not
from penstock.schema.jsonschema.writer.writer_facts import Written, known, property_of
from penstock.schema.problems import Problem


def reference(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    return [each for target in reader.keywords["$ref"] for each in comparison.problems(target, written)]


def all_of(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    return [each for branch in reader.keywords["allOf"] for each in comparison.problems(branch, written)]


def any_of(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    if _taker(comparison, _likely(comparison, reader, "anyOf", written), written):
        return []
    refused: list[tuple[Written, list[Node]]] = []
    for part in _parts(comparison, reader, "anyOf", written):
        likely = _likely(comparison, reader, "anyOf", part)
        if not _taker(comparison, likely, part):
            refused.append((part, likely))
    return _no_branch(comparison, reader, "anyOf", written, refused)


def one_of(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    if _is_one(comparison, _likely(comparison, reader, "oneOf", written), written):
        return []
    refused: list[tuple[Written, list[Node]]] = []
    taken_twice: list[Written] = []
    for part in _parts(comparison, reader, "oneOf", written):
        likely = _likely(comparison, reader, "oneOf", part)
        if not _taker(comparison, likely, part):
            refused.append((part, likely))
        elif not _is_one(comparison, likely, part):
            taken_twice.append(part)
    return _overlap(reader, written, taken_twice) + _no_branch(comparison, reader, "oneOf", written, refused)


def not_(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    if comparison.strict.impossible(written.conforming(reader.keywords["not"])):
        return []
    kind = "NOT_TYPE_EXTENDED" if written.words("not") else "NOT_TYPE_ADDED"
    message = "it cannot be shown that the writer writes nothing of what the reader refuses here"
    return [problem(kind, reader, "not", written, message, fix="refuse less, or have the writer refuse it too")]


def if_(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    words = reader.keywords
    found: list[Problem] = []
    if "then" in words:
        found += comparison.problems(words["then"], _given(comparison, words["if"], "then", written))
    if "else" in words:
        found += comparison.problems(words["else"], _given(comparison, words["if"], "else", written))
    return found


def _given(comparison: Comparison, condition: Node, outcome: str, written: Written) -> Written:
    """What is known if the reader's condition holds, or does not: the writer may have the same one."""
    given = written.conforming(condition) if outcome == "then" else written.violating(condition)
    for node in written.conforms:
        if "if" in node.keywords and comparison.alike(node.keywords["if"], condition):
            given = given.settling(node, "if")
            if outcome in node.keywords:
                given = given.conforming(node.keywords[outcome])
    return given


def _likely(comparison: Comparison, reader: Node, keyword: str, written: Written) -> list[Node]:
    """The branches that may take some of it; the others certainly take none."""
    branches: list[Node] = reader.keywords[keyword]
    tag = comparison.strict.tag(reader, keyword)
    given = comparison.strict.values(property_of(written, tag.name)) if tag is not None else None
    if tag is not None and given is not None:
        return [branch for branch, value in zip(branches, tag.values, strict=True) if value in given]
    comparison.spend(len(branches))
    return [branch for branch in branches if known(branch).kinds & written.kinds]


def _parts(comparison: Comparison, reader: Node, keyword: str, written: Written) -> list[Written]:
    """By kind; integers by themselves only if that helps."""
    parts = by_kind(written)
    if parts and parts[-1].kinds == NUMBERS:
        likely = _likely(comparison, reader, keyword, parts[-1])
        if not _taker(comparison, likely, parts[-1]):
            parts[-1:] = whole_and_not(parts[-1])
    return parts


def _taker(comparison: Comparison, branches: Sequence[Node], written: Written) -> Node | None:
    """The first branch that takes all of it; where the writer had choices, those come first."""
    proves = comparison.proves if cases(written) is None else comparison.proves_at_once
    return next((branch for branch in branches if proves(branch, written)), None)


def _is_one(comparison: Comparison, branches: Sequence[Node], written: Written) -> bool:
    """One branch takes all of it, and the others take none."""
    taker = _taker(comparison, branches, written)
    others = [branch for branch in branches if branch is not taker]
    return taker is not None and all(comparison.strict.impossible(written.conforming(other)) for other in others)


def _no_branch(
    comparison: Comparison,
    reader: Node,
    keyword: str,
    written: Written,
    refused: Sequence[tuple[Written, Sequence[Node]]],
) -> list[Problem]:
    """Where only one branch comes into question, what is wrong with that one says more."""
    found: list[Problem] = []
    unclear: set[Kind] = set()
    for part, likely in refused:
        if len(likely) == 1:
            found += comparison.problems(likely[0], part)
        else:
            unclear |= part.kinds
    if unclear:
        kind = "SUM_TYPE_NARROWED" if written.words("anyOf") or written.words("oneOf") else "SUM_TYPE_ADDED"
        message = f"no branch of the reader can be shown to take all of what the writer may write: {described(unclear)}"
        found.append(problem(kind, reader, keyword, written, message, fix="add a branch that takes it, or widen one"))
    return found


def _overlap(reader: Node, written: Written, taken: Sequence[Written]) -> list[Problem]:
    if not taken:
        return []
    kinds = described(kind for part in taken for kind in part.kinds)
    message = f"more than one branch of the reader may take the same value of the writer: {kinds}"
    fix = "use anyOf, or make the branches exclude each other"
    return [problem("ONE_OF_BRANCHES_OVERLAP", reader, "oneOf", written, message, fix=fix)]


ROWS: Final = {
    "$ref": Row(ALL, reference, asks_others=True),
    "allOf": Row(ALL, all_of, asks_others=True),
    "anyOf": Row(ALL, any_of),
    "oneOf": Row(ALL, one_of),
    "not": Row(ALL, not_),
    "if": Row(ALL, if_, asks_others=True),
}
