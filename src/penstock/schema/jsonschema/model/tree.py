"""Documents as trees of nodes: one node for every position where a schema stands, in any draft."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from jsonschema_rs import ReferencingError, ValidationError, Validator, meta

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema.model import text, uris
from penstock.schema.jsonschema.model.drafts import DEFAULT, Draft, Shape, draft_of, minimum_draft, subschema_keywords
from penstock.schema.problems import fragment

NODES_MAX: Final = 5_000
"""Nodes of a schema with all that it refers to. The largest that people write have some thousands; this many take a
quarter of a second to parse."""

_serials: Final = itertools.count()

Raw = dict[str, Any] | bool


@dataclass(slots=True, eq=False)
class SchemaDocument:
    """A text: the schema itself, or a reference of it."""

    name: str
    """The name under which references use it; empty for the schema itself."""
    number: int
    raw: Raw
    draft: Draft = DEFAULT
    nodes: dict[str, SchemaNode] = field(default_factory=dict)
    """Nodes by their JSON pointers."""
    resources: dict[str, SchemaNode] = field(default_factory=dict)
    """Nodes by the URIs that `$id` gives them, the document's root among them."""
    matchers: dict[str, Validator] = field(default_factory=dict)
    """Compiled patterns that names were matched with."""

    @property
    def uri(self) -> str:
        """The URI under which the validator knows the document. It is made of the number alone, so that users cannot
        choose it, and it cannot be fetched."""
        return f"urn:penstock:{self.number}"

    def path(self, pointer: str) -> str:
        return f"{self.name}#{pointer}" if self.name else pointer

    def refusal(self, pointer: str, message: str) -> InvalidSchema:
        path = self.path(pointer)
        return InvalidSchema(f"{path}: {message}" if path else message, path=path)


@dataclass(slots=True, eq=False)
class SchemaNode:
    """A schema. Nodes are compared by identity: one position is one node."""

    document: SchemaDocument
    pointer: str
    raw: Raw
    base: str
    """The base URI of relative references in it."""
    resource: SchemaNode | None = None
    """The schema with that base URI, if it is not this one."""
    anchors: dict[str, SchemaNode] = field(default_factory=dict)
    """Schemas of this resource by anchor."""
    keywords: dict[str, Any] = field(default_factory=dict)
    """The keywords in the vocabulary of the last draft, with nodes where schemas stand. See `keywords.py`."""
    original_keywords: dict[str, str] = field(default_factory=dict)
    """The names that translated keywords have in the text, by their names in `keywords`, where the two differ."""
    serial: int = field(default_factory=lambda: next(_serials))

    @property
    def path(self) -> str:
        return self.document.path(self.pointer)

    def path_of(self, keyword: str, *tokens: str | int) -> str:
        return self.document.path(self.pointer + text.pointer([self.original_keywords.get(keyword, keyword), *tokens]))

    def refusal(self, message: str, *tokens: str | int) -> InvalidSchema:
        return self.document.refusal(self.pointer + text.pointer(tokens), message)

    def child(self, *tokens: str | int) -> SchemaNode:
        return self.document.nodes[self.pointer + text.pointer(tokens)]


def parse_document(name: str, number: int, source: str) -> SchemaDocument:
    """Return a document with nodes for all its schemas, still without keywords. Raises `InvalidSchema`."""
    try:
        raw = text.parse_json(source)
    except InvalidSchema as error:
        raise InvalidSchema(f"{name}: {error.message}", **error.details) if name else error from None
    if isinstance(raw, dict) and "$schema" not in raw:
        return _parse_without_draft(name, number, raw)
    draft = draft_of(raw)
    document = SchemaDocument(name, number, raw, draft or DEFAULT)
    if not isinstance(raw, (dict, bool)):
        raise document.refusal("", "a schema is an object or a boolean")
    if draft is None:
        raise document.refusal("/$schema", "it is none of draft-04, draft-06, draft-07, 2019-09 and 2020-12")
    return _build_nodes(document)


def _build_nodes(document: SchemaDocument) -> SchemaDocument:
    add_subschemas(SchemaNode(document, "", document.raw, document.name))
    return document


def _parse_without_draft(name: str, number: int, raw: dict[str, Any]) -> SchemaDocument:
    """Return a document that names no draft: of the last draft if that allows it, else of draft 7, as other registries
    do, or of 2019-09 if it has keywords that draft 7 lacks.

    A schema that the last draft allows was always parsed so, and keeps its meaning.
    """
    try:
        return _build_nodes(SchemaDocument(name, number, raw, DEFAULT))
    except InvalidSchema as error:
        refusal = error
    try:
        document = _build_nodes(SchemaDocument(name, number, raw, Draft.D7))
    except InvalidSchema:
        raise refusal from None
    needed = max(minimum_draft(node.raw) for node in document.nodes.values())
    if needed is DEFAULT:
        raise refusal
    return document if needed is Draft.D7 else _build_nodes(SchemaDocument(name, number, raw, needed))


def add_subschemas(start: SchemaNode) -> list[SchemaNode]:
    """Add a node and one for each schema in it; return them. Raises `InvalidSchema` unless the draft's meta-schema
    allows it."""
    _check_meta(start)
    waiting, discovered = [start], []
    while waiting:
        node = waiting.pop()
        node.document.nodes[node.pointer] = node
        _register_names(node)
        discovered.append(node)
        for child in _within(node):
            waiting.append(child)
            if len(waiting) + len(node.document.nodes) > NODES_MAX:
                raise node.document.refusal("", f"it has more than {NODES_MAX} schemas in it")
    return discovered


def _within(node: SchemaNode) -> Iterator[SchemaNode]:
    if isinstance(node.raw, bool):
        return
    resource, draft = node if node.resource is None else node.resource, node.document.draft
    for keyword, shape in subschema_keywords(node.raw, draft):
        for tokens, raw in _subschemas_under(keyword, shape, node.raw[keyword]):
            if isinstance(raw, (dict, bool)):
                within = SchemaNode(node.document, node.pointer + text.pointer(tokens), raw, node.base, resource)
                if keyword == "$defs" and draft < Draft.D2019:
                    _check_meta(within)  # the draft's meta-schema does not know `$defs`, and skips it
                yield within


def _subschemas_under(keyword: str, shape: Shape, value: Any) -> Iterable[tuple[tuple[str | int, ...], Any]]:
    """Return the values under a keyword with their paths. Some are not schemas: lists of names in `dependencies`."""
    if isinstance(value, dict) and shape in (Shape.MAP, Shape.MAP_OR_NAMES):
        return [((keyword, name), member) for name, member in value.items()]
    if isinstance(value, list) and shape in (Shape.LIST, Shape.ONE_OR_LIST):
        return [((keyword, index), member) for index, member in enumerate(value)]
    return [((keyword,), value)]


def _check_meta(node: SchemaNode) -> None:
    draft = node.document.draft
    raw = node.raw if isinstance(node.raw, bool) else node.raw | {"$schema": draft.uri}
    if isinstance(raw, bool) and draft is Draft.D4:
        raise node.refusal("in draft-04, a schema is an object")
    try:
        meta.validate(raw)
    except ValidationError as error:
        raise node.refusal(fragment(error.message), *error.instance_path) from None
    except (ValueError, ReferencingError) as error:
        raise node.refusal(fragment(str(error))) from None


def _register_names(node: SchemaNode) -> None:
    """Register the URI of a schema, which makes it a resource, or its anchors."""
    draft = node.document.draft
    raw = {} if isinstance(node.raw, bool) else node.raw
    if draft_of(raw, draft) is not draft:
        raise node.refusal("a schema within another is of the same draft", "$schema")
    if not ("$ref" in raw and draft.reference_stands_alone):
        uri, _, anchor = raw.get(draft.id_keyword, "").partition("#")
        if uri:
            node.base, node.resource = uris.resolve(node.base, uri), None
        if anchor:
            _register_anchor(node, anchor)
    if node.resource is None and node.document.resources.setdefault(node.base, node) is not node:
        raise node.refusal(f"two schemas are called {text.quoted(node.base)}", draft.id_keyword)
    if draft >= Draft.D2019:
        for name in {raw[keyword] for keyword in ("$anchor", "$dynamicAnchor") if keyword in raw}:
            _register_anchor(node, name)


def _register_anchor(node: SchemaNode, name: str) -> None:
    resource = node if node.resource is None else node.resource
    if resource.anchors.setdefault(name, node) is not node:
        raise node.refusal(f"two schemas have the anchor {text.quoted(name)}")
