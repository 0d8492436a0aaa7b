"""Keywords of all drafts, translated to the vocabulary of 2020-12, with nodes for schemas and kinds for types.

Keywords that demand nothing, because they are annotations, belong to another draft or hold for every value, are left
out; `format` and the content keywords stay, because readers rely on them even where they are not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.schema.jsonschema.model.drafts import Draft, Shape, subschema_keywords
from penstock.schema.jsonschema.model.kinds import kinds_of_type
from penstock.schema.jsonschema.model.tree import SchemaNode

Refer = Callable[[SchemaNode, str, str], SchemaNode]
"""A function that resolves a reference: the node it stands in, its keyword and its text; returns the target node."""

_SINCE: Final[dict[str, Draft]] = {
    "enum": Draft.D4,
    "const": Draft.D6,
    "multipleOf": Draft.D4,
    "minimum": Draft.D4,
    "maximum": Draft.D4,
    "exclusiveMinimum": Draft.D4,
    "exclusiveMaximum": Draft.D4,
    "minLength": Draft.D4,
    "maxLength": Draft.D4,
    "pattern": Draft.D4,
    "format": Draft.D4,
    "contentEncoding": Draft.D7,
    "contentMediaType": Draft.D7,
    "minItems": Draft.D4,
    "maxItems": Draft.D4,
    "uniqueItems": Draft.D4,
    "minContains": Draft.D2019,
    "maxContains": Draft.D2019,
    "minProperties": Draft.D4,
    "maxProperties": Draft.D4,
    "required": Draft.D4,
    "dependentRequired": Draft.D2019,
}
_REFERENCES: Final[dict[str, frozenset[Draft]]] = {
    "$ref": frozenset(Draft),
    "$recursiveRef": frozenset({Draft.D2019}),
    "$dynamicRef": frozenset({Draft.D2020}),
}
_NO_DEMANDS: Final = ("$defs", "definitions", "contentSchema")
_VACUOUS_IF_EMPTY: Final = (
    "minLength",
    "minItems",
    "minProperties",
    "uniqueItems",
    "required",
    "properties",
    "patternProperties",
    "dependentRequired",
    "dependentSchemas",
)


def translate_keywords(node: SchemaNode, refer: Refer) -> None:
    """Fill in `node.keywords`. All nodes of all documents must exist already and conform to their draft's meta-schema.
    Raises `InvalidSchema` for a reference that `refer` cannot resolve."""
    raw, draft = node.raw, node.document.draft
    if isinstance(raw, bool):
        node.keywords = {} if raw else {"false": True}
        return
    node.keywords = _references(node, raw, refer)
    if "$ref" in raw and draft.reference_stands_alone:
        return
    if "type" in raw:
        node.keywords["type"] = kinds_of_type(raw["type"], draft)
    node.keywords |= {keyword: raw[keyword] for keyword, since in _SINCE.items() if keyword in raw and since <= draft}
    node.keywords |= _schemas(node, raw)
    _translate(node)
    for keyword in _VACUOUS_IF_EMPTY:
        if not node.keywords.get(keyword, True):
            del node.keywords[keyword]


def in_place_subschemas(node: SchemaNode) -> list[SchemaNode]:
    """Return the schemas that apply to the same value as this one."""
    keywords = node.keywords
    subschemas = [
        *keywords.get("$ref", ()),
        *keywords.get("allOf", ()),
        *keywords.get("anyOf", ()),
        *keywords.get("oneOf", ()),
    ]
    subschemas += [keywords[keyword] for keyword in ("not", "if", "then", "else") if keyword in keywords]
    return subschemas + list(keywords.get("dependentSchemas", {}).values())


def _references(node: SchemaNode, raw: dict[str, Any], refer: Refer) -> dict[str, Any]:
    present = [keyword for keyword, drafts in _REFERENCES.items() if keyword in raw and node.document.draft in drafts]
    for keyword in present:
        if not isinstance(raw[keyword], str):  # draft 4's meta-schema does not require it
            raise node.refusal("a reference is a string", keyword)
    return {"$ref": [refer(node, keyword, raw[keyword]) for keyword in present]} if present else {}


def _schemas(node: SchemaNode, raw: dict[str, Any]) -> dict[str, Any]:
    return {
        keyword: _subschemas_under(node, keyword, shape, raw[keyword])
        for keyword, shape in subschema_keywords(raw, node.document.draft)
        if keyword not in _NO_DEMANDS
    }


def _subschemas_under(node: SchemaNode, keyword: str, shape: Shape, value: Any) -> Any:
    match shape:
        case Shape.MAP:
            return {name: node.child(keyword, name) for name in value}
        case Shape.MAP_OR_NAMES:
            return {
                name: member if isinstance(member, list) else node.child(keyword, name)
                for name, member in value.items()
            }
        case Shape.LIST | Shape.ONE_OR_LIST if isinstance(value, list):
            return [node.child(keyword, index) for index in range(len(value))]
        case _:
            return node.child(keyword)


def _translate(node: SchemaNode) -> None:
    """Translate the keywords of earlier drafts."""
    keywords = node.keywords
    _translate_items(node)
    for name, needed in keywords.pop("dependencies", {}).items():
        keyword = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        existing = keywords.get(keyword, {})
        if isinstance(needed, list):
            needed = [*existing.get(name, ()), *needed]
        elif name in existing:
            raise node.refusal(
                "it has schemas in both dependencies and dependentSchemas: say one", "dependencies", name
            )
        keywords[keyword] = existing | {name: needed}
        node.original_keywords[keyword] = "dependencies"
    for bound in ("minimum", "maximum"):
        _translate_bound(node, bound, f"exclusive{bound.title()}")
    if "contains" not in keywords:
        keywords.pop("minContains", None)
        keywords.pop("maxContains", None)
    if "if" not in keywords:
        keywords.pop("then", None)
        keywords.pop("else", None)


def _translate_items(node: SchemaNode) -> None:
    keywords = node.keywords
    rest = keywords.pop("additionalItems", None)
    if isinstance(keywords.get("items"), list):
        keywords["prefixItems"] = keywords.pop("items")
        node.original_keywords["prefixItems"] = "items"
        if rest is not None:
            keywords["items"] = rest
            node.original_keywords["items"] = "additionalItems"


def _translate_bound(node: SchemaNode, bound: str, exclusive: str) -> None:
    keywords = node.keywords
    is_exclusive = keywords.get(exclusive)
    if not isinstance(is_exclusive, bool):
        return
    del keywords[exclusive]
    if is_exclusive and bound in keywords:
        keywords[exclusive] = keywords.pop(bound)
        node.original_keywords[exclusive] = bound
