"""What has been shown, and on which assumptions.

A proof may assume what it is to show, of parts of the value alone: values end somewhere. Three things could go wrong
with that, and are looked after here: an assumption about the value itself, which would show anything; a result that was
found of a part by assuming something of just that part, and is used again of the value itself; and whatever was shown
by an assumption that turns out wrong.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_NOWHERE: Final = -1


@dataclass(slots=True)
class Proof:
    """One that is under way."""

    question: Hashable
    depth: int
    """How deep in the value its own value lies."""
    before: int
    """How many results there were when it began."""
    floor: int = _NOWHERE
    """It rests on an assumption that holds only deeper than that."""
    is_assumed: bool = False


class _Result(NamedTuple):
    answer: Any
    floor: int


class Proofs:
    """Of one comparison."""

    def __init__(self) -> None:
        self._under_way: list[Proof] = []
        self._by_question: dict[Hashable, Proof] = {}
        self._results: dict[Hashable, _Result] = {}
        self._shown: list[Hashable] = []

    @property
    def level(self) -> int:
        """How many are under way, one for the sake of the other."""
        return len(self._under_way)

    def is_under_way(self, question: Hashable) -> bool:
        return question in self._by_question

    def may_assume(self, question: Hashable, depth: int) -> bool:
        """Of a question under way: whether it is asked about a part. Then whoever asks rests on it."""
        proof = self._by_question[question]
        if depth <= proof.depth:
            return False
        proof.is_assumed = True
        self._rest(depth, proof.depth)
        return True

    def answer(self, question: Hashable, depth: int) -> Any | None:
        """What was found before, if that holds at this depth."""
        result = self._results.get(question)
        if result is None or depth <= result.floor:
            return None
        self._rest(depth, result.floor)
        return result.answer

    def begin(self, question: Hashable, depth: int) -> Proof:
        proof = Proof(question, depth, len(self._shown))
        self._under_way.append(proof)
        self._by_question[question] = proof
        return proof

    def end(self, proof: Proof, answer: Any, *, shown: bool) -> None:
        """What was not shown was not shown in spite of all assumptions: that holds anywhere."""
        self._under_way.pop()
        del self._by_question[proof.question]
        self._results[proof.question] = _Result(answer, proof.floor if shown else _NOWHERE)
        if shown:
            self._shown.append(proof.question)
        elif proof.is_assumed:
            self._forget(proof.before)

    def _rest(self, depth: int, floor: int) -> None:
        """All that is being shown of the value at this depth rests on an assumption now."""
        for proof in reversed(self._under_way):
            if proof.depth < depth:
                return
            proof.floor = max(proof.floor, floor)

    def _forget(self, before: int) -> None:
        for question in self._shown[before:]:
            self._results.pop(question, None)
        del self._shown[before:]
