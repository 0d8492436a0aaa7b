"""Rules for the contents of strings. Regular expressions are not compared: only the same one is accepted, or one that
matches all texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, KeywordRule
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ALL, STRINGS
from penstock.schema.jsonschema.model.patterns import matches_everything
from penstock.schema.jsonschema.model.text import quoted
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts
from penstock.schema.problems import Problem


@dataclass(frozen=True, slots=True)
class EqualValue:
    """The rule that the writer states the same value of a keyword as the reader."""

    keyword: str
    kind: str

    def __call__(self, _: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
        reader_value, writer_values = reader.keywords[self.keyword], writer.keyword_values(self.keyword)
        if reader_value in writer_values:
            return []
        kind = f"{self.kind}_{'CHANGED' if writer_values else 'ADDED'}"
        kept = f"keeps to {quoted(writer_values[0])}" if writer_values else f"keeps to no {self.keyword}"
        message = f"the reader relies on the {self.keyword} {quoted(reader_value)}, the writer {kept}"
        return [problem(kind, reader, self.keyword, writer, message, fix=f"remove the reader's {self.keyword}")]


_same_pattern: Final = EqualValue("pattern", "PATTERN")


def pattern(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    if matches_everything(reader.document, reader.keywords["pattern"]):
        return []
    return _same_pattern(comparison, reader, writer)


RULES: Final = {
    "pattern": KeywordRule(STRINGS, pattern),
    "format": KeywordRule(ALL, EqualValue("format", "FORMAT")),
    "contentEncoding": KeywordRule(STRINGS, EqualValue("contentEncoding", "CONTENT_ENCODING")),
    "contentMediaType": KeywordRule(STRINGS, EqualValue("contentMediaType", "CONTENT_MEDIA_TYPE")),
}
