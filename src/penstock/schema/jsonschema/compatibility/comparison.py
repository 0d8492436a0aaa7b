"""The comparison engine: can a reader's schema take every value that these facts allow? The answer is a list of
problems, found by rules.

An empty list is a proof, and it is sound because each of its steps is: a rule shows that the demand of one keyword
holds for every value that was written. Recursive schemas are compared by assuming the statement being proved, for parts
of the value only (see `proofs`). A statement that cannot be proved is a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from jsonschema_rs import ValidationError, Validator

from penstock.schema.jsonschema.compatibility.problem_text import circular, too_deep
from penstock.schema.jsonschema.compatibility.proofs import Likeness, Proofs
from penstock.schema.jsonschema.model.exact_validators import ExactValidators
from penstock.schema.jsonschema.model.kinds import ValueKind, ValueKinds, kind_of
from penstock.schema.jsonschema.model.tree import SchemaDocument, SchemaNode
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.candidates import candidates
from penstock.schema.jsonschema.writer.choices import cases
from penstock.schema.jsonschema.writer.tags import Tag, tag_of
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts, dereferenced, facts_of, item_of, property_of
from penstock.schema.problems import PROBLEMS_MAX, Problem

STEPS_MAX: Final = 200_000
"""Steps of one comparison: about a second. Schemas that people write take some thousands."""

LEVELS_MAX: Final = 250
"""Depth of nested questions, each asked to answer the one before. A large schema in which all definitions refer to each
other needs about as many."""

EACH_VALUE: Final = "each value"
"""The key of the rule for values that can be listed. It stands among the rules but is no keyword."""

_QUESTION_STEPS: Final = 10
"""Steps that a question costs, besides one for each schema in the writer's facts."""

_ITEMS_LOOKED_AT: Final = 16
"""Required items of an array that are examined in order to prove that no such array exists."""


class StepsExhausted(Exception):
    """The comparison has used up its budget of steps."""


class KeywordRule(NamedTuple):
    """A compatibility rule: the kinds of values that a keyword constrains, and the function that finds problems."""

    kinds: ValueKinds
    rule: Callable[[Comparison, SchemaNode, WriterFacts], list[Problem]]
    delegates: bool = False
    """True if the rule only passes the question on to other schemas about the same value. They have gone through the
    writer's cases already, so that it need not be done again for their problems."""


class StepBudget:
    """A budget of steps that the parts of a comparison share. `spend` raises `StepsExhausted` once it is used up."""

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise StepsExhausted


class Comparison:
    """The comparison of one reader and one writer. It caches all answers, because the same question comes often."""

    def __init__(
        self,
        rules: Mapping[str, KeywordRule],
        exact_validators: Mapping[SchemaDocument, ExactValidators],
        *,
        lenient: bool = False,
        budget: StepBudget | None = None,
    ) -> None:
        self._rules = rules
        self._linked = exact_validators
        self._budget = budget or StepBudget()
        self.lenient = lenient
        # A lenient proof must not serve to prove that a value is impossible.
        self.strict = Comparison(rules, exact_validators, budget=self._budget) if lenient else self
        self._likeness = Likeness(self._budget.spend)
        self._validators: dict[SchemaNode, Validator] = {}
        self._proofs = Proofs()
        self._values: dict[WriterFacts, list[Any] | None] = {}
        self._tags: dict[tuple[SchemaNode, str], Tag | None] = {}

    def problems(self, reader: SchemaNode, writer: WriterFacts) -> tuple[Problem, ...]:
        """Return the reasons why the reader could not take the values; empty if it can. Raises `StepsExhausted`."""
        question = (dereferenced(reader), writer)
        if self._proofs.is_under_way(question):
            return () if self._proofs.may_assume(question, writer.depth) else (circular(question[0]),)
        known_already: tuple[Problem, ...] | None = self._proofs.answer(question, writer.depth)
        return self._answer(question) if known_already is None else known_already

    def proves(self, reader: SchemaNode, writer: WriterFacts) -> bool:
        return not self.problems(reader, writer)

    def proves_by_rules(self, reader: SchemaNode, writer: WriterFacts) -> bool:
        """Return whether rules alone show that the reader takes all values. Unlike `proves`, this does not go through
        the writer's cases and does not check whether such values can exist at all."""
        self._budget.spend(_steps(writer))
        if self._is_alike(reader, writer):
            return True
        return not any(self._apply_rules(reader, writer, delegates=delegating) for delegating in (False, True))

    def alike(self, one: SchemaNode, other: SchemaNode) -> bool:
        """Return whether two schemas have the same keywords with the same values, in all their subschemas too. The
        order of lists that are sets does not count."""
        return self._likeness.alike(one, other)

    def tag(self, reader: SchemaNode, keyword: str) -> Tag | None:
        """Return the tag that distinguishes the branches of the reader's choice `keyword` (`oneOf` or `anyOf`); None if
        there is none."""
        if (reader, keyword) not in self._tags:
            self._tags[reader, keyword] = tag_of([facts_of(branch) for branch in reader.keywords[keyword]], self.values)
        return self._tags[reader, keyword]

    def accepts(self, node: SchemaNode, value: Any) -> bool:
        """Return whether one value conforms to the schema `node`."""
        if node not in self._validators:
            self._budget.spend(_QUESTION_STEPS)
            self._validators[node] = self._linked[node.document].validator(node)
        self._budget.spend(1)
        return self._validators[node].is_valid(value)

    def spend(self, steps: int) -> None:
        """Charge steps for work beyond a question. Raises `StepsExhausted`."""
        self._budget.spend(steps)

    def fault(self, node: SchemaNode, value: Any) -> ValidationError:
        """Return the reason why a value does not conform. `accepts` must have refused it before."""
        return next(self._validators[node].iter_errors(value))

    # Questions

    def _answer(self, question: tuple[SchemaNode, WriterFacts]) -> tuple[Problem, ...]:
        self._budget.spend(_steps(question[1]))
        if self._proofs.level > LEVELS_MAX:
            return (too_deep(question[0]),)
        proof = self._proofs.begin(question, question[1].depth)
        problems = self._decide(*question)
        self._proofs.end(proof, problems, shown=not problems)
        return problems

    def _decide(self, reader: SchemaNode, writer: WriterFacts) -> tuple[Problem, ...]:
        if self._is_alike(reader, writer):
            return ()
        problems = self._apply_rules(reader, writer, delegates=True)
        if problems and cases(writer) is not None:
            return problems
        problems += self._apply_rules(reader, writer, delegates=False)
        if not problems:
            return ()
        possible = self.strict.possible_kinds(writer)
        if possible != writer.kinds:
            return self.problems(reader, writer.of(possible))
        return () if self.strict.impossible(writer) else self._case_by_case(reader, writer, problems)

    def _is_alike(self, reader: SchemaNode, writer: WriterFacts) -> bool:
        """Return whether there is nothing to prove: the value conforms to a schema that is alike to the reader's, or no
        kind of value is possible."""
        return not writer.kinds or any(self._likeness.alike(reader, node) for node in writer.conforms)

    def _apply_rules(self, reader: SchemaNode, writer: WriterFacts, *, delegates: bool) -> tuple[Problem, ...]:
        """Return the problems that the rules find, either of those that delegate or of those that do not. If the writer
        lists its values by `enum` or `const`, each value is checked instead."""
        if self.values(writer) is not None and (writer.keyword_values("enum") or writer.keyword_values("const")):
            return () if delegates else tuple(self._rules[EACH_VALUE].rule(self, reader, writer))
        problems: list[Problem] = []
        for keyword in reader.keywords:
            keyword_rule = self._rules.get(keyword)
            if keyword_rule is not None and keyword_rule.delegates is delegates and keyword_rule.kinds & writer.kinds:
                problems += keyword_rule.rule(self, reader, writer)
        return _distinct(problems)

    def _case_by_case(
        self, reader: SchemaNode, writer: WriterFacts, problems: tuple[Problem, ...]
    ) -> tuple[Problem, ...]:
        """Return the problems of the writer's cases, each compared by itself: where a proof for all fails at once,
        there may be one for each. Without an undecided choice, return `problems`."""
        branches = cases(writer)
        if branches is None:
            return problems
        failures: list[Problem] = []
        for branch in branches:
            failures += self.problems(reader, branch)
            # One choice is explained in full; for nested choices one failure is enough.
            if failures and writer.decided:
                break
        return _distinct(failures)

    # Values

    def values(self, writer: WriterFacts) -> list[Any] | None:
        """Return all values that the facts allow, if they can be listed; else None."""
        if writer not in self._values:
            named = candidates(writer)
            self._values[writer] = named and [value for value in named if self._may_be(writer, value)]
        return self._values[writer]

    def _may_be(self, writer: WriterFacts, value: Any) -> bool:
        return (
            kind_of(value) in writer.kinds
            and (not isinstance(value, dict) or writer.present <= value.keys())
            and all(self.accepts(node, value) for node in writer.conforms)
            and not any(self.accepts(node, value) for node in writer.violates)
        )

    def impossible(self, writer: WriterFacts) -> bool:
        """Return whether no such value can have been written. True only with a proof, never by assumption."""
        if self._proofs.is_under_way(writer) or self._proofs.level > LEVELS_MAX:
            return False
        known_already: bool | None = self._proofs.answer(writer, writer.depth)
        if known_already is not None:
            return known_already
        proof = self._proofs.begin(writer, writer.depth)
        is_impossible = self._is_impossible(writer)
        self._proofs.end(proof, is_impossible, shown=is_impossible)
        return is_impossible

    def _is_impossible(self, writer: WriterFacts) -> bool:
        self._budget.spend(_steps(writer))
        values = self.values(writer)
        if values is not None:
            return not values
        if not self.possible_kinds(writer):
            return True
        if any(self.proves_by_rules(node, writer.unless_violating(node)) for node in writer.violates):
            return True
        branches = cases(writer)
        return branches is not None and all(self.impossible(branch) for branch in branches)

    def possible_kinds(self, writer: WriterFacts) -> ValueKinds:
        """Return the kinds of the writer's values, without those for which it is proved that no such value exists."""
        return frozenset(kind for kind in writer.kinds if not self._is_impossible_kind(kind, writer))

    def _is_impossible_kind(self, kind: ValueKind, writer: WriterFacts) -> bool:
        match kind:
            case ValueKind.OBJECT:
                return ranges.properties(writer).is_empty or any(
                    self.impossible(property_of(writer, name)) for name in sorted(writer.present)
                )
            case ValueKind.ARRAY:
                span = ranges.items(writer)
                needed = range(min(span.least, _ITEMS_LOOKED_AT))
                return span.is_empty or any(self.impossible(item_of(writer, index)) for index in needed)
            case ValueKind.STRING:
                return ranges.characters(writer).is_empty
            case ValueKind.INTEGER | ValueKind.WHOLE | ValueKind.FRACTION:
                return ranges.excludes_all_numbers(writer)
            case _:
                return False


def _distinct(problems: list[Problem]) -> tuple[Problem, ...]:
    """Return the problems without duplicates, at most `PROBLEMS_MAX`. Where definitions refer to each other, one
    problem is found on many ways."""
    return tuple(dict.fromkeys(problems))[:PROBLEMS_MAX]


def _steps(writer: WriterFacts) -> int:
    return _QUESTION_STEPS + len(writer.conforms) + len(writer.violates)
