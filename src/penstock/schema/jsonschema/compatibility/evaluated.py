"""Which parts of a value a reader's schema looks at for certain: the others are `unevaluated`."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.schema.jsonschema.compatibility.comparison import Comparison
from penstock.schema.jsonschema.model.patterns import matches
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer.writer_facts import Written


class Evaluated:
    """By a schema whose `unevaluatedProperties` or `unevaluatedItems` want to know."""

    def __init__(self, comparison: Comparison, reader: Node, written: Written) -> None:
        self._nodes = _holding(comparison, reader, written)
        self._others = [node for node in self._nodes if node is not reader]

    def has(self, name: str) -> bool:
        """A property of this name is looked at."""
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


def _mentions(node: Node, name: str) -> bool:
    return name in node.keywords.get("properties", ()) or any(
        matches(node.document, pattern, name) for pattern in node.keywords.get("patternProperties", ())
    )


def _holding(comparison: Comparison, reader: Node, written: Written) -> list[Node]:
    """The reader, and what is known to hold with it: what it demands, and those of its choices that take everything."""
    found: dict[Node, None] = {}
    waiting = [reader]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting += [*node.keywords.get("$ref", ()), *node.keywords.get("allOf", ())]
            waiting += _chosen(comparison.strict, node, written)
    return list(found)


def _chosen(comparison: Comparison, node: Node, written: Written) -> Iterator[Node]:
    words = node.keywords
    for branch in (*words.get("anyOf", ()), *words.get("oneOf", ())):
        if comparison.proves(branch, written):
            yield branch
    if "if" in words and comparison.proves(words["if"], written):
        yield words["if"]
        if "then" in words:
            yield words["then"]
