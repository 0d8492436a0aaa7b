"""Schemas as a tree of nodes: every place in a document where a schema stands, whatever the draft calls that place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from jsonschema_rs import ReferencingError, ValidationError, Validator, meta

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema.model import text, uris
from penstock.schema.jsonschema.model.drafts import DEFAULT, Draft, Shape, draft_of, newest, places
from penstock.schema.problems import fragment

NODES_MAX: Final = 5_000
"""Of a schema with all that it refers to. The largest that people write have some thousands; these take a quarter of a
second to understand."""

_serials: Final = itertools.count()

Raw = dict[str, Any] | bool


@dataclass(slots=True, eq=False)
class Document:
    """One text: the schema itself, or another that it refers to."""

    name: str
    """What it is called in references; empty for the schema itself."""
    number: int
    raw: Raw
    draft: Draft = DEFAULT
    nodes: dict[str, Node] = field(default_factory=dict)
    """By their pointers."""
    resources: dict[str, Node] = field(default_factory=dict)
    """By the URIs that `$id` gives them, the document itself among them."""
    matchers: dict[str, Validator] = field(default_factory=dict)
    """Patterns that names have been held against, compiled."""

    @property
    def uri(self) -> str:
        """Its name for the validator: nothing that anybody could write, nothing that could be fetched."""
        return f"urn:penstock:{self.number}"

    def path(self, pointer: str) -> str:
        return f"{self.name}#{pointer}" if self.name else pointer

    def refusal(self, pointer: str, message: str) -> InvalidSchema:
        path = self.path(pointer)
        return InvalidSchema(f"{path}: {message}" if path else message, path=path)


@dataclass(slots=True, eq=False)
class Node:
    """One schema. The same place is the same node: nodes are compared by identity."""

    document: Document
    pointer: str
    raw: Raw
    base: str
    """The URI that relative references in it start from."""
    resource: Node | None = None
    """The schema with that URI, if it is not this one."""
    anchors: dict[str, Node] = field(default_factory=dict)
    """Of a resource: the schemas in it that have names of their own."""
    keywords: dict[str, Any] = field(default_factory=dict)
    """What it demands, in the words of the last draft, with nodes where schemas stand. See `keywords.py`."""
    places: dict[str, str] = field(default_factory=dict)
    """Where those words are not the ones in the text: what it says there."""
    serial: int = field(default_factory=lambda: next(_serials))

    @property
    def path(self) -> str:
        return self.document.path(self.pointer)

    def path_of(self, keyword: str, *tokens: str | int) -> str:
        return self.document.path(self.pointer + text.pointer([self.places.get(keyword, keyword), *tokens]))

    def refusal(self, message: str, *tokens: str | int) -> InvalidSchema:
        return self.document.refusal(self.pointer + text.pointer(tokens), message)

    def child(self, *tokens: str | int) -> Node:
        return self.document.nodes[self.pointer + text.pointer(tokens)]


def plant(name: str, number: int, source: str) -> Document:
    """A document with nodes for all schemas in it, none of them with keywords yet. Raises `InvalidSchema`."""
    try:
        raw = text.read(source)
    except InvalidSchema as error:
        raise InvalidSchema(f"{name}: {error.message}", **error.details) if name else error from None
    if isinstance(raw, dict) and "$schema" not in raw:
        return _planted_without_draft(name, number, raw)
    draft = draft_of(raw)
    document = Document(name, number, raw, draft or DEFAULT)
    if not isinstance(raw, (dict, bool)):
        raise document.refusal("", "a schema is an object or a boolean")
    if draft is None:
        raise document.refusal("/$schema", "it is none of draft-04, draft-06, draft-07, 2019-09 and 2020-12")
    return _planted(document)


def _planted(document: Document) -> Document:
    grow(Node(document, "", document.raw, document.name))
    return document


def _planted_without_draft(name: str, number: int, raw: dict[str, Any]) -> Document:
    """A document that names no draft: of the last one if that allows it, and else of draft 7, as other registries read
    it; or of 2019-09, if it has keywords that draft 7 has not.

    A schema that the last draft allows has always been read so, and keeps its meaning.
    """
    try:
        return _planted(Document(name, number, raw, DEFAULT))
    except InvalidSchema as error:
        refusal = error
    try:
        document = _planted(Document(name, number, raw, Draft.D7))
    except InvalidSchema:
        raise refusal from None
    needed = max(newest(node.raw) for node in document.nodes.values())
    if needed is DEFAULT:
        raise refusal
    return document if needed is Draft.D7 else _planted(Document(name, number, raw, needed))


def grow(start: Node) -> list[Node]:
    """A new node, and one for each schema in it. Raises `InvalidSchema` unless the draft's own schema allows it."""
    _check_meta(start)
    waiting, grown = [start], []
    while waiting:
        node = waiting.pop()
        node.document.nodes[node.pointer] = node
        _name(node)
        grown.append(node)
        for each in _within(node):
            waiting.append(each)
            if len(waiting) + len(node.document.nodes) > NODES_MAX:
                raise node.document.refusal("", f"it has more than {NODES_MAX} schemas in it")
    return grown


def _within(node: Node) -> Iterator[Node]:
    if isinstance(node.raw, bool):
        return
    resource, draft = node if node.resource is None else node.resource, node.document.draft
    for keyword, shape in places(node.raw, draft):
        for tokens, raw in _standing(keyword, shape, node.raw[keyword]):
            if isinstance(raw, (dict, bool)):
                within = Node(node.document, node.pointer + text.pointer(tokens), raw, node.base, resource)
                if keyword == "$defs" and draft < Draft.D2019:
                    _check_meta(within)  # the draft's own schema does not know the word, and looks at nothing below it
                yield within


def _standing(keyword: str, shape: Shape, value: Any) -> Iterable[tuple[tuple[str | int, ...], Any]]:
    """What stands under a keyword, and where. What is no schema there has been refused, or is a list of names."""
    if isinstance(value, dict) and shape in (Shape.MAP, Shape.MAP_OR_NAMES):
        return [((keyword, name), each) for name, each in value.items()]
    if isinstance(value, list) and shape in (Shape.LIST, Shape.ONE_OR_LIST):
        return [((keyword, place), each) for place, each in enumerate(value)]
    return [((keyword,), value)]


def _check_meta(node: Node) -> None:
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


def _name(node: Node) -> None:
    """Notes what the text calls this schema: a URI, which makes it a resource, or an anchor."""
    draft = node.document.draft
    raw = {} if isinstance(node.raw, bool) else node.raw
    if draft_of(raw, draft) is not draft:
        raise node.refusal("a schema within another is of the same draft", "$schema")
    if not ("$ref" in raw and draft.reference_stands_alone):
        uri, _, anchor = raw.get(draft.id_keyword, "").partition("#")
        if uri:
            node.base, node.resource = uris.resolve(node.base, uri), None
        if anchor:
            _anchor(node, anchor)
    if node.resource is None and node.document.resources.setdefault(node.base, node) is not node:
        raise node.refusal(f"two schemas are called {text.quoted(node.base)}", draft.id_keyword)
    if draft >= Draft.D2019:
        for name in {raw[keyword] for keyword in ("$anchor", "$dynamicAnchor") if keyword in raw}:
            _anchor(node, name)


def _anchor(node: Node, name: str) -> None:
    resource = node if node.resource is None else node.resource
    if resource.anchors.setdefault(name, node) is not node:
        raise node.refusal(f"two schemas have the anchor {text.quoted(name)}")
