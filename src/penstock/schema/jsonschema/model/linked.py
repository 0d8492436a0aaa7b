"""Schemas as the validator gets them: every reference says where it leads, so that nothing is left to resolve otherwise
than we did, or to fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from jsonschema_rs import ReferencingError, Registry, ValidationError, Validator, validator_for

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema.model import text, uris
from penstock.schema.jsonschema.model.drafts import VALUES
from penstock.schema.jsonschema.model.patterns import ENGINE
from penstock.schema.jsonschema.model.string_formats import CHECKS
from penstock.schema.jsonschema.model.tree import Document, Node
from penstock.schema.problems import fragment

_LEFT_OUT: Final = frozenset(
    {
        # Names have done their work.
        "$schema",
        "id",
        "$id",
        "$anchor",
        "$dynamicAnchor",
        "$recursiveAnchor",
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        # Annotations; the validator would have them checked in earlier drafts.
        "contentEncoding",
        "contentMediaType",
    }
)

MASK: Final = "the value"
"""What stands in its messages in place of the value: that may be large, and is nobody's business."""


class Linked:
    """Makes validators for any schema of some documents."""

    def __init__(self, documents: Sequence[Document]) -> None:
        """Raises `InvalidSchema` for what the validator does not take."""
        try:
            self._registry = Registry([(each.uri, _linked_document(each)) for each in documents])
        except (ValueError, ReferencingError) as error:
            raise InvalidSchema(fragment(str(error))) from None

    def validator(self, node: Node) -> Validator:
        schema = {"$ref": _address(node)}
        try:
            return validator_for(
                schema,
                registry=self._registry,
                validate_formats=True,
                formats=CHECKS,
                pattern_options=ENGINE,
                mask=MASK,
                offline=True,
            )
        except (ValidationError, ValueError, ReferencingError) as error:
            raise InvalidSchema(fragment(str(error))) from None


def _address(node: Node) -> str:
    return f"{node.document.uri}#{uris.escaped(node.pointer)}"


def _linked_document(document: Document) -> dict[str, Any]:
    linked = _linked(document, "", document.raw)
    if isinstance(linked, bool):
        linked = {} if linked else {"not": {}}
    return {"$schema": document.draft.uri, **linked}


def _linked(document: Document, pointer: str, raw: Any) -> Any:
    if isinstance(raw, list):
        return [_linked(document, pointer + text.pointer([place]), each) for place, each in enumerate(raw)]
    if not isinstance(raw, dict):
        return raw
    node = document.nodes.get(pointer)
    if node is None:
        return {name: _linked(document, pointer + text.pointer([name]), each) for name, each in raw.items()}
    linked = {
        name: each if name in VALUES else _linked(document, pointer + text.pointer([name]), each)
        for name, each in raw.items()
        if name not in _LEFT_OUT and (name != "format" or each in CHECKS)
    }
    return _with_references(linked, node)


def _with_references(linked: dict[str, Any], node: Node) -> dict[str, Any]:
    addresses = [_address(target) for target in node.keywords.get("$ref", ())]
    if addresses:
        linked["$ref"] = addresses[0]
    if len(addresses) > 1:
        linked["allOf"] = [*linked.get("allOf", ()), *({"$ref": each} for each in addresses[1:])]
    return linked
