"""The canonical text: details without meaning are gone, everything else is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.schema.jsonschema.model import text
from penstock.schema.jsonschema.model.drafts import VALUES
from penstock.schema.jsonschema.model.tree import SchemaDocument


def canonical(documents: Sequence[SchemaDocument]) -> str:
    """Return the canonical text: no white space, keys sorted, lists without order (such as `required`) sorted, one
    spelling for each number. Referenced documents follow, one line each, sorted by name."""
    first, *others = [text.compact(_canonical(each, "", each.raw)) for each in documents]
    named = zip((document.name for document in documents[1:]), others, strict=True)
    return "\n".join([first, *(f"{text.compact(name)}:{form}" for name, form in sorted(named))])


def _canonical(document: SchemaDocument, pointer: str, raw: Any) -> Any:
    if isinstance(raw, list):
        return [_canonical(document, pointer + text.pointer([index]), value) for index, value in enumerate(raw)]
    if not isinstance(raw, dict):
        return raw
    is_schema = pointer in document.nodes
    members = {
        name: value if is_schema and name in VALUES else _canonical(document, pointer + text.pointer([name]), value)
        for name, value in raw.items()
    }
    if is_schema:
        members |= {name: _SETS[name](value) for name, value in members.items() if name in _SETS}
        if "$schema" in members:
            members["$schema"] = document.draft.uri
    return members


def _sorted(values: Any) -> Any:
    """Sort a list whose order means nothing."""
    return sorted(values, key=text.compact) if isinstance(values, list) else values


def _types(types: Any) -> Any:
    return types[0] if isinstance(types, list) and len(types) == 1 else _sorted(types)


def _names(needed: Any) -> Any:
    """Sort every list of names in a mapping. Schemas, which may stand among them, stay as they are."""
    return {name: _sorted(dependency) for name, dependency in needed.items()} if isinstance(needed, dict) else needed


_SETS: Final[dict[str, Callable[[Any], Any]]] = {
    "dependencies": _names,
    "dependentRequired": _names,
    "enum": _sorted,
    "required": _sorted,
    "type": _types,
}
