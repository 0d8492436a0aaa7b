"""Rules for what strings look like. Regular expressions are not compared: the same one, or one that all texts match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, Row
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ALL, STRINGS
from penstock.schema.jsonschema.model.patterns import matches_everything
from penstock.schema.jsonschema.model.text import quoted
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer.writer_facts import Written
from penstock.schema.problems import Problem


@dataclass(frozen=True, slots=True)
class TheSame:
    """What the reader relies on is what the writer keeps to."""

    keyword: str
    kind: str

    def __call__(self, _: Comparison, reader: Node, written: Written) -> list[Problem]:
        wanted, given = reader.keywords[self.keyword], written.words(self.keyword)
        if wanted in given:
            return []
        kind = f"{self.kind}_{'CHANGED' if given else 'ADDED'}"
        kept = f"keeps to {quoted(given[0])}" if given else f"keeps to no {self.keyword}"
        message = f"the reader relies on the {self.keyword} {quoted(wanted)}, the writer {kept}"
        return [problem(kind, reader, self.keyword, written, message, fix=f"remove the reader's {self.keyword}")]


_same_pattern: Final = TheSame("pattern", "PATTERN")


def pattern(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    if matches_everything(reader.document, reader.keywords["pattern"]):
        return []
    return _same_pattern(comparison, reader, written)


ROWS: Final = {
    "pattern": Row(STRINGS, pattern),
    "format": Row(ALL, TheSame("format", "FORMAT")),
    "contentEncoding": Row(STRINGS, TheSame("contentEncoding", "CONTENT_ENCODING")),
    "contentMediaType": Row(STRINGS, TheSame("contentMediaType", "CONTENT_MEDIA_TYPE")),
}
