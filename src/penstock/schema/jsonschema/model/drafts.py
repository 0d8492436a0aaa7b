"""The drafts of JSON Schema: their names, and the keywords that contain schemas."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final


class Draft(IntEnum):
    """A draft; ordered by age."""

    D4 = 4
    D6 = 6
    D7 = 7
    D2019 = 2019
    D2020 = 2020

    @property
    def uri(self) -> str:
        return _URIS[self]

    @property
    def id_keyword(self) -> str:
        return "id" if self is Draft.D4 else "$id"

    @property
    def reference_stands_alone(self) -> bool:
        """True where keywords beside a `$ref` are ignored."""
        return self <= Draft.D7


_URIS: Final = {
    Draft.D4: "http://json-schema.org/draft-04/schema#",
    Draft.D6: "http://json-schema.org/draft-06/schema#",
    Draft.D7: "http://json-schema.org/draft-07/schema#",
    Draft.D2019: "https://json-schema.org/draft/2019-09/schema",
    Draft.D2020: "https://json-schema.org/draft/2020-12/schema",
}
_NAMED: Final = re.compile(r"https?://json-schema\.org/(.{8,13})/schema#?")
_NAMES: Final = {
    uri.split("json-schema.org/")[1].removesuffix("#").removesuffix("/schema"): draft for draft, uri in _URIS.items()
}

DEFAULT: Final = Draft.D2020


def draft_of(raw: Any, default: Draft = DEFAULT) -> Draft | None:
    """Return the draft that `$schema` names: `default` if there is no `$schema`, None if it names none of the five
    drafts."""
    if not isinstance(raw, dict) or "$schema" not in raw:
        return default
    named = _NAMED.fullmatch(raw["$schema"]) if isinstance(raw["$schema"], str) else None
    return _NAMES.get(named[1]) if named else None


class Shape(Enum):
    """The arrangement of schemas under a keyword."""

    ONE = "a schema"
    LIST = "a list of schemas"
    MAP = "schemas by name"
    ONE_OR_LIST = "a schema, or a list of them for the first items"
    MAP_OR_NAMES = "schemas or lists of names, by name"


@dataclass(frozen=True, slots=True)
class SubschemaKeyword:
    shape: Shape
    since: Draft = Draft.D4
    until: Draft = Draft.D2020


SUBSCHEMA_KEYWORDS: Final = {
    "$defs": SubschemaKeyword(Shape.MAP),
    "definitions": SubschemaKeyword(Shape.MAP),
    "allOf": SubschemaKeyword(Shape.LIST),
    "anyOf": SubschemaKeyword(Shape.LIST),
    "oneOf": SubschemaKeyword(Shape.LIST),
    "not": SubschemaKeyword(Shape.ONE),
    "if": SubschemaKeyword(Shape.ONE, Draft.D7),
    "then": SubschemaKeyword(Shape.ONE, Draft.D7),
    "else": SubschemaKeyword(Shape.ONE, Draft.D7),
    "properties": SubschemaKeyword(Shape.MAP),
    "patternProperties": SubschemaKeyword(Shape.MAP),
    "additionalProperties": SubschemaKeyword(Shape.ONE),
    "unevaluatedProperties": SubschemaKeyword(Shape.ONE, Draft.D2019),
    "propertyNames": SubschemaKeyword(Shape.ONE, Draft.D6),
    "dependencies": SubschemaKeyword(Shape.MAP_OR_NAMES),
    "dependentSchemas": SubschemaKeyword(Shape.MAP, Draft.D2019),
    "items": SubschemaKeyword(Shape.ONE_OR_LIST),
    "additionalItems": SubschemaKeyword(Shape.ONE, until=Draft.D2019),
    "prefixItems": SubschemaKeyword(Shape.LIST, Draft.D2020),
    "unevaluatedItems": SubschemaKeyword(Shape.ONE, Draft.D2019),
    "contains": SubschemaKeyword(Shape.ONE, Draft.D6),
    "contentSchema": SubschemaKeyword(Shape.ONE, Draft.D2019),
}
DEFINITIONS: Final = ("$defs", "definitions")
_NEWER: Final = {keyword: place.since for keyword, place in SUBSCHEMA_KEYWORDS.items() if place.since > Draft.D7} | {
    **dict.fromkeys(("$defs", "$anchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"), Draft.D2019),
    **dict.fromkeys(("dependentRequired", "minContains", "maxContains"), Draft.D2019),
    **dict.fromkeys(("$dynamicRef", "$dynamicAnchor"), Draft.D2020),
}
"""Keywords that came after draft 7, with their drafts."""
VALUES: Final = ("const", "default", "enum", "examples")
"""Keywords that contain values, which are never schemas, even if they look like one."""


def minimum_draft(raw: dict[str, Any] | bool) -> Draft:
    """Return the oldest draft, from draft 7 on, that has all keywords of one schema."""
    keywords = () if isinstance(raw, bool) else raw
    return max((_NEWER[keyword] for keyword in keywords if keyword in _NEWER), default=Draft.D7)


def subschema_keywords(raw: dict[str, Any], draft: Draft) -> list[tuple[str, Shape]]:
    """Return the keywords of a schema that contain schemas in this draft, each with the arrangement of them."""
    keywords = [(keyword, SUBSCHEMA_KEYWORDS[keyword]) for keyword in raw if keyword in SUBSCHEMA_KEYWORDS]
    if "$ref" in raw and draft.reference_stands_alone:
        keywords = [(keyword, position) for keyword, position in keywords if keyword in DEFINITIONS]
    return [(keyword, position.shape) for keyword, position in keywords if position.since <= draft <= position.until]
