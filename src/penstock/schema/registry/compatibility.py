"""Which schemas a new version is held against. One question, asked about pairs: can this reader read that writer?

The modes are rows; the languages answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from penstock.core.limits import MIB
from penstock.core.schemas import Compatibility, Definition
from penstock.schema.problems import PROBLEMS_MAX, Problem
from penstock.schema.registry.models import Rules
from penstock.schema.steps import Compare, Pair, Procedure

BACKWARD: Final = "BACKWARD"
"""The new schema reads."""

FORWARD: Final = "FORWARD"
"""The new schema writes."""

TOGETHER_MAX: Final = 64
"""Pairs compared in one step: the versions of most subjects."""

TOGETHER_CHARS_MAX: Final = 4 * MIB
"""Of the texts compared in one step: the worker has limits of its own on memory and time."""


class Demand(NamedTuple):
    directions: tuple[str, ...]
    transitive: bool
    """Not only of the last version, but of all that there are."""


DEMANDS: Final = {
    Compatibility.NONE: Demand((), transitive=False),
    Compatibility.BACKWARD: Demand((BACKWARD,), transitive=False),
    Compatibility.BACKWARD_TRANSITIVE: Demand((BACKWARD,), transitive=True),
    Compatibility.FORWARD: Demand((FORWARD,), transitive=False),
    Compatibility.FORWARD_TRANSITIVE: Demand((FORWARD,), transitive=True),
    Compatibility.FULL: Demand((BACKWARD, FORWARD), transitive=False),
    Compatibility.FULL_TRANSITIVE: Demand((BACKWARD, FORWARD), transitive=True),
}


class Question(NamedTuple):
    version: int
    direction: str
    pair: Pair


def pairs(mode: Compatibility, candidate: Definition, earlier: Iterable[tuple[int, Definition]]) -> list[Question]:
    """What has to be asked about a candidate. `earlier`: versions and what they are, the newest first."""
    demand = DEMANDS[mode]
    return [
        Question(version, direction, _pair(direction, candidate, definition))
        for version, definition in islice(earlier, None if demand.transitive else 1)
        for direction in demand.directions
    ]


def _pair(direction: str, candidate: Definition, earlier: Definition) -> Pair:
    if direction == BACKWARD:
        return Pair(reader=candidate, writer=earlier)
    return Pair(reader=earlier, writer=candidate)


def problems_of(questions: Sequence[Question], *, lenient: bool) -> Procedure[list[Problem]]:
    """The answers: each problem with the version and the direction it is about. At most `PROBLEMS_MAX`."""
    problems: list[Problem] = []
    for group in _groups(questions):
        answers = yield Compare(tuple(question.pair for question in group), lenient=lenient)
        for question, answer in zip(group, answers, strict=True):
            problems += [replace(each, version=question.version, direction=question.direction) for each in answer]
        if len(problems) >= PROBLEMS_MAX:
            break
    return problems[:PROBLEMS_MAX]


def _groups(questions: Sequence[Question]) -> Iterator[list[Question]]:
    group: list[Question] = []
    chars = 0
    for question in questions:
        size = _chars(question.pair.reader) + _chars(question.pair.writer)
        if group and (len(group) == TOGETHER_MAX or chars + size > TOGETHER_CHARS_MAX):
            yield group
            group, chars = [], 0
        group.append(question)
        chars += size
    if group:
        yield group


def _chars(definition: Definition) -> int:
    return len(definition.text) + sum(len(text) for _, text in definition.references)


def candidate_problems(
    candidate: Definition, earlier: Iterable[tuple[int, Definition]], rules: Rules
) -> Procedure[list[Problem]]:
    questions = pairs(rules.compatibility, candidate, earlier)
    return (yield from problems_of(questions, lenient=rules.lenient))
