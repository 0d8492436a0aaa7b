"""Can a reader's schema take every value of which this much is known? The answer is what is wrong, found by rules.

No problem is a proof, and it is sound because each of its steps is: a rule shows that what one keyword demands holds
for whatever was written. Recursive schemas are compared by assuming what is being shown, of parts of the value alone
(see `proofs`). What cannot be shown is a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from jsonschema_rs import ValidationError, Validator

from penstock.schema.jsonschema.compatibility.problem_text import circular, too_deep
from penstock.schema.jsonschema.compatibility.proofs import Likeness, Proofs
from penstock.schema.jsonschema.model.kinds import Kind, Kinds, kind_of
from penstock.schema.jsonschema.model.linked import Linked
from penstock.schema.jsonschema.model.tree import Document, Node
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.candidates import candidates
from penstock.schema.jsonschema.writer.choices import cases
from penstock.schema.jsonschema.writer.tags import Tag, tag_of
from penstock.schema.jsonschema.writer.writer_facts import Written, item_of, known, meant, property_of
from penstock.schema.problems import PROBLEMS_MAX, Problem

STEPS_MAX: Final = 200_000
"""Of one comparison: about a second. Schemas that people write take some thousands."""

LEVELS_MAX: Final = 250
"""How deep one question may lead to others: as deep as definitions that all refer to each other, in a large schema."""

EACH_VALUE: Final = "each value"
"""The row for what can be named, where no keyword need be looked at."""

_QUESTION_STEPS: Final = 10
"""What a question costs, where a look at two schemas costs one."""

_ITEMS_LOOKED_AT: Final = 16
"""Of those that an array must have, when it is to be shown that there can be none such."""


class Exhausted(Exception):
    """The comparison has taken more steps than any that makes sense."""


class Row(NamedTuple):
    """A rule of reading: for which kinds of values a keyword says anything, and what speaks against it."""

    kinds: Kinds
    rule: Callable[[Comparison, Node, Written], list[Problem]]
    asks_others: bool = False
    """Its problems are those of other schemas about the same value, which have gone through all cases already."""


class Budget:
    """Steps that are left."""

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise Exhausted


class Comparison:
    """One reader and one writer. Remembers all answers; the same question is asked often."""

    def __init__(
        self,
        rows: Mapping[str, Row],
        linked: Mapping[Document, Linked],
        *,
        lenient: bool = False,
        budget: Budget | None = None,
    ) -> None:
        self._rows = rows
        self._linked = linked
        self._budget = budget or Budget()
        self.lenient = lenient
        # What is shown leniently must not serve to show that something cannot happen.
        self.strict = Comparison(rows, linked, budget=self._budget) if lenient else self
        self._likeness = Likeness(self._budget.spend)
        self._validators: dict[Node, Validator] = {}
        self._proofs = Proofs()
        self._values: dict[Written, list[Any] | None] = {}
        self._tags: dict[tuple[Node, str], Tag | None] = {}

    def problems(self, reader: Node, written: Written) -> tuple[Problem, ...]:
        """Why the reader could not take it; empty if it can. Raises `Exhausted`."""
        question = (meant(reader), written)
        if self._proofs.is_under_way(question):
            return () if self._proofs.may_assume(question, written.depth) else (circular(question[0]),)
        known_already: tuple[Problem, ...] | None = self._proofs.answer(question, written.depth)
        return self._answer(question) if known_already is None else known_already

    def proves(self, reader: Node, written: Written) -> bool:
        return not self.problems(reader, written)

    def proves_at_once(self, reader: Node, written: Written) -> bool:
        """By its rules alone: without going through the cases that the writer had, or asking whether there are any."""
        self._budget.spend(_steps(written))
        if self._is_alike(reader, written):
            return True
        return not any(self._direct(reader, written, asks_others=each) for each in (False, True))

    def alike(self, one: Node, other: Node) -> bool:
        """They say the same in the same words."""
        return self._likeness.alike(one, other)

    def tag(self, reader: Node, keyword: str) -> Tag | None:
        """What tells the branches of a choice apart."""
        if (reader, keyword) not in self._tags:
            self._tags[reader, keyword] = tag_of([known(each) for each in reader.keywords[keyword]], self.values)
        return self._tags[reader, keyword]

    def accepts(self, node: Node, value: Any) -> bool:
        """Whether one value conforms."""
        if node not in self._validators:
            self._budget.spend(_QUESTION_STEPS)
            self._validators[node] = self._linked[node.document].validator(node)
        self._budget.spend(1)
        return self._validators[node].is_valid(value)

    def spend(self, steps: int) -> None:
        """For work that is more than a question. Raises `Exhausted`."""
        self._budget.spend(steps)

    def fault(self, node: Node, value: Any) -> ValidationError:
        """Why one value that is not accepted does not conform."""
        return next(self._validators[node].iter_errors(value))

    # Questions

    def _answer(self, question: tuple[Node, Written]) -> tuple[Problem, ...]:
        self._budget.spend(_steps(question[1]))
        if self._proofs.level > LEVELS_MAX:
            return (too_deep(question[0]),)
        proof = self._proofs.begin(question, question[1].depth)
        found = self._decide(*question)
        self._proofs.end(proof, found, shown=not found)
        return found

    def _decide(self, reader: Node, written: Written) -> tuple[Problem, ...]:
        if self._is_alike(reader, written):
            return ()
        found = self._direct(reader, written, asks_others=True)
        if found and cases(written) is not None:
            return found
        found += self._direct(reader, written, asks_others=False)
        if not found:
            return ()
        possible = self.strict.possible_kinds(written)
        if possible != written.kinds:
            return self.problems(reader, written.of(possible))
        return () if self.strict.impossible(written) else self._case_by_case(reader, written, found)

    def _is_alike(self, reader: Node, written: Written) -> bool:
        """It conforms to the reader's own words, or cannot exist."""
        return not written.kinds or any(self._likeness.alike(reader, node) for node in written.conforms)

    def _direct(self, reader: Node, written: Written, *, asks_others: bool) -> tuple[Problem, ...]:
        """What one or the other sort of rules has against it."""
        if self.values(written) is not None and (written.words("enum") or written.words("const")):
            return () if asks_others else tuple(self._rows[EACH_VALUE].rule(self, reader, written))
        found: list[Problem] = []
        for keyword in reader.keywords:
            row = self._rows.get(keyword)
            if row is not None and row.asks_others is asks_others and row.kinds & written.kinds:
                found += row.rule(self, reader, written)
        return _different(found)

    def _case_by_case(self, reader: Node, written: Written, found: tuple[Problem, ...]) -> tuple[Problem, ...]:
        """Where not everything can be taken, perhaps each of the things that can be written can."""
        branches = cases(written)
        if branches is None:
            return found
        failures: list[Problem] = []
        for branch in branches:
            failures += self.problems(reader, branch)
            # One choice is explained in full; of choices within choices one failure is enough to know.
            if failures and written.settled:
                break
        return _different(failures)

    # Values

    def values(self, written: Written) -> list[Any] | None:
        """All values that it may be, where they can be named; else None."""
        if written not in self._values:
            named = candidates(written)
            self._values[written] = named and [value for value in named if self._may_be(written, value)]
        return self._values[written]

    def _may_be(self, written: Written, value: Any) -> bool:
        return (
            kind_of(value) in written.kinds
            and (not isinstance(value, dict) or written.present <= value.keys())
            and all(self.accepts(node, value) for node in written.conforms)
            and not any(self.accepts(node, value) for node in written.violates)
        )

    def impossible(self, written: Written) -> bool:
        """Nothing like this can have been written. Never said without proof, and never assumed."""
        if self._proofs.is_under_way(written) or self._proofs.level > LEVELS_MAX:
            return False
        known_already: bool | None = self._proofs.answer(written, written.depth)
        if known_already is not None:
            return known_already
        proof = self._proofs.begin(written, written.depth)
        found = self._is_impossible(written)
        self._proofs.end(proof, found, shown=found)
        return found

    def _is_impossible(self, written: Written) -> bool:
        self._budget.spend(_steps(written))
        values = self.values(written)
        if values is not None:
            return not values
        if not self.possible_kinds(written):
            return True
        if any(self.proves_at_once(node, written.unless_violating(node)) for node in written.violates):
            return True
        branches = cases(written)
        return branches is not None and all(self.impossible(branch) for branch in branches)

    def possible_kinds(self, written: Written) -> Kinds:
        """Those of its kinds of which it cannot be shown that there is no such value."""
        return frozenset(kind for kind in written.kinds if not self._no_such(kind, written))

    def _no_such(self, kind: Kind, written: Written) -> bool:
        match kind:
            case Kind.OBJECT:
                return ranges.properties(written).is_empty or any(
                    self.impossible(property_of(written, name)) for name in sorted(written.present)
                )
            case Kind.ARRAY:
                span = ranges.items(written)
                needed = range(min(span.least, _ITEMS_LOOKED_AT))
                return span.is_empty or any(self.impossible(item_of(written, place)) for place in needed)
            case Kind.STRING:
                return ranges.characters(written).is_empty
            case Kind.INTEGER | Kind.WHOLE | Kind.FRACTION:
                return ranges.no_number(written)
            case _:
                return False


def _different(found: list[Problem]) -> tuple[Problem, ...]:
    """Where definitions refer to each other, one problem is met on many ways."""
    return tuple(dict.fromkeys(found))[:PROBLEMS_MAX]


def _steps(written: Written) -> int:
    return _QUESTION_STEPS + len(written.conforms) + len(written.violates)
