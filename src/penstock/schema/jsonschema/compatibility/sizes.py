"""Rules for counts: characters of a string, items of an array, properties of an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, KeywordRule
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ARRAYS, OBJECTS, STRINGS
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.ranges import Span
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts
from penstock.schema.problems import Problem


@dataclass(frozen=True, slots=True)
class MinimumCount:
    keyword: str
    kind: str
    counted: str
    span: Callable[[WriterFacts], Span]

    def __call__(self, _: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
        limit, count = reader.keywords[self.keyword], self.span(writer).least
        if count >= limit:
            return []
        kind = f"{self.kind}_{'INCREASED' if writer.keyword_values(self.keyword) else 'ADDED'}"
        message = f"the writer may write {count} {self.counted}, the reader wants at least {limit}"
        fix = f"lower the reader's {self.keyword} to {count}"
        return [problem(kind, reader, self.keyword, writer, message, fix=fix)]


@dataclass(frozen=True, slots=True)
class MaximumCount:
    keyword: str
    kind: str
    counted: str
    span: Callable[[WriterFacts], Span]

    def __call__(self, _: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
        limit, count = reader.keywords[self.keyword], self.span(writer).most
        if count is not None and count <= limit:
            return []
        kind = f"{self.kind}_{'DECREASED' if writer.keyword_values(self.keyword) else 'ADDED'}"
        many = "any number of" if count is None else f"{count}"
        message = f"the writer may write {many} {self.counted}, the reader takes at most {limit}"
        fix = (
            f"remove the reader's {self.keyword}" if count is None else f"raise the reader's {self.keyword} to {count}"
        )
        return [problem(kind, reader, self.keyword, writer, message, fix=fix)]


RULES: Final = {
    "minLength": KeywordRule(STRINGS, MinimumCount("minLength", "MIN_LENGTH", "characters", ranges.characters)),
    "maxLength": KeywordRule(STRINGS, MaximumCount("maxLength", "MAX_LENGTH", "characters", ranges.characters)),
    "minItems": KeywordRule(ARRAYS, MinimumCount("minItems", "MIN_ITEMS", "items", ranges.items)),
    "maxItems": KeywordRule(ARRAYS, MaximumCount("maxItems", "MAX_ITEMS", "items", ranges.items)),
    "minProperties": KeywordRule(
        OBJECTS, MinimumCount("minProperties", "MIN_PROPERTIES", "properties", ranges.properties)
    ),
    "maxProperties": KeywordRule(
        OBJECTS, MaximumCount("maxProperties", "MAX_PROPERTIES", "properties", ranges.properties)
    ),
}
