"""Resolution of `$ref` and its relatives to a schema in the same document or in another registered one. Nothing is
fetched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from penstock.schema.jsonschema.model import text, uris
from penstock.schema.jsonschema.model.drafts import VALUES
from penstock.schema.jsonschema.model.tree import SchemaDocument, SchemaNode, add_subschemas

_INDEX: Final = re.compile("0|[1-9][0-9]{0,6}")
"""An index in a list: no allowed text has ten million items."""

_DYNAMIC: Final = {"$dynamicRef": "$dynamicAnchor", "$recursiveRef": "$recursiveAnchor"}


class DocumentLibrary:
    """The documents of one schema, its own first. The library also collects dynamic references, whose target may depend
    on the schema that refers."""

    def __init__(self, documents: Sequence[SchemaDocument]) -> None:
        self.documents = documents
        self.discovered: list[SchemaNode] = []
        """Schemas at positions where none was expected until a reference led there."""
        self._dynamic: list[tuple[SchemaNode, str, Any]] = []

    def refer(self, node: SchemaNode, keyword: str, reference: str) -> SchemaNode:
        """Return the schema that a reference means. Raises `InvalidSchema` if there is none."""
        uri, _, fragment = reference.partition("#")
        resource = self._resource(node, uri)
        if resource is None:
            raise node.refusal(f"the reference {text.quoted(reference)} is not registered", keyword)
        target = self._within(resource, uris.unescaped(fragment))
        if target is None:
            raise node.refusal(f"the reference {text.quoted(reference)} leads to no schema", keyword)
        if keyword in _DYNAMIC:
            self._dynamic.append((node, keyword, fragment or True))
        return target

    def check_dynamic(self) -> None:
        """Raise `InvalidSchema` for a dynamic reference if several schemas have its anchor. Its target would then
        depend on the outermost schema, which is not supported."""
        if not self._dynamic:
            return
        nodes = (node for document in self.documents for node in document.nodes.values())
        named = Counter(
            (keyword, node.raw[keyword])
            for node in nodes
            for keyword in _DYNAMIC.values()
            if isinstance(node.raw, dict) and keyword in node.raw
        )
        for node, keyword, name in self._dynamic:
            if named[_DYNAMIC[keyword], name] > 1:
                raise node.refusal("what it means depends on who refers here: this is not supported", keyword)

    def _resource(self, node: SchemaNode, uri: str) -> SchemaNode | None:
        if not uri:
            return node if node.resource is None else node.resource
        dereferenced = uris.resolve(node.base, uri)
        if dereferenced in node.document.resources:
            return node.document.resources[dereferenced]
        others = {document.name: document.nodes[""] for document in self.documents[1:]}
        return others.get(uri) or others.get(dereferenced)

    def _within(self, resource: SchemaNode, name: str | None) -> SchemaNode | None:
        if not name:
            return None if name is None else resource
        return self._at(resource, name) if name.startswith("/") else resource.anchors.get(name)

    def _at(self, resource: SchemaNode, pointer: str) -> SchemaNode | None:
        document = resource.document
        raw: Any = resource.raw
        holder, path = resource, resource.pointer
        for token in pointer[1:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            holder = document.nodes.get(path, holder)
            if path in document.nodes and name in VALUES:
                return None
            raw, path = _step(raw, name), path + text.pointer([name])
        if path not in document.nodes and isinstance(raw, (dict, bool)):
            self.discovered += add_subschemas(SchemaNode(document, path, raw, holder.base, holder.resource or holder))
        return document.nodes.get(path)


def _step(raw: Any, name: str) -> Any:
    if isinstance(raw, dict):
        return raw.get(name)
    if isinstance(raw, list) and _INDEX.fullmatch(name) and int(name) < len(raw):
        return raw[int(name)]
    return None
