"""The choices a writer had: what is known of a value in each case. One of the cases is the true one."""

from __future__ import annotations

from typing import Final

from penstock.schema.jsonschema.model.kinds import INTEGERS, NUMBERS, Kinds
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer.writer_facts import Written

_EXCLUDED_MAX: Final = 12
"""Branches of which the others are known to fail: in large choices it is a tag that tells them apart."""


def cases(written: Written) -> list[Written] | None:
    """The first choice that is still open, with all its cases; None if there is none."""
    for node in written.conforms:
        for keyword, split in _SPLITS.items():
            if keyword in node.keywords and (node, keyword) not in written.settled:
                return split(node, written.settling(node, keyword))
    return None


def by_kind(written: Written) -> list[Written]:
    """One for each kind it may be of; integers stay together, and so do all numbers where fractions are among them."""
    numbers = written.kinds & NUMBERS
    groups: list[Kinds] = [frozenset({kind}) for kind in sorted(written.kinds - NUMBERS)]
    if numbers:
        groups.append(numbers)
    return [written.of(group) for group in groups]


def whole_and_not(written: Written) -> list[Written]:
    """Integers and other numbers apart."""
    return [written.of(INTEGERS), written.of(frozenset(NUMBERS - INTEGERS))]


def _any_of(node: Node, written: Written) -> list[Written]:
    return [written.conforming(branch) for branch in node.keywords["anyOf"]]


def _one_of(node: Node, written: Written) -> list[Written]:
    branches = node.keywords["oneOf"]
    if len(branches) > _EXCLUDED_MAX:
        return [written.conforming(branch) for branch in branches]
    return [
        written.conforming(branch).violating(*(other for other in branches if other is not branch))
        for branch in branches
    ]


def _if(node: Node, written: Written) -> list[Written]:
    condition = node.keywords["if"]
    then = written.conforming(condition)
    otherwise = written.violating(condition)
    return [
        then.conforming(node.keywords["then"]) if "then" in node.keywords else then,
        otherwise.conforming(node.keywords["else"]) if "else" in node.keywords else otherwise,
    ]


_SPLITS = {"oneOf": _one_of, "anyOf": _any_of, "if": _if}
