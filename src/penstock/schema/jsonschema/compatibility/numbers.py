"""Rules for numbers: bounds and multiples."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, KeywordRule
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import NUMBERS
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.ranges import Bound
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts
from penstock.schema.problems import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberBound:
    """The compatibility rule for one of the four keywords that bound numbers, such as `minimum`."""

    keyword: str
    kind: str
    from_below: bool
    excluded: bool = False
    """True for an exclusive bound: the limit itself is not allowed."""

    def __call__(self, _: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
        limit = reader.keywords[self.keyword]
        bound = ranges.lower(writer) if self.from_below else ranges.upper(writer)
        if bound is not None and self._keeps(bound, Fraction(limit)):
            return []
        return [problem(self._kind(bound), reader, self.keyword, writer, self._message(limit), fix=self._fix)]

    def _keeps(self, bound: Bound, limit: Fraction) -> bool:
        if bound.number == limit:
            return bound.excluded or not self.excluded
        return (bound.number > limit) is self.from_below

    def _kind(self, bound: Bound | None) -> str:
        moved = "INCREASED" if self.from_below else "DECREASED"
        return f"{self.kind}_{'ADDED' if bound is None else moved}"

    def _message(self, limit: float) -> str:
        beyond = f"{limit} or {'less' if self.from_below else 'more'}"
        within = f"{'less' if self.from_below else 'more'} than {limit}"
        return f"the writer may write {beyond if self.excluded else within}, the reader does not take that"

    @property
    def _fix(self) -> str:
        return f"{'lower' if self.from_below else 'raise'} the reader's {self.keyword}, or remove it"


def multiple_of(_: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    divisor = reader.keywords["multipleOf"]
    writer_multiple = ranges.multiple(writer)
    if writer_multiple is not None and (writer_multiple / ranges.step(divisor)).denominator == 1:
        return []
    kind = "MULTIPLE_OF_CHANGED" if writer.keyword_values("multipleOf") else "MULTIPLE_OF_ADDED"
    message = f"the writer may write numbers that are no multiples of {divisor}, the reader does not take them"
    return [problem(kind, reader, "multipleOf", writer, message, fix="use a divisor of the writer's, or remove it")]


RULES: Final = {
    "multipleOf": KeywordRule(NUMBERS, multiple_of),
} | {
    limit.keyword: KeywordRule(NUMBERS, limit)
    for limit in (
        NumberBound(keyword="minimum", kind="MINIMUM", from_below=True),
        NumberBound(keyword="exclusiveMinimum", kind="EXCLUSIVE_MINIMUM", from_below=True, excluded=True),
        NumberBound(keyword="maximum", kind="MAXIMUM", from_below=False),
        NumberBound(keyword="exclusiveMaximum", kind="EXCLUSIVE_MAXIMUM", from_below=False, excluded=True),
    )
}
