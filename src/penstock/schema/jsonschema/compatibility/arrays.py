"""Rules for arrays: first items, other items, contained items, uniqueness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, KeywordRule
from penstock.schema.jsonschema.compatibility.evaluated import Evaluated
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ARRAYS
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts, facts_of, is_false, item_of, uniform_from
from penstock.schema.problems import Problem


def first_items(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    all_problems: list[Problem] = []
    for index, schema in enumerate(reader.keywords["prefixItems"]):
        if not _reaches(writer, index):
            break
        item = item_of(writer, index)
        problems = comparison.problems(schema, item)
        if problems and item.is_anything:
            message = f"the writer may write anything as item {index}, the reader has a schema for it"
            fix = f"have the reader take anything as item {index}"
            kind = "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"
            problems = (problem(kind, reader, "prefixItems", writer, message, index, fix=fix),)
        all_problems += problems
    return all_problems


def items(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    return _remaining_items(comparison, reader, "items", writer, len(reader.keywords.get("prefixItems", ())))


def unevaluated_items(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    evaluated = Evaluated(comparison, reader, writer)
    if evaluated.all_items:
        return []
    return _remaining_items(comparison, reader, "unevaluatedItems", writer, evaluated.first_items)


def unique_items(_: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    most = ranges.items(writer).most
    if any(writer.keyword_values("uniqueItems")) or (most is not None and most <= 1):
        return []
    message = "the writer may write an item twice, the reader does not take that"
    return [problem("UNIQUE_ITEMS_ADDED", reader, "uniqueItems", writer, message, fix="remove it from the reader")]


def contains(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[Problem]:
    writer_contains = writer.keyword_values("contains")
    problems: list[Problem] = []
    if not _contains_enough(comparison, reader, writer):
        message = "it cannot be shown that what the writer writes contains what the reader wants"
        kind = f"CONTAINS_{'NARROWED' if writer_contains else 'ADDED'}"
        problems.append(problem(kind, reader, "contains", writer, message, fix="want less, or nothing, in the reader"))
    if "maxContains" in reader.keywords and not _contains_few(comparison, reader, writer):
        message = f"the writer may write more than {reader.keywords['maxContains']} of what the reader counts"
        kind = f"MAX_CONTAINS_{'DECREASED' if writer.keyword_values('maxContains') else 'ADDED'}"
        problems.append(problem(kind, reader, "maxContains", writer, message, fix="raise or remove maxContains"))
    return problems


def _remaining_items(
    comparison: Comparison, reader: SchemaNode, keyword: str, writer: WriterFacts, start: int
) -> list[Problem]:
    """Return the problems of the items from the index `start` on, to which the reader's `keyword` applies (`items` or
    `unevaluatedItems`)."""
    schema = reader.keywords[keyword]
    all_problems: list[Problem] = []
    for index in _places(writer, start):
        problems = comparison.problems(schema, item_of(writer, index))
        if problems and is_false(schema):
            named = index < uniform_from(writer)
            kind = "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL" if named else "ADDITIONAL_ITEMS_REMOVED"
            message = f"the writer may write item {index}, the reader takes {start} at most"
            problems = (problem(kind, reader, keyword, writer, message, fix="let the reader take more items"),)
        all_problems += problems
    return all_problems


def _places(writer: WriterFacts, start: int) -> Iterator[int]:
    """Yield the indices from `start` on at which the writer's item schema may differ from the one before."""
    for index in range(start, max(start, uniform_from(writer)) + 1):
        if not _reaches(writer, index):
            return
        yield index


def _reaches(writer: WriterFacts, index: int) -> bool:
    most = ranges.items(writer).most
    return most is None or index < most


def _contains_enough(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> bool:
    schema: SchemaNode = reader.keywords["contains"]
    needed: int = reader.keywords.get("minContains", 1)
    if needed == 0:
        return True
    for node in writer.conforms:
        enough = "contains" in node.keywords and node.keywords.get("minContains", 1) >= needed
        if enough and comparison.proves(schema, _contained(node.keywords["contains"], writer)):
            return True
    least, alike_from = ranges.items(writer).least, uniform_from(writer)
    if least < needed:
        return False
    fitting: int = sum(comparison.proves(schema, item_of(writer, index)) for index in range(min(least, alike_from)))
    if least > alike_from and comparison.proves(schema, item_of(writer, alike_from)):
        fitting += least - alike_from
    return fitting >= needed


def _contains_few(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> bool:
    schema, limit = reader.keywords["contains"], reader.keywords["maxContains"]
    most = ranges.items(writer).most
    if most is not None and most <= limit:
        return True
    return any(
        node.keywords.get("maxContains", limit + 1) <= limit
        and comparison.strict.proves(node.keywords["contains"], _contained(schema, writer))
        for node in writer.conforms
    )


def _contained(schema: SchemaNode, writer: WriterFacts) -> WriterFacts:
    """Return the facts about one of the writer's items that conforms to `schema`. If all items have the same schema,
    that is among the facts too."""
    return (
        item_of(writer, 0).conforming(schema) if uniform_from(writer) == 0 else facts_of(schema, depth=writer.depth + 1)
    )


RULES: Final = {
    "prefixItems": KeywordRule(ARRAYS, first_items),
    "items": KeywordRule(ARRAYS, items),
    "unevaluatedItems": KeywordRule(ARRAYS, unevaluated_items),
    "uniqueItems": KeywordRule(ARRAYS, unique_items),
    "contains": KeywordRule(ARRAYS, contains),
}
