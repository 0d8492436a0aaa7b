"""The parser from texts to linked documents: every reference resolves, every pattern is harmless, and no schema is its
own in-place subschema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema.model import patterns
from penstock.schema.jsonschema.model.keywords import in_place_subschemas, translate_keywords
from penstock.schema.jsonschema.model.references import DocumentLibrary
from penstock.schema.jsonschema.model.tree import NODES_MAX, SchemaDocument, SchemaNode, parse_document

EXPANSION_MAX: Final = 10_000
"""Schemas that may be applied to one value, those reached in several ways counted each time. Twenty definitions that
each refer to the next one twice make a million, and each takes some ten nanoseconds."""


def documents_of(text: str, references: Mapping[str, str]) -> list[SchemaDocument]:
    """Return the document of the schema and those of its references. Raises `InvalidSchema`."""
    documents: list[SchemaDocument] = []
    for number, (name, source) in enumerate([("", text), *references.items()]):
        documents.append(parse_document(name, number, source))
        if sum(len(parsed.nodes) for parsed in documents) > NODES_MAX:
            raise InvalidSchema(f"with all it refers to, it has more than {NODES_MAX} schemas in it", limit=NODES_MAX)
    library = DocumentLibrary(documents)
    nodes = [node for document in documents for node in document.nodes.values()]
    for node in nodes:
        translate_keywords(node, library.refer)
        nodes += library.discovered
        library.discovered.clear()
    library.check_dynamic()
    _check_patterns(nodes)
    _check_expansion(nodes)
    return documents


def _check_patterns(nodes: list[SchemaNode]) -> None:
    pattern_nodes: dict[str, SchemaNode] = {}
    for node in nodes:
        pattern_nodes |= dict.fromkeys(node.keywords.get("patternProperties", ()), node)
        if "pattern" in node.keywords:
            pattern_nodes[node.keywords["pattern"]] = node
    patterns.check(pattern_nodes)


def _check_expansion(nodes: list[SchemaNode]) -> None:
    sizes: dict[SchemaNode, int] = {}
    for node in nodes:
        if node not in sizes:
            _measure(node, sizes)


def _measure(start: SchemaNode, sizes: dict[SchemaNode, int]) -> None:
    """Count, for `start` and all schemas that it applies, the schemas that are applied to one value, into `sizes`.
    Raises `InvalidSchema` for a schema that refers to itself without going deeper into the value. Iterative, because
    chains may be long."""
    trail, under_way = [start], set[SchemaNode]()
    while trail:
        node = trail[-1]
        if node in under_way or node in sizes:
            trail.pop()
            if node in under_way:
                under_way.remove(node)
                sizes[node] = _size(node, sizes)
            continue
        under_way.add(node)
        for subschema in in_place_subschemas(node):
            if subschema in under_way:
                raise subschema.refusal("it refers to itself without going any deeper into the value")
            trail.append(subschema)


def _size(node: SchemaNode, sizes: dict[SchemaNode, int]) -> int:
    size = 1 + sum(sizes[subschema] for subschema in in_place_subschemas(node))
    if size > EXPANSION_MAX:
        raise node.refusal(f"more than {EXPANSION_MAX} schemas would be asked about one value")
    return size
