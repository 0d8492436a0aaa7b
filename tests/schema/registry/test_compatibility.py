"""The comparisons that a candidate needs: the modes as rows, and the batches they run in."""

from __future__ import annotations

from itertools import repeat

import pytest

from penstock.core.limits import MIB
from penstock.core.schemas import Compatibility, Definition, SchemaKind
from penstock.schema.problems import PROBLEMS_MAX, Problem
from penstock.schema.registry.compatibility import (
    BACKWARD,
    BATCH_CHARS_MAX,
    BATCH_PAIRS_MAX,
    COMPARISON_RULES,
    FORWARD,
    VersionComparison,
    check_candidate,
    comparisons_for,
    find_problems,
)
from penstock.schema.registry.models import CompatibilityConfig
from penstock.schema.steps import CheckCompatibility, SchemaForm, SchemaPair, run_procedure

NEW = Definition(SchemaKind.AVRO, "new")
EARLIER = [(version, Definition(SchemaKind.AVRO, f"v{version}")) for version in (5, 3, 1)]


def asked(mode: Compatibility) -> list[str]:
    return [
        f"{comparison.version} {comparison.direction}: {comparison.pair.reader.text} reads"
        f" {comparison.pair.writer.text}"
        for comparison in comparisons_for(mode, NEW, EARLIER)
    ]


@pytest.mark.parametrize(
    ("mode", "comparisons"),
    [
        (Compatibility.NONE, []),
        (Compatibility.BACKWARD, ["5 BACKWARD: new reads v5"]),
        (Compatibility.FORWARD, ["5 FORWARD: v5 reads new"]),
        (Compatibility.FULL, ["5 BACKWARD: new reads v5", "5 FORWARD: v5 reads new"]),
        (
            Compatibility.BACKWARD_TRANSITIVE,
            ["5 BACKWARD: new reads v5", "3 BACKWARD: new reads v3", "1 BACKWARD: new reads v1"],
        ),
        (
            Compatibility.FORWARD_TRANSITIVE,
            ["5 FORWARD: v5 reads new", "3 FORWARD: v3 reads new", "1 FORWARD: v1 reads new"],
        ),
        (
            Compatibility.FULL_TRANSITIVE,
            [
                "5 BACKWARD: new reads v5",
                "5 FORWARD: v5 reads new",
                "3 BACKWARD: new reads v3",
                "3 FORWARD: v3 reads new",
                "1 BACKWARD: new reads v1",
                "1 FORWARD: v1 reads new",
            ],
        ),
    ],
)
def test_a_mode_is_a_list_of_questions(mode: Compatibility, comparisons: list[str]) -> None:
    assert asked(mode) == comparisons


def test_every_mode_has_its_row() -> None:
    assert set(COMPARISON_RULES) == set(Compatibility)


@pytest.mark.parametrize("mode", Compatibility)
def test_nothing_is_asked_where_nothing_was_before(mode: Compatibility) -> None:
    assert comparisons_for(mode, NEW, []) == []


def test_no_more_is_fetched_than_is_asked_about() -> None:
    fetched = iter(EARLIER)
    comparisons_for(Compatibility.FULL, NEW, fetched)
    assert len(list(fetched)) == 2


class Answers:
    """A schema engine with one problem for every pair, or as many as configured."""

    def __init__(self, problems: int = 1) -> None:
        self.problems = problems
        self.portions: list[int] = []
        self.lenient: list[bool] = []

    def parse(self, definition: Definition, form: SchemaForm = SchemaForm.CANONICAL) -> str:
        raise AssertionError

    def check_compatibility(self, pairs: tuple[SchemaPair, ...], *, lenient: bool) -> list[list[Problem]]:
        self.portions.append(len(pairs))
        self.lenient.append(lenient)
        return [[Problem(kind="K", path="", message="m")] * self.problems for _ in pairs]


def comparisons(count: int, chars: int) -> list[VersionComparison]:
    pair = SchemaPair(Definition(SchemaKind.AVRO, "x" * chars), Definition(SchemaKind.AVRO, ""))
    return [VersionComparison(version, BACKWARD, pair) for version in range(count, 0, -1)]


def test_problems_say_which_version_and_which_direction_they_are_about() -> None:
    rules = CompatibilityConfig(compatibility=Compatibility.FULL_TRANSITIVE, lenient=True)
    answers = Answers()
    found = run_procedure(check_candidate(NEW, EARLIER[:2], rules), answers)
    assert [(each.version, each.direction) for each in found] == [
        (5, BACKWARD),
        (5, FORWARD),
        (3, BACKWARD),
        (3, FORWARD),
    ]
    assert answers.lenient == [True]


def test_where_nothing_is_asked_no_step_is_taken() -> None:
    procedure = check_candidate(NEW, EARLIER, CompatibilityConfig(compatibility=Compatibility.NONE, lenient=False))
    with pytest.raises(StopIteration) as end:
        next(procedure)
    assert end.value.value == []


def test_many_questions_are_asked_in_portions() -> None:
    answers = Answers(problems=0)
    assert run_procedure(find_problems(comparisons(2 * BATCH_PAIRS_MAX + 1, 1), lenient=False), answers) == []
    assert answers.portions == [BATCH_PAIRS_MAX, BATCH_PAIRS_MAX, 1]


def test_large_schemas_are_compared_in_smaller_portions_but_at_least_one_by_one() -> None:
    answers = Answers(problems=0)
    run_procedure(find_problems(comparisons(7, MIB), lenient=False), answers)
    assert answers.portions == [BATCH_CHARS_MAX // MIB, 3]
    answers = Answers(problems=0)
    run_procedure(find_problems(comparisons(2, 2 * BATCH_CHARS_MAX), lenient=False), answers)
    assert answers.portions == [1, 1]


def test_the_texts_of_references_count() -> None:
    heavy = Definition(SchemaKind.AVRO, "", (("name", "x" * BATCH_CHARS_MAX),))
    answers = Answers(problems=0)
    heavy_questions = list(repeat(VersionComparison(1, BACKWARD, SchemaPair(NEW, heavy)), 2))
    run_procedure(find_problems(heavy_questions, lenient=False), answers)
    assert answers.portions == [1, 1]


def test_enough_problems_are_enough() -> None:
    answers = Answers(problems=PROBLEMS_MAX - 1)
    found = run_procedure(find_problems(comparisons(3 * BATCH_PAIRS_MAX, 1), lenient=False), answers)
    assert len(found) == PROBLEMS_MAX
    assert answers.portions == [BATCH_PAIRS_MAX]


def test_a_step_is_a_comparison() -> None:
    (comparison,) = comparisons_for(Compatibility.FORWARD, NEW, EARLIER)
    step = next(find_problems([comparison], lenient=True))
    assert step == CheckCompatibility((comparison.pair,), lenient=True)
