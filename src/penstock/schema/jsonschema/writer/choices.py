"""The choices of a writer: the facts about a value in each case. One of the cases is the true one."""

from __future__ import annotations

from typing import Final

from penstock.schema.jsonschema.model.kinds import INTEGERS, NUMBERS, ValueKinds
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts

_EXCLUDED_MAX: Final = 12
"""Branches of a `oneOf` up to which the facts include that the other branches fail: in larger choices a tag
distinguishes them."""


def cases(writer: WriterFacts) -> list[WriterFacts] | None:
    """Return the facts in each case of the first choice (`oneOf`, `anyOf`, `if`) that is not decided yet; None if there
    is no such choice."""
    for node in writer.conforms:
        for keyword, split in _SPLITS.items():
            if keyword in node.keywords and (node, keyword) not in writer.decided:
                return split(node, writer.deciding(node, keyword))
    return None


def by_kind(writer: WriterFacts) -> list[WriterFacts]:
    """Return one case for each possible kind; integers stay together, and so do all numbers if fractions are among
    them."""
    numbers = writer.kinds & NUMBERS
    groups: list[ValueKinds] = [frozenset({kind}) for kind in sorted(writer.kinds - NUMBERS)]
    if numbers:
        groups.append(numbers)
    return [writer.of(group) for group in groups]


def integers_and_fractions(writer: WriterFacts) -> list[WriterFacts]:
    """Return integers and other numbers as separate cases."""
    return [writer.of(INTEGERS), writer.of(frozenset(NUMBERS - INTEGERS))]


def _any_of(node: SchemaNode, writer: WriterFacts) -> list[WriterFacts]:
    return [writer.conforming(branch) for branch in node.keywords["anyOf"]]


def _one_of(node: SchemaNode, writer: WriterFacts) -> list[WriterFacts]:
    branches = node.keywords["oneOf"]
    if len(branches) > _EXCLUDED_MAX:
        return [writer.conforming(branch) for branch in branches]
    return [
        writer.conforming(branch).violating(*(other for other in branches if other is not branch))
        for branch in branches
    ]


def _if(node: SchemaNode, writer: WriterFacts) -> list[WriterFacts]:
    condition = node.keywords["if"]
    then = writer.conforming(condition)
    otherwise = writer.violating(condition)
    return [
        then.conforming(node.keywords["then"]) if "then" in node.keywords else then,
        otherwise.conforming(node.keywords["else"]) if "else" in node.keywords else otherwise,
    ]


_SPLITS = {"oneOf": _one_of, "anyOf": _any_of, "if": _if}
