"""Answers to the questions of a comparison, with the assumptions that they rest on, and the test of two schemas for
equal contents."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.schema.jsonschema.model.text import compact
from penstock.schema.jsonschema.model.tree import SchemaNode

_Pair = tuple[SchemaNode, SchemaNode]

_SETS: Final = ("dependentRequired", "enum", "required")
"""Keywords with lists whose order means nothing."""


class Likeness:
    """A test of two schemas for equal contents, with a cache of its answers. References may form cycles: two schemas
    are alike unless following both in the same way leads to a difference."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._known: dict[_Pair, bool] = {}

    def alike(self, one: SchemaNode, other: SchemaNode) -> bool:
        if (one, other) not in self._known:
            self._explore((one, other))
        return self._known[one, other]

    def _explore(self, start: _Pair) -> None:
        """Decide about a pair and cache the answers. All pairs that must be alike for these two to be alike are
        visited, until one is not."""
        came_from: dict[_Pair, _Pair | None] = {start: None}
        waiting = [start]
        while waiting:
            pair = waiting.pop()
            self._spend(1)
            below = None if self._known.get(pair) is False else _below(*pair)
            if below is None:
                self._refute(pair, came_from)
                return
            for required_pair in below:
                if required_pair not in came_from and not self._known.get(required_pair):
                    came_from[required_pair] = pair
                    waiting.append(required_pair)
        self._known |= dict.fromkeys(came_from, True)

    def _refute(self, pair: _Pair | None, came_from: dict[_Pair, _Pair | None]) -> None:
        """Record that a pair, and all pairs that led to it, are not alike."""
        while pair is not None:
            self._known[pair] = False
            pair = came_from[pair]


def _below(one: SchemaNode, other: SchemaNode) -> list[_Pair] | None:
    """Return the pairs of subschemas that must be alike for these two schemas to be alike; None if the two differ by
    themselves."""
    if one.keywords.keys() != other.keywords.keys():
        return None
    pairs: list[_Pair] = []
    for keyword, value in one.keywords.items():
        if not _match(keyword, value, other.keywords[keyword], pairs):
            return None
    return pairs


def _match(keyword: str, one: Any, other: Any, pairs: list[_Pair]) -> bool:
    if keyword == "const":
        return compact(one) == compact(other)
    if keyword in _SETS and isinstance(one, list) and isinstance(other, list):
        return set(map(compact, one)) == set(map(compact, other))
    if isinstance(one, SchemaNode) and isinstance(other, SchemaNode):
        pairs.append((one, other))
        return True
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_match, [keyword] * len(one), one, other, [pairs] * len(one)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_match(keyword, one[name], other[name], pairs) for name in one)
    return bool(one == other)


_NOWHERE: Final = -1


@dataclass(slots=True)
class Proof:
    """A proof under way."""

    question: Hashable
    depth: int
    """The depth of its value within the value that was compared first."""
    before: int
    """The number of results that were proved when it began."""
    floor: int = _NOWHERE
    """The depth of the assumption that the result rests on: the result holds only for values deeper than this. -1 if it
    rests on none."""
    is_assumed: bool = False


class _Result(NamedTuple):
    answer: Any
    floor: int


class Proofs:
    """The proofs and results of one comparison."""

    def __init__(self) -> None:
        self._under_way: list[Proof] = []
        self._by_question: dict[Hashable, Proof] = {}
        self._results: dict[Hashable, _Result] = {}
        self._shown: list[Hashable] = []

    @property
    def level(self) -> int:
        """The number of nested proofs under way."""
        return len(self._under_way)

    def is_under_way(self, question: Hashable) -> bool:
        return question in self._by_question

    def may_assume(self, question: Hashable, depth: int) -> bool:
        """Return whether a question that is being proved may be assumed to be true: it must be asked about a part of
        the value, so at a greater depth than before. If so, the proofs that ask rest on the assumption."""
        proof = self._by_question[question]
        if depth <= proof.depth:
            return False
        proof.is_assumed = True
        self._rely_on(depth, proof.depth)
        return True

    def answer(self, question: Hashable, depth: int) -> Any | None:
        """Return an earlier answer if it holds at this depth; else None. The proofs under way then rest on its
        assumption too."""
        result = self._results.get(question)
        if result is None or depth <= result.floor:
            return None
        self._rely_on(depth, result.floor)
        return result.answer

    def begin(self, question: Hashable, depth: int) -> Proof:
        proof = Proof(question, depth, len(self._shown))
        self._under_way.append(proof)
        self._by_question[question] = proof
        return proof

    def end(self, proof: Proof, answer: Any, *, shown: bool) -> None:
        """End a proof and store its answer. `shown`: the statement was proved.

        A proof that failed did so although it could use assumptions, so its answer holds at every depth. Results that
        were proved since it began are forgotten if any proof assumed its statement.
        """
        self._under_way.pop()
        del self._by_question[proof.question]
        self._results[proof.question] = _Result(answer, proof.floor if shown else _NOWHERE)
        if shown:
            self._shown.append(proof.question)
        elif proof.is_assumed:
            self._forget(proof.before)

    def _rely_on(self, depth: int, floor: int) -> None:
        """Record that all proofs under way at this depth of the value, or deeper, now rest on an assumption made at
        depth `floor`."""
        for proof in reversed(self._under_way):
            if proof.depth < depth:
                return
            proof.floor = max(proof.floor, floor)

    def _forget(self, before: int) -> None:
        for question in self._shown[before:]:
            self._results.pop(question, None)
        del self._shown[before:]
