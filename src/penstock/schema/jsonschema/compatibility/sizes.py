"""Rules for how many: characters of a string, items of an array, properties of an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, Row
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ARRAYS, OBJECTS, STRINGS
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.ranges import Span
from penstock.schema.jsonschema.writer.writer_facts import Written
from penstock.schema.problems import Problem


@dataclass(frozen=True, slots=True)
class AtLeast:
    keyword: str
    kind: str
    counted: str
    span: Callable[[Written], Span]

    def __call__(self, _: Comparison, reader: Node, written: Written) -> list[Problem]:
        wanted, given = reader.keywords[self.keyword], self.span(written).least
        if given >= wanted:
            return []
        kind = f"{self.kind}_{'INCREASED' if written.words(self.keyword) else 'ADDED'}"
        message = f"the writer may write {given} {self.counted}, the reader wants at least {wanted}"
        fix = f"lower the reader's {self.keyword} to {given}"
        return [problem(kind, reader, self.keyword, written, message, fix=fix)]


@dataclass(frozen=True, slots=True)
class AtMost:
    keyword: str
    kind: str
    counted: str
    span: Callable[[Written], Span]

    def __call__(self, _: Comparison, reader: Node, written: Written) -> list[Problem]:
        wanted, given = reader.keywords[self.keyword], self.span(written).most
        if given is not None and given <= wanted:
            return []
        kind = f"{self.kind}_{'DECREASED' if written.words(self.keyword) else 'ADDED'}"
        many = "any number of" if given is None else f"{given}"
        message = f"the writer may write {many} {self.counted}, the reader takes at most {wanted}"
        fix = (
            f"remove the reader's {self.keyword}" if given is None else f"raise the reader's {self.keyword} to {given}"
        )
        return [problem(kind, reader, self.keyword, written, message, fix=fix)]


ROWS: Final = {
    "minLength": Row(STRINGS, AtLeast("minLength", "MIN_LENGTH", "characters", ranges.characters)),
    "maxLength": Row(STRINGS, AtMost("maxLength", "MAX_LENGTH", "characters", ranges.characters)),
    "minItems": Row(ARRAYS, AtLeast("minItems", "MIN_ITEMS", "items", ranges.items)),
    "maxItems": Row(ARRAYS, AtMost("maxItems", "MAX_ITEMS", "items", ranges.items)),
    "minProperties": Row(OBJECTS, AtLeast("minProperties", "MIN_PROPERTIES", "properties", ranges.properties)),
    "maxProperties": Row(OBJECTS, AtMost("maxProperties", "MAX_PROPERTIES", "properties", ranges.properties)),
}
