"""The parts of a value that a reader's schema evaluates for certain; the other parts are `unevaluated`."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.schema.jsonschema.compatibility.comparison import Comparison
from penstock.schema.jsonschema.model.patterns import matches
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts


class Evaluated:
    """The properties and items that other keywords evaluate, beside the `unevaluatedProperties` or `unevaluatedItems`
    of the reader's schema. They are found for values with the facts `writer`."""

    def __init__(self, comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> None:
        self._nodes = _holding_schemas(comparison, reader, writer)
        self._others = [node for node in self._nodes if node is not reader]

    def has(self, name: str) -> bool:
        """Return whether a property of this name is certainly evaluated."""
        return self.all_properties or any(_mentions(node, name) for node in self._nodes)

    @property
    def patterns(self) -> set[str]:
        return {pattern for node in self._nodes for pattern in node.keywords.get("patternProperties", ())}

    @property
    def all_properties(self) -> bool:
        return any("additionalProperties" in node.keywords for node in self._nodes) or any(
            "unevaluatedProperties" in node.keywords for node in self._others
        )

    @property
    def all_items(self) -> bool:
        return any("items" in node.keywords for node in self._nodes) or any(
            "unevaluatedItems" in node.keywords for node in self._others
        )

    @property
    def first_items(self) -> int:
        return max(len(node.keywords.get("prefixItems", ())) for node in self._nodes)


def _mentions(node: SchemaNode, name: str) -> bool:
    return name in node.keywords.get("properties", ()) or any(
        matches(node.document, pattern, name) for pattern in node.keywords.get("patternProperties", ())
    )


def _holding_schemas(comparison: Comparison, reader: SchemaNode, writer: WriterFacts) -> list[SchemaNode]:
    """Return the reader's schema and the schemas that certainly apply together with it: those that `$ref` and `allOf`
    demand, and the branches that take every value of the writer."""
    holding: dict[SchemaNode, None] = {}
    waiting = [reader]
    while waiting:
        node = waiting.pop()
        if node not in holding:
            holding[node] = None
            waiting += [*node.keywords.get("$ref", ()), *node.keywords.get("allOf", ())]
            waiting += _chosen(comparison.strict, node, writer)
    return list(holding)


def _chosen(comparison: Comparison, node: SchemaNode, writer: WriterFacts) -> Iterator[SchemaNode]:
    keyword_values = node.keywords
    for branch in (*keyword_values.get("anyOf", ()), *keyword_values.get("oneOf", ())):
        if comparison.proves(branch, writer):
            yield branch
    if "if" in keyword_values and comparison.proves(keyword_values["if"], writer):
        yield keyword_values["if"]
        if "then" in keyword_values:
            yield keyword_values["then"]
