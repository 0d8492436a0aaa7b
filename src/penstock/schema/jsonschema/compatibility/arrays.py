"""Rules for arrays: the first items, all others, what they contain, whether they differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.schema.jsonschema.compatibility.comparison import Comparison, Row
from penstock.schema.jsonschema.compatibility.evaluated import Evaluated
from penstock.schema.jsonschema.compatibility.problem_text import problem
from penstock.schema.jsonschema.model.kinds import ARRAYS
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer import ranges
from penstock.schema.jsonschema.writer.writer_facts import Written, horizon, item_of, known, never
from penstock.schema.problems import Problem


def first_items(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    found: list[Problem] = []
    for place, schema in enumerate(reader.keywords["prefixItems"]):
        if not _reaches(written, place):
            break
        item = item_of(written, place)
        problems = comparison.problems(schema, item)
        if problems and item.is_anything:
            message = f"the writer may write anything as item {place}, the reader has a schema for it"
            fix = f"have the reader take anything as item {place}"
            kind = "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"
            problems = (problem(kind, reader, "prefixItems", written, message, place, fix=fix),)
        found += problems
    return found


def items(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    return _rest(comparison, reader, "items", written, len(reader.keywords.get("prefixItems", ())))


def unevaluated_items(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    evaluated = Evaluated(comparison, reader, written)
    if evaluated.all_items:
        return []
    return _rest(comparison, reader, "unevaluatedItems", written, evaluated.first_items)


def unique_items(_: Comparison, reader: Node, written: Written) -> list[Problem]:
    most = ranges.items(written).most
    if any(written.words("uniqueItems")) or (most is not None and most <= 1):
        return []
    message = "the writer may write an item twice, the reader does not take that"
    return [problem("UNIQUE_ITEMS_ADDED", reader, "uniqueItems", written, message, fix="remove it from the reader")]


def contains(comparison: Comparison, reader: Node, written: Written) -> list[Problem]:
    given = written.words("contains")
    found: list[Problem] = []
    if not _contains_enough(comparison, reader, written):
        message = "it cannot be shown that what the writer writes contains what the reader wants"
        kind = f"CONTAINS_{'NARROWED' if given else 'ADDED'}"
        found.append(problem(kind, reader, "contains", written, message, fix="want less, or nothing, in the reader"))
    if "maxContains" in reader.keywords and not _contains_few(comparison, reader, written):
        message = f"the writer may write more than {reader.keywords['maxContains']} of what the reader counts"
        kind = f"MAX_CONTAINS_{'DECREASED' if written.words('maxContains') else 'ADDED'}"
        found.append(problem(kind, reader, "maxContains", written, message, fix="raise or remove maxContains"))
    return found


def _rest(comparison: Comparison, reader: Node, keyword: str, written: Written, start: int) -> list[Problem]:
    """All items from `start` on."""
    schema = reader.keywords[keyword]
    found: list[Problem] = []
    for place in _places(written, start):
        problems = comparison.problems(schema, item_of(written, place))
        if problems and never(schema):
            named = place < horizon(written)
            kind = "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL" if named else "ADDITIONAL_ITEMS_REMOVED"
            message = f"the writer may write item {place}, the reader takes {start} at most"
            problems = (problem(kind, reader, keyword, written, message, fix="let the reader take more items"),)
        found += problems
    return found


def _places(written: Written, start: int) -> Iterator[int]:
    """All from `start` on where something else may stand than at the one before."""
    for place in range(start, max(start, horizon(written)) + 1):
        if not _reaches(written, place):
            return
        yield place


def _reaches(written: Written, place: int) -> bool:
    most = ranges.items(written).most
    return most is None or place < most


def _contains_enough(comparison: Comparison, reader: Node, written: Written) -> bool:
    schema: Node = reader.keywords["contains"]
    wanted: int = reader.keywords.get("minContains", 1)
    if wanted == 0:
        return True
    for node in written.conforms:
        enough = "contains" in node.keywords and node.keywords.get("minContains", 1) >= wanted
        if enough and comparison.proves(schema, _contained(node.keywords["contains"], written)):
            return True
    least, alike_from = ranges.items(written).least, horizon(written)
    if least < wanted:
        return False
    fitting: int = sum(comparison.proves(schema, item_of(written, place)) for place in range(min(least, alike_from)))
    if least > alike_from and comparison.proves(schema, item_of(written, alike_from)):
        fitting += least - alike_from
    return fitting >= wanted


def _contains_few(comparison: Comparison, reader: Node, written: Written) -> bool:
    schema, limit = reader.keywords["contains"], reader.keywords["maxContains"]
    most = ranges.items(written).most
    if most is not None and most <= limit:
        return True
    return any(
        node.keywords.get("maxContains", limit + 1) <= limit
        and comparison.strict.proves(node.keywords["contains"], _contained(schema, written))
        for node in written.conforms
    )


def _contained(schema: Node, written: Written) -> Written:
    """An item that conforms to `schema`; where all are alike, more is known of it."""
    return item_of(written, 0).conforming(schema) if horizon(written) == 0 else known(schema, depth=written.depth + 1)


ROWS: Final = {
    "prefixItems": Row(ARRAYS, first_items),
    "items": Row(ARRAYS, items),
    "unevaluatedItems": Row(ARRAYS, unevaluated_items),
    "uniqueItems": Row(ARRAYS, unique_items),
    "contains": Row(ARRAYS, contains),
}
