"""From text to schemas that are understood: every reference leads somewhere, every pattern is harmless, nothing goes in
circles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema.model import patterns
from penstock.schema.jsonschema.model.keywords import beside, understand
from penstock.schema.jsonschema.model.references import Library
from penstock.schema.jsonschema.model.tree import NODES_MAX, Document, Node, plant

EXPANSION_MAX: Final = 10_000
"""How many schemas may be asked about one value: each takes some ten nanoseconds, and twenty definitions that refer to
the next one twice make a million."""


def documents_of(text: str, references: Mapping[str, str]) -> list[Document]:
    """The schema, and the others that it refers to. Raises `InvalidSchema`."""
    documents: list[Document] = []
    for number, (name, source) in enumerate([("", text), *references.items()]):
        documents.append(plant(name, number, source))
        if sum(len(each.nodes) for each in documents) > NODES_MAX:
            raise InvalidSchema(f"with all it refers to, it has more than {NODES_MAX} schemas in it", limit=NODES_MAX)
    library = Library(documents)
    nodes = [node for document in documents for node in document.nodes.values()]
    for node in nodes:
        understand(node, library.refer)
        nodes += library.grown
        library.grown.clear()
    library.check_dynamic()
    _check_patterns(nodes)
    _check_expansion(nodes)
    return documents


def _check_patterns(nodes: list[Node]) -> None:
    found: dict[str, Node] = {}
    for node in nodes:
        found |= dict.fromkeys(node.keywords.get("patternProperties", ()), node)
        if "pattern" in node.keywords:
            found[node.keywords["pattern"]] = node
    patterns.check(found)


def _check_expansion(nodes: list[Node]) -> None:
    sizes: dict[Node, int] = {}
    for node in nodes:
        if node not in sizes:
            _measure(node, sizes)


def _measure(start: Node, sizes: dict[Node, int]) -> None:
    """How many schemas are asked about one value. Goes by a list: chains may be long."""
    trail, under_way = [start], set[Node]()
    while trail:
        node = trail[-1]
        if node in under_way or node in sizes:
            trail.pop()
            if node in under_way:
                under_way.remove(node)
                sizes[node] = _size(node, sizes)
            continue
        under_way.add(node)
        for each in beside(node):
            if each in under_way:
                raise each.refusal("it refers to itself without going any deeper into the value")
            trail.append(each)


def _size(node: Node, sizes: dict[Node, int]) -> int:
    size = 1 + sum(sizes[each] for each in beside(node))
    if size > EXPANSION_MAX:
        raise node.refusal(f"more than {EXPANSION_MAX} schemas would be asked about one value")
    return size
