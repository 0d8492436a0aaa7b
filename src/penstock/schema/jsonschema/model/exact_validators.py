"""Validators by jsonschema_rs: every reference is replaced by its resolved address, so that the library has nothing
left to resolve in its own way, or to fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from jsonschema_rs import ReferencingError, Registry, ValidationError, Validator, validator_for

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema.model import text, uris
from penstock.schema.jsonschema.model.drafts import VALUES
from penstock.schema.jsonschema.model.patterns import ENGINE
from penstock.schema.jsonschema.model.string_formats import CHECKS
from penstock.schema.jsonschema.model.tree import SchemaDocument, SchemaNode
from penstock.schema.problems import fragment

_OMITTED_KEYWORDS: Final = frozenset(
    {
        # Names and references are resolved already.
        "$schema",
        "id",
        "$id",
        "$anchor",
        "$dynamicAnchor",
        "$recursiveAnchor",
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        # Annotations, which the validator would enforce in earlier drafts.
        "contentEncoding",
        "contentMediaType",
    }
)

MASK: Final = "the value"
"""The text that replaces the value in messages: a value may be large, and may be private."""


class ExactValidators:
    """A factory of validators for the schemas in some documents."""

    def __init__(self, documents: Sequence[SchemaDocument]) -> None:
        """Raise `InvalidSchema` for a document that the validator does not take."""
        try:
            self._registry = Registry([(document.uri, _resolved_document(document)) for document in documents])
        except (ValueError, ReferencingError) as error:
            raise InvalidSchema(fragment(str(error))) from None

    def validator(self, node: SchemaNode) -> Validator:
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


def _address(node: SchemaNode) -> str:
    return f"{node.document.uri}#{uris.escaped(node.pointer)}"


def _resolved_document(document: SchemaDocument) -> dict[str, Any]:
    resolved = _resolved(document, "", document.raw)
    if isinstance(resolved, bool):
        resolved = {} if resolved else {"not": {}}
    return {"$schema": document.draft.uri, **resolved}


def _resolved(document: SchemaDocument, pointer: str, raw: Any) -> Any:
    if isinstance(raw, list):
        return [_resolved(document, pointer + text.pointer([index]), each) for index, each in enumerate(raw)]
    if not isinstance(raw, dict):
        return raw
    node = document.nodes.get(pointer)
    if node is None:
        return {name: _resolved(document, pointer + text.pointer([name]), each) for name, each in raw.items()}
    resolved = {
        name: each if name in VALUES else _resolved(document, pointer + text.pointer([name]), each)
        for name, each in raw.items()
        if name not in _OMITTED_KEYWORDS and (name != "format" or each in CHECKS)
    }
    return _with_references(resolved, node)


def _with_references(resolved: dict[str, Any], node: SchemaNode) -> dict[str, Any]:
    addresses = [_address(target) for target in node.keywords.get("$ref", ())]
    if addresses:
        resolved["$ref"] = addresses[0]
    if len(addresses) > 1:
        resolved["allOf"] = [*resolved.get("allOf", ()), *({"$ref": address} for address in addresses[1:])]
    return resolved
