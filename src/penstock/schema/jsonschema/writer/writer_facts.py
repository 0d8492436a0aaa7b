"""Facts about a value that a writer wrote, and about its parts: the writer's side of every compatibility question."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.schema.jsonschema.model.keywords import in_place_subschemas
from penstock.schema.jsonschema.model.kinds import ALL, OBJECTS, STRINGS, ValueKind, ValueKinds
from penstock.schema.jsonschema.model.patterns import matches
from penstock.schema.jsonschema.model.tree import SchemaNode


@dataclass(frozen=True, slots=True)
class WriterFacts:
    """Facts about a value that a writer wrote: schemas it conforms to, schemas it violates, its possible kinds.

    More may be true of the value, never less. Instances come from `facts_of` and the methods here, which normalise
    them: `$ref` and `allOf` are followed and nodes are sorted, so that equal facts are equal objects.
    """

    conforms: tuple[SchemaNode, ...] = ()
    violates: tuple[SchemaNode, ...] = ()
    kinds: ValueKinds = ALL
    present: frozenset[str] = frozenset()
    """Names of properties that it certainly has if it is an object."""
    decided: frozenset[tuple[SchemaNode, str]] = frozenset()
    """Choices (`anyOf`, `oneOf`, `if`) whose outcome is known."""
    depth: int = field(default=0, compare=False)
    """The depth within the value that was compared first; it does not count for equality."""

    @property
    def is_anything(self) -> bool:
        return not self.conforms and not self.violates and self.kinds == ALL

    def keyword_values(self, keyword: str) -> list[Any]:
        """Return the values of a keyword in the schemas that it conforms to."""
        return [node.keywords[keyword] for node in self.conforms if keyword in node.keywords]

    def conforming(self, *nodes: SchemaNode) -> WriterFacts:
        return _with_conclusions(replace(self, conforms=(*self.conforms, *nodes)))

    def violating(self, *nodes: SchemaNode) -> WriterFacts:
        return _with_conclusions(replace(self, violates=(*self.violates, *nodes)))

    def unless_violating(self, node: SchemaNode) -> WriterFacts:
        """Return the facts without the fact that the value violates `node`."""
        return replace(self, violates=tuple(violated for violated in self.violates if violated is not node))

    def having(self, name: str) -> WriterFacts:
        return _with_conclusions(replace(self, present=self.present | {name}, kinds=self.kinds & OBJECTS))

    def of(self, kinds: ValueKinds) -> WriterFacts:
        return _with_conclusions(replace(self, kinds=self.kinds & kinds))

    def deciding(self, node: SchemaNode, keyword: str) -> WriterFacts:
        return replace(self, decided=self.decided | {(node, keyword)})


def facts_of(*conforms: SchemaNode, kinds: ValueKinds = ALL, depth: int = 0) -> WriterFacts:
    return _with_conclusions(WriterFacts(conforms, kinds=kinds, depth=depth))


def is_false(node: SchemaNode) -> bool:
    """Return whether the schema is `false`: no value conforms."""
    return "false" in node.keywords


def dereferenced(node: SchemaNode) -> SchemaNode:
    """Return the schema that a schema with nothing but one `$ref` leads to, in the end; any other schema itself. So it
    makes no difference through which references a definition is reached."""
    while node.keywords.keys() == {"$ref"} and len(node.keywords["$ref"]) == 1:
        node = node.keywords["$ref"][0]
    return node


def closure(nodes: Iterable[SchemaNode]) -> set[SchemaNode]:
    """Return these schemas and all that apply to the same value because of them, whether they must hold or not."""
    reached: set[SchemaNode] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting += in_place_subschemas(node)
    return reached


# Inference


def _with_conclusions(writer: WriterFacts) -> WriterFacts:
    inference = _Inference(writer)
    inference.follow()
    return inference.result()


class _Inference:
    """The conclusions from known facts."""

    def __init__(self, writer: WriterFacts) -> None:
        self._start = writer
        self._conforms: set[SchemaNode] = set()
        self._violates: set[SchemaNode] = set()
        self._kinds = writer.kinds
        self._present = set(writer.present)
        self._waiting = list(writer.conforms)
        self._denied = list(writer.violates)

    def follow(self) -> None:
        while self._waiting or self._denied:
            if self._waiting:
                self._assume(self._waiting.pop())
            else:
                self._deny(self._denied.pop())
            if not self._waiting and not self._denied:
                self._apply_dependencies()

    def result(self) -> WriterFacts:
        return WriterFacts(
            tuple(sorted(self._conforms, key=_serial)),
            tuple(sorted(self._violates, key=_serial)),
            self._kinds,
            frozenset(self._present),
            self._start.decided,
            self._start.depth,
        )

    def _assume(self, node: SchemaNode) -> None:
        node = dereferenced(node)
        keyword_values = node.keywords
        if node in self._conforms or not keyword_values:
            return
        self._conforms.add(node)
        self._kinds &= frozenset() if is_false(node) else keyword_values.get("type", ALL)
        if isinstance(keyword_values.get("multipleOf"), int):
            self._kinds -= {ValueKind.FRACTION}
        self._present.update(keyword_values.get("required", ()))
        self._waiting += [*keyword_values.get("$ref", ()), *keyword_values.get("allOf", ())]
        if "not" in keyword_values:
            self._denied.append(keyword_values["not"])

    def _deny(self, node: SchemaNode) -> None:
        node = dereferenced(node)
        keyword_values = node.keywords
        if keyword_values.keys() == {"type"}:
            self._kinds -= keyword_values["type"]
        elif keyword_values.keys() == {"not"}:
            self._waiting.append(keyword_values["not"])
        elif keyword_values.keys() == {"anyOf"}:
            self._denied += keyword_values["anyOf"]
        elif not keyword_values:
            self._kinds = frozenset()
        else:
            self._violates.add(node)

    def _apply_dependencies(self) -> None:
        """Add what follows from `dependentRequired` and `dependentSchemas` for the properties that the object has:
        further properties, and schemas to conform to."""
        if self._kinds != OBJECTS:
            return
        waiting = list(self._present)
        while waiting:
            name = waiting.pop()
            for node in self._conforms:
                needed = set(node.keywords.get("dependentRequired", {}).get(name, ())) - self._present
                self._present |= needed
                waiting += needed
                schema = node.keywords.get("dependentSchemas", {}).get(name)
                if schema is not None and dereferenced(schema).keywords and dereferenced(schema) not in self._conforms:
                    self._waiting.append(schema)


def _serial(node: SchemaNode) -> int:
    return node.serial


# Parts


def names(writer: WriterFacts) -> set[str]:
    """Return the names of properties that the schemas mention. All other properties are alike, except for patterns."""
    return {
        name for node in _mentioning_schemas(writer, "Properties") for name in node.keywords.get("properties", ())
    } | set(writer.present)


def patterns(writer: WriterFacts) -> set[str]:
    return {pattern for by_pattern in writer.keyword_values("patternProperties") for pattern in by_pattern}


def property_of(writer: WriterFacts, name: str) -> WriterFacts:
    """Return the facts about the property `name`, should the value have one."""
    schemas: list[SchemaNode] = []
    for node in writer.conforms:
        schemas += _property(node, name)
        if "unevaluatedProperties" in node.keywords and not _may_evaluate(node, name):
            schemas.append(node.keywords["unevaluatedProperties"])
    return facts_of(*schemas, depth=writer.depth + 1)


def unnamed_property_of(writer: WriterFacts, pattern: str | None = None) -> WriterFacts:
    """Return the facts about a property that the schemas do not name. With `pattern`, its name matches that pattern and
    perhaps others; without, it matches none of the schemas' patterns."""
    schemas: list[SchemaNode] = []
    for node in writer.conforms:
        schemas += _unnamed(node, pattern)
        if "unevaluatedProperties" in node.keywords and not _may_evaluate_unnamed(node, writer, pattern):
            schemas.append(node.keywords["unevaluatedProperties"])
    return facts_of(*schemas, depth=writer.depth + 1)


def item_of(writer: WriterFacts, index: int) -> WriterFacts:
    schemas: list[SchemaNode] = []
    for node in writer.conforms:
        first = node.keywords.get("prefixItems", ())
        if index < len(first):
            schemas.append(first[index])
        elif "items" in node.keywords:
            schemas.append(node.keywords["items"])
        if "unevaluatedItems" in node.keywords and not _may_evaluate_item(node, index):
            schemas.append(node.keywords["unevaluatedItems"])
    return facts_of(*schemas, depth=writer.depth + 1)


def uniform_from(writer: WriterFacts) -> int:
    """Return the index from which on all items are alike."""
    return max((len(node.keywords.get("prefixItems", ())) for node in _mentioning_schemas(writer, "Items")), default=0)


def name_of(writer: WriterFacts) -> WriterFacts:
    """Return the facts about the names of the value's properties."""
    return facts_of(*writer.keyword_values("propertyNames"), kinds=STRINGS, depth=writer.depth + 1)


def _property(node: SchemaNode, name: str) -> list[SchemaNode]:
    keyword_values = node.keywords
    schemas = [
        schema
        for pattern, schema in keyword_values.get("patternProperties", {}).items()
        if matches(node.document, pattern, name)
    ]
    if name in keyword_values.get("properties", ()):
        schemas.append(keyword_values["properties"][name])
    return schemas or _additional(node)


def _additional(node: SchemaNode) -> list[SchemaNode]:
    return [node.keywords["additionalProperties"]] if "additionalProperties" in node.keywords else []


def _unnamed(node: SchemaNode, pattern: str | None) -> list[SchemaNode]:
    matched = node.keywords.get("patternProperties", {})
    if pattern in matched:
        return [matched[pattern]]
    return [] if matched and pattern is not None else _additional(node)


def _mentioning_schemas(writer: WriterFacts, parts: str) -> set[SchemaNode]:
    """Return the schemas that the value conforms to. For one with `unevaluatedProperties` or `unevaluatedItems`, add
    all schemas that may evaluate properties or items for it. `parts`: `Properties` or `Items`."""
    return set(writer.conforms) | closure(node for node in writer.conforms if f"unevaluated{parts}" in node.keywords)


def _may_evaluate(node: SchemaNode, name: str) -> bool:
    return any(
        _property(schema, name) or (schema is not node and "unevaluatedProperties" in schema.keywords)
        for schema in closure([node])
    )


def _may_evaluate_unnamed(node: SchemaNode, writer: WriterFacts, pattern: str | None) -> bool:
    """Return whether `node`, or a schema in it, may evaluate an unnamed property as in `unnamed_property_of`. A name
    that matches no pattern of the writer may still match patterns of schemas that perhaps apply too."""
    return any(
        "additionalProperties" in schema.keywords
        or ("patternProperties" in schema.keywords and (pattern is not None or schema not in writer.conforms))
        or (schema is not node and "unevaluatedProperties" in schema.keywords)
        for schema in closure([node])
    )


def _may_evaluate_item(node: SchemaNode, index: int) -> bool:
    return any(
        "items" in schema.keywords
        or "contains" in schema.keywords
        or len(schema.keywords.get("prefixItems", ())) > index
        or (schema is not node and "unevaluatedItems" in schema.keywords)
        for schema in closure([node])
    )
