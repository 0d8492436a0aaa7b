"""The compatibility check of a new version against earlier ones, pair by pair: can this reader read that writer?

A table says which pairs each compatibility mode demands; the schema languages compare each pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from penstock.core.limits import MIB
from penstock.core.schemas import Compatibility, Definition
from penstock.schema.problems import PROBLEMS_MAX, Problem
from penstock.schema.registry.models import CompatibilityConfig
from penstock.schema.steps import CheckCompatibility, Procedure, SchemaPair

BACKWARD: Final = "BACKWARD"
"""The new schema is the reader."""

FORWARD: Final = "FORWARD"
"""The new schema is the writer."""

BATCH_PAIRS_MAX: Final = 64
"""Pairs compared in one step: the versions of most subjects."""

BATCH_CHARS_MAX: Final = 4 * MIB
"""Characters of the texts compared in one step: the worker has limits of its own on memory and time."""


class ComparisonRule(NamedTuple):
    directions: tuple[str, ...]
    transitive: bool
    """True if all versions are compared, not only the last one."""


COMPARISON_RULES: Final = {
    Compatibility.NONE: ComparisonRule((), transitive=False),
    Compatibility.BACKWARD: ComparisonRule((BACKWARD,), transitive=False),
    Compatibility.BACKWARD_TRANSITIVE: ComparisonRule((BACKWARD,), transitive=True),
    Compatibility.FORWARD: ComparisonRule((FORWARD,), transitive=False),
    Compatibility.FORWARD_TRANSITIVE: ComparisonRule((FORWARD,), transitive=True),
    Compatibility.FULL: ComparisonRule((BACKWARD, FORWARD), transitive=False),
    Compatibility.FULL_TRANSITIVE: ComparisonRule((BACKWARD, FORWARD), transitive=True),
}


class VersionComparison(NamedTuple):
    version: int
    direction: str
    pair: SchemaPair


def comparisons_for(
    mode: Compatibility, candidate: Definition, earlier: Iterable[tuple[int, Definition]]
) -> list[VersionComparison]:
    """Return the comparisons that a candidate needs. `earlier`: versions and their definitions, the newest first."""
    rule = COMPARISON_RULES[mode]
    return [
        VersionComparison(version, direction, _pair(direction, candidate, definition))
        for version, definition in islice(earlier, None if rule.transitive else 1)
        for direction in rule.directions
    ]


def _pair(direction: str, candidate: Definition, earlier: Definition) -> SchemaPair:
    if direction == BACKWARD:
        return SchemaPair(reader=candidate, writer=earlier)
    return SchemaPair(reader=earlier, writer=candidate)


def find_problems(comparisons: Sequence[VersionComparison], *, lenient: bool) -> Procedure[list[Problem]]:
    """Run the comparisons in batches and return the problems, each with its version and direction; at most
    `PROBLEMS_MAX`."""
    problems: list[Problem] = []
    for batch in _batches(comparisons):
        answers = yield CheckCompatibility(tuple(comparison.pair for comparison in batch), lenient=lenient)
        for comparison, answer in zip(batch, answers, strict=True):
            problems += [
                replace(problem, version=comparison.version, direction=comparison.direction) for problem in answer
            ]
        if len(problems) >= PROBLEMS_MAX:
            break
    return problems[:PROBLEMS_MAX]


def _batches(comparisons: Sequence[VersionComparison]) -> Iterator[list[VersionComparison]]:
    batch: list[VersionComparison] = []
    chars = 0
    for comparison in comparisons:
        size = _chars(comparison.pair.reader) + _chars(comparison.pair.writer)
        if batch and (len(batch) == BATCH_PAIRS_MAX or chars + size > BATCH_CHARS_MAX):
            yield batch
            batch, chars = [], 0
        batch.append(comparison)
        chars += size
    if batch:
        yield batch


def _chars(definition: Definition) -> int:
    return len(definition.text) + sum(len(text) for _, text in definition.references)


def check_candidate(
    candidate: Definition, earlier: Iterable[tuple[int, Definition]], rules: CompatibilityConfig
) -> Procedure[list[Problem]]:
    comparisons = comparisons_for(rules.compatibility, candidate, earlier)
    return (yield from find_problems(comparisons, lenient=rules.lenient))
