"""The drafts of JSON Schema: how each is named, and under which of its keywords schemas stand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final


class Draft(IntEnum):
    """In the order they appeared."""

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
        """What stands beside a `$ref` means nothing."""
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
    """What `$schema` says; None for anything but the five drafts."""
    if not isinstance(raw, dict) or "$schema" not in raw:
        return default
    named = _NAMED.fullmatch(raw["$schema"]) if isinstance(raw["$schema"], str) else None
    return _NAMES.get(named[1]) if named else None


class Shape(Enum):
    """How schemas stand under a keyword."""

    ONE = "a schema"
    LIST = "a list of schemas"
    MAP = "schemas by name"
    ONE_OR_LIST = "a schema, or a list of them for the first items"
    MAP_OR_NAMES = "schemas or lists of names, by name"


@dataclass(frozen=True, slots=True)
class Place:
    shape: Shape
    since: Draft = Draft.D4
    until: Draft = Draft.D2020


PLACES: Final = {
    "$defs": Place(Shape.MAP),
    "definitions": Place(Shape.MAP),
    "allOf": Place(Shape.LIST),
    "anyOf": Place(Shape.LIST),
    "oneOf": Place(Shape.LIST),
    "not": Place(Shape.ONE),
    "if": Place(Shape.ONE, Draft.D7),
    "then": Place(Shape.ONE, Draft.D7),
    "else": Place(Shape.ONE, Draft.D7),
    "properties": Place(Shape.MAP),
    "patternProperties": Place(Shape.MAP),
    "additionalProperties": Place(Shape.ONE),
    "unevaluatedProperties": Place(Shape.ONE, Draft.D2019),
    "propertyNames": Place(Shape.ONE, Draft.D6),
    "dependencies": Place(Shape.MAP_OR_NAMES),
    "dependentSchemas": Place(Shape.MAP, Draft.D2019),
    "items": Place(Shape.ONE_OR_LIST),
    "additionalItems": Place(Shape.ONE, until=Draft.D2019),
    "prefixItems": Place(Shape.LIST, Draft.D2020),
    "unevaluatedItems": Place(Shape.ONE, Draft.D2019),
    "contains": Place(Shape.ONE, Draft.D6),
    "contentSchema": Place(Shape.ONE, Draft.D2019),
}
DEFINITIONS: Final = ("$defs", "definitions")
_NEWER: Final = {keyword: place.since for keyword, place in PLACES.items() if place.since > Draft.D7} | {
    **dict.fromkeys(("$defs", "$anchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"), Draft.D2019),
    **dict.fromkeys(("dependentRequired", "minContains", "maxContains"), Draft.D2019),
    **dict.fromkeys(("$dynamicRef", "$dynamicAnchor"), Draft.D2020),
}
"""Keywords that came after draft 7, and with which draft."""
VALUES: Final = ("const", "default", "enum", "examples")
"""Under these stand values: whatever they look like, they are no schemas."""


def newest(raw: dict[str, Any] | bool) -> Draft:
    """The draft that the keywords of one schema need at least; draft 7 if they need no later one."""
    keywords = () if isinstance(raw, bool) else raw
    return max((_NEWER[keyword] for keyword in keywords if keyword in _NEWER), default=Draft.D7)


def places(raw: dict[str, Any], draft: Draft) -> list[tuple[str, Shape]]:
    """The keywords of a schema under which others stand."""
    found = [(keyword, PLACES[keyword]) for keyword in raw if keyword in PLACES]
    if "$ref" in raw and draft.reference_stands_alone:
        found = [(keyword, place) for keyword, place in found if keyword in DEFINITIONS]
    return [(keyword, place.shape) for keyword, place in found if place.since <= draft <= place.until]
