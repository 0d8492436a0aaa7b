"""What a schema demands, in one vocabulary for all drafts: that of 2020-12, with nodes for schemas, kinds for types.

Keywords that demand nothing, because they are annotations, belong to another draft, or hold for every value, are left
out; `format` and its like stay, because readers rely on them, also on those that are not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.schema.jsonschema.model.drafts import Draft, Shape, places
from penstock.schema.jsonschema.model.kinds import kinds_of_type
from penstock.schema.jsonschema.model.tree import Node

Refer = Callable[[Node, str, str], Node]
"""The node that a reference means: in which node it stands, under which keyword, and what it says."""

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


def understand(node: Node, refer: Refer) -> None:
    """Fills in its keywords. All nodes of all documents are there, and keep to their draft's own schema."""
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


def beside(node: Node) -> list[Node]:
    """The schemas that are asked about the same value as this one."""
    words = node.keywords
    found = [*words.get("$ref", ()), *words.get("allOf", ()), *words.get("anyOf", ()), *words.get("oneOf", ())]
    found += [words[keyword] for keyword in ("not", "if", "then", "else") if keyword in words]
    return found + list(words.get("dependentSchemas", {}).values())


def _references(node: Node, raw: dict[str, Any], refer: Refer) -> dict[str, Any]:
    spoken = [keyword for keyword, drafts in _REFERENCES.items() if keyword in raw and node.document.draft in drafts]
    for keyword in spoken:
        if not isinstance(raw[keyword], str):  # draft 4 forgets to say so
            raise node.refusal("a reference is a string", keyword)
    return {"$ref": [refer(node, keyword, raw[keyword]) for keyword in spoken]} if spoken else {}


def _schemas(node: Node, raw: dict[str, Any]) -> dict[str, Any]:
    return {
        keyword: _standing(node, keyword, shape, raw[keyword])
        for keyword, shape in places(raw, node.document.draft)
        if keyword not in _NO_DEMANDS
    }


def _standing(node: Node, keyword: str, shape: Shape, value: Any) -> Any:
    match shape:
        case Shape.MAP:
            return {name: node.child(keyword, name) for name in value}
        case Shape.MAP_OR_NAMES:
            return {name: each if isinstance(each, list) else node.child(keyword, name) for name, each in value.items()}
        case Shape.LIST | Shape.ONE_OR_LIST if isinstance(value, list):
            return [node.child(keyword, place) for place in range(len(value))]
        case _:
            return node.child(keyword)


def _translate(node: Node) -> None:
    """What earlier drafts said in other words."""
    words = node.keywords
    _translate_items(node)
    for name, needed in words.pop("dependencies", {}).items():
        keyword = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        said = words.get(keyword, {})
        if isinstance(needed, list):
            needed = [*said.get(name, ()), *needed]
        elif name in said:
            raise node.refusal(
                "it has schemas in both dependencies and dependentSchemas: say one", "dependencies", name
            )
        words[keyword] = said | {name: needed}
        node.places[keyword] = "dependencies"
    for bound in ("minimum", "maximum"):
        _translate_bound(node, bound, f"exclusive{bound.title()}")
    if "contains" not in words:
        words.pop("minContains", None)
        words.pop("maxContains", None)
    if "if" not in words:
        words.pop("then", None)
        words.pop("else", None)


def _translate_items(node: Node) -> None:
    words = node.keywords
    rest = words.pop("additionalItems", None)
    if isinstance(words.get("items"), list):
        words["prefixItems"] = words.pop("items")
        node.places["prefixItems"] = "items"
        if rest is not None:
            words["items"] = rest
            node.places["items"] = "additionalItems"


def _translate_bound(node: Node, bound: str, exclusive: str) -> None:
    words = node.keywords
    said = words.get(exclusive)
    if not isinstance(said, bool):
        return
    del words[exclusive]
    if said and bound in words:
        words[exclusive] = words.pop(bound)
        node.places[exclusive] = bound
